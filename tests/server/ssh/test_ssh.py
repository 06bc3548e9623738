"""Logging in to a task with OpenSSH clients and with Fabric, for both ssh services."""

from __future__ import annotations

import io
import os
import subprocess
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.needs import needs
from tests.ports import free_port
from tests.server.conftest import Api, ServerProcess, wait_for
from tests.server.ssh_clients import (
    SERVICES,
    SshTarget,
    answers,
    document,
    events,
    login_name,
    needs_clients,
    plugin,
    ports,
    run_job,
    skip_without,
    skip_without_terminal,
    stop,
    task_folder,
)
from tests.ssh_keys import make_key

pytestmark = needs_clients
MEGABYTES = os.urandom(3 << 20)


@dataclass(frozen=True)
class SshJob:
    """A running job that accepts ssh logins."""

    service: str
    api: Api
    key: str
    folder: Path
    target: SshTarget

    @property
    def work(self) -> Path:
        return self.folder / "work"


@pytest.fixture(scope="module", params=SERVICES)
def ssh_job(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshJob]:
    skip_without(request.param)
    folder = tmp_path_factory.mktemp("ssh")
    server = ServerProcess(folder / "home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(folder))  # a user's ~/.bashrc may be slow
        server.start("--ssh", request.param)
    api, key = server.admin(), make_key(folder / "id")
    command = "export MINE=1; echo <% $secrets.word %> >word; echo up; sleep 600"
    text = document("house", command, plugin(key), secrets={"word": "sesame"})
    job = run_job(server, api, "house", text)
    target = SshTarget(ports(api, job)[0], key, login_name(request.param))
    yield SshJob(request.param, api, job, task_folder(server, job), target)
    stop(api, job)
    server.end()


def test_a_command_keeps_its_exit_code_and_both_outputs(ssh_job: SshJob) -> None:
    done = ssh_job.target.ssh("cat; echo out; echo err >&2; exit 7", send=b"in\n")
    assert (done.returncode, done.stdout, done.stderr) == (7, b"in\nout\n", b"err\n")


def test_large_output_arrives_complete(ssh_job: SshJob) -> None:
    done = ssh_job.target.ssh("head -c 3000000 /dev/zero | tr '\\0' x; echo end >&2")
    assert (len(done.stdout), done.stderr) == (3_000_000, b"end\n")


def test_session_has_the_working_folder_and_variables_of_the_task(ssh_job: SshJob) -> None:
    names = "PAI_JOB_NAME PAI_TASK_INDEX PAI_CONTAINER_SSH_PORT PAI_WORK_DIR NVIDIA_VISIBLE_DEVICES HOME PATH"
    lines = ssh_job.target.output_of(
        f"pwd; for name in {names}; do printenv $name; done; cat word"
    ).splitlines()
    stored = (ssh_job.folder / "environment").read_bytes()
    task = dict(entry.split("=", 1) for entry in stored.decode().split("\0") if entry)
    assert lines == [str(ssh_job.work), *(task[name] for name in names.split()), "sesame"]
    assert lines[1:4] == [ssh_job.key, "0", str(ssh_job.target.port)]


def test_session_has_no_other_variables_of_server_or_client(ssh_job: SshJob) -> None:
    listing = ssh_job.target.output_of("env -0")
    stored = (ssh_job.folder / "environment").read_bytes()
    known = {entry.split("=")[0] for entry in stored.decode().split("\0")}
    more = {entry.split("=")[0] for entry in listing.split("\0") if entry} - known
    assert more == {"SSH_CLIENT", "SSH_CONNECTION", "SHLVL", "PWD", "_"}


def test_a_shell_without_a_command_reads_its_input(ssh_job: SshJob) -> None:
    done = subprocess.run(
        ssh_job.target.argv("-T", ssh_job.target.address),
        input=b"pwd\nexit 4\n",
        capture_output=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout.decode().strip()) == (4, str(ssh_job.work))


def test_a_shell_in_a_terminal_is_interactive(ssh_job: SshJob) -> None:
    skip_without_terminal(ssh_job.service)
    typed = b"tty; case $- in *i*m*) echo inter$((1 + 1));; esac\rexit 3\r"
    argv = ssh_job.target.argv("-tt", ssh_job.target.address)
    done = subprocess.run(argv, input=typed, capture_output=True, timeout=60)
    assert done.returncode == 3
    assert b"/dev/" in done.stdout and b"inter2" in done.stdout


def test_terminal_size_follows_that_of_the_client(ssh_job: SshJob) -> None:
    skip_without_terminal(ssh_job.service)
    with ssh_job.target.fabric() as connection:
        connection.open()
        channel = connection.transport.open_session()
        channel.get_pty("xterm", 101, 42)
        channel.exec_command("stty size; echo $TERM; read word; stty size")
        output = channel.makefile("rb")
        assert (output.readline() + output.readline()).split() == [b"42", b"101", b"xterm"]
        channel.resize_pty(77, 11)
        channel.sendall(b"go\r")
        assert output.read().split()[-2:] == [b"11", b"77"]
        assert channel.recv_exit_status() == 0


def test_ctrl_c_reaches_the_program_in_the_terminal(ssh_job: SshJob) -> None:
    skip_without_terminal(ssh_job.service)
    with ssh_job.target.fabric() as connection:
        connection.open()
        channel = connection.transport.open_session()
        channel.get_pty()
        channel.exec_command("trap 'echo caught; exit 5' INT; echo up; while :; do sleep 0.05; done")
        assert b"up" in channel.recv(100)
        channel.sendall(b"\x03")
        assert channel.recv_exit_status() == 5


def test_files_are_copied_to_the_work_folder_and_back(ssh_job: SshJob, tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(MEGABYTES)
    scp = ["scp", *ssh_job.target.options, "-P", str(ssh_job.target.port)]
    subprocess.run(
        [*scp, str(tmp_path / "data"), f"{ssh_job.target.address}:scp data"], check=True, timeout=60
    )
    assert (ssh_job.work / "scp data").read_bytes() == MEGABYTES
    batch = f"pwd\nput {tmp_path}/data sent\nrename sent there\nget there {tmp_path}/back\nmkdir new\nls -l\n"
    sftp = [
        "sftp",
        *ssh_job.target.options,
        "-P",
        str(ssh_job.target.port),
        "-b",
        "-",
        ssh_job.target.address,
    ]
    done = subprocess.run(sftp, input=batch, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert str(ssh_job.work) in done.stdout
    assert (tmp_path / "back").read_bytes() == (ssh_job.work / "there").read_bytes() == MEGABYTES
    assert (ssh_job.work / "new").is_dir()


def test_legacy_scp_protocol_works(ssh_job: SshJob, tmp_path: Path) -> None:
    (tmp_path / "tree" / "deep").mkdir(parents=True)
    (tmp_path / "tree" / "deep" / "file").write_bytes(b"old")
    scp = ["scp", "-O", "-r", *ssh_job.target.options, "-P", str(ssh_job.target.port)]
    subprocess.run([*scp, str(tmp_path / "tree"), f"{ssh_job.target.address}:tree"], check=True, timeout=60)
    assert (ssh_job.work / "tree/deep/file").read_bytes() == b"old"


@needs("rsync")
def test_rsync_works_over_ssh(ssh_job: SshJob, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "file").write_bytes(MEGABYTES)
    shell = " ".join(["ssh", *ssh_job.target.options, "-p", str(ssh_job.target.port)])
    argv = ["rsync", "-a", "-e", shell, f"{tmp_path}/tree/", f"{ssh_job.target.address}:synced/"]
    subprocess.run(argv, check=True, timeout=60)
    assert (ssh_job.work / "synced/file").read_bytes() == MEGABYTES


def test_fabric_runs_commands_and_copies_files(ssh_job: SshJob) -> None:
    with ssh_job.target.fabric() as connection:
        done = connection.run("echo out; echo err >&2; exit 3", hide=True, warn=True, in_stream=False)
        assert (done.exited, done.stdout, done.stderr) == (3, "out\n", "err\n")
        connection.put(io.BytesIO(MEGABYTES), "fabric")
        back = io.BytesIO()
        connection.get("fabric", back)
        assert back.getvalue() == MEGABYTES == (ssh_job.work / "fabric").read_bytes()


def test_ports_are_forwarded_both_ways(ssh_job: SshJob) -> None:
    """A web server in the task is reached through -L, one here from the task through -R."""
    skip_without_terminal(ssh_job.service)
    there, here, back = free_port(), free_port(), free_port()
    (ssh_job.work / "page").write_text("hello through the tunnel")
    serve = f"python3 -m http.server {there} --bind 127.0.0.1 >/dev/null 2>&1"
    web = subprocess.Popen(ssh_job.target.argv("-tt", ssh_job.target.address, serve), stdin=subprocess.PIPE)
    wait_for(lambda: answers(there))
    try:
        forward = ("-L", f"{here}:127.0.0.1:{there}", "-R", f"{back}:127.0.0.1:{there}")
        with ssh_job.target.tunnel("-o", "ExitOnForwardFailure=yes", *forward):
            for port in (here, back):
                wait_for(lambda port=port: answers(port))
                page = urllib.request.urlopen(f"http://127.0.0.1:{port}/page", timeout=60).read()
                assert page == b"hello through the tunnel"
    finally:
        web.kill()
        web.wait()
    wait_for(lambda: not answers(there))  # closing the terminal has ended the web server


def test_other_keys_and_passwords_are_refused(ssh_job: SshJob, tmp_path: Path) -> None:
    other = replace(ssh_job.target, key=make_key(tmp_path / "id"))
    done = other.ssh("true")
    assert done.returncode == 255 and b"Permission denied (publickey)" in done.stderr
    import paramiko

    for target in (other, ssh_job.target):
        with (
            pytest.raises(paramiko.SSHException),
            target.fabric(key_filename=[], password="any") as connection,
        ):
            connection.open()


def test_other_users_cannot_log_in_with_the_key(ssh_job: SshJob) -> None:
    done = replace(ssh_job.target, user="daemon").ssh("true")
    assert done.returncode == 255 and b"Permission denied" in done.stderr


def test_ssh_service_listens_on_loopback_only(ssh_job: SshJob) -> None:
    lines = Path("/proc/net/tcp").read_text().splitlines() + Path("/proc/net/tcp6").read_text().splitlines()
    port = f"{ssh_job.target.port:04X}"
    listening = [
        line.split()[1] for line in lines[1:] if line.split()[1].endswith(f":{port}") and " 0A " in line
    ]
    assert listening == [f"0100007F:{port}"]


def test_ssh_files_are_private(ssh_job: SshJob) -> None:
    private = [path for path in (ssh_job.folder / "ssh").iterdir() if path.name not in ("ready",)]
    assert private and not [path for path in private if path.stat().st_mode & 0o077]


def test_event_of_the_job_names_the_ssh_service(ssh_job: SshJob) -> None:
    assert events(ssh_job.api, ssh_job.key)["SshServed"].startswith(
        f"{ssh_job.service} serves ssh: log in as {login_name(ssh_job.service)} "
    )


def test_many_sessions_work_at_once(ssh_job: SshJob) -> None:
    running = [
        subprocess.Popen(
            ssh_job.target.argv(ssh_job.target.address, f"echo {number}"), stdout=subprocess.PIPE
        )
        for number in range(6)
    ]
    assert [process.communicate(timeout=100)[0] for process in running] == [b"%d\n" % n for n in range(6)]
