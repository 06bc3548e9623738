"""Logins to a task on Kubernetes, whose image has a shell but no sshd."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Shell, make_shell
from tests.e2e.test_container import SECONDS, page
from tests.needs import needs
from tests.ports import free_port
from tests.processes import kill
from tests.server.engines.kube_cluster import IMAGE, kube_namespace
from tests.server.workshop import until

SMALL = ("--cpu", "1", "--mem", "100", "--image", IMAGE)
PORT = 8123  # in the pod


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A shell with a job that accepts logins."""
    with kube_namespace() as kube:
        shell = make_shell(tmp_path_factory.mktemp("kube"))
        shell.environment["HOME"] = str(tmp_path_factory.mktemp("user"))
        options = (f"--option=kubeconfig={os.path.relpath(kube.kubeconfig, shell.project)}",)
        options += (f"--option=namespace={kube.namespace}",)
        try:
            shell.ok("cluster.start", "--engine", "kubernetes", *options)
            assert shell.ok("cluster.start", *(one.replace("=", "=kubernetes-", 1) for one in options))
            submit(shell, "train", "--env", "SEEN=it's  $HOME")
            yield shell
        finally:
            shell.inv("cluster.stop", "--force")


def submit(shell: Shell, name: str, *more: str) -> None:
    shell.ok("job.sub", "sleep 3600", "-j", name, "--ssh", *SMALL, *more)
    until(lambda: shell.ok("job.status", name, "-o", "json").json()["state"] == "RUNNING", 2 * SECONDS)


def services(shell: Shell) -> list[int]:
    """The processes that serve ssh for pods of this home."""
    return [int(process.name) for process in Path("/proc").glob("[0-9]*") if _serves(process, shell.home)]


def _serves(process: Path, home: Path) -> bool:
    with contextlib.suppress(OSError):
        works_there = (process / "cwd").readlink().is_relative_to(home)
        return works_there and b"serve_ssh" in (process / "cmdline").read_bytes()
    return False


def test_a_command_keeps_its_arguments_streams_and_exit_code(shell: Shell) -> None:
    script = 'printf "%s|" "$@"; cat; echo oops >&2; exit 7'
    ran = shell.inv("container.run", "train", "--", "sh", "-c", script, "-", "a  b", "$HOME", input="typed")
    assert (ran.code, ran.out, ran.err) == (7, "a  b|$HOME|typed", "oops\n")


def test_a_session_has_the_folder_and_the_variables_of_the_task(shell: Shell) -> None:
    ran = shell.ok("container.run", "train", 'pwd; echo "$SEEN $PAI_JOB_NAME"; test -n "$PAI_HOST_IP_main_0"')
    assert ran.out.splitlines()[0] == "/usr/local/pai/work"
    assert ran.out.splitlines()[1].startswith("it's  $HOME ")
    assert shell.ok("job.logs", "train").out == ""  # nothing about the service in the output of the job


def test_all_input_arrives_when_the_command_prints_nothing(shell: Shell) -> None:
    text = "0123456789" * 100_000
    shell.ok("container.run", "train", "exec cat >input", input=text)
    assert shell.ok("container.run", "train", "wc -c <input").out.strip() == str(len(text))


def test_an_interrupt_ends_the_command_in_the_pod(shell: Shell) -> None:
    running = shell.start("inv", "container.run", "train", "echo begun; exec sleep 4321")
    assert running.stdout and running.stdout.readline() == "begun\n"
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=SECONDS)
    assert running.returncode == 130
    left = "grep -la '^sleep.4321' /proc/[0-9]*/cmdline || echo none"
    assert until(lambda: shell.ok("container.run", "train", left).out == "none\n")


def test_files_and_folders_are_copied_both_ways(shell: Shell) -> None:
    data = shell.project / "data"
    (data / "deep" / "empty").mkdir(parents=True)
    (data / "run.sh").write_text("echo hi\n")
    (data / "run.sh").chmod(0o755)
    (data / "deep" / "it's {odd} 100% é").write_bytes(bytes(range(256)) * 40)
    (data / "large").write_bytes(os.urandom(3_000_000))
    shell.ok("container.put", "train", "data", "/tmp/in/")
    assert "0 copied" in shell.ok("container.put", "train", "data", "/tmp/in/").out
    assert shell.ok("container.run", "train", "/tmp/in/data/run.sh").out == "hi\n"
    shell.ok("container.get", "train", "/tmp/in/data", "back/")
    assert contents(shell.project / "back/data") == contents(data)
    missing = shell.inv("container.get", "train", "/tmp/none", "back/")
    assert missing.code and "/tmp/none: no such file or folder" in missing.err


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mode & 0o777)
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_port_of_the_pod_is_forwarded(shell: Shell) -> None:
    text = "for i in $(seq 50000); do echo line $i; done >/tmp/web/page"
    web = f"mkdir -p /tmp/web; {text}; httpd -p 127.0.0.1:{PORT} -h /tmp/web"
    shell.ok("container.run", "train", web)
    here, closed = free_port(), free_port()
    words = ("container.forward", "train", f"{PORT}:{here}", f"9:{closed}")
    forwarding = shell.start("inv", *words)
    try:
        lines = until(lambda: page(here)).splitlines()
        assert (len(lines), lines[-1]) == (50_000, b"line 50000")
        assert page(closed) is None
    finally:
        refused = shell.inv("container.forward", "train", "-R", "9000")
        assert refused.code == 120 and "on Kubernetes, the image needs python3" in refused.err
        forwarding.send_signal(signal.SIGINT)
        said = forwarding.communicate(timeout=SECONDS)
    assert "nothing listens at 127.0.0.1:9 in main-0" in "".join(said)


def test_the_usage_of_the_container_is_measured(shell: Shell) -> None:
    (row,) = shell.ok("container.top", "train", "-o", "json").json()
    assert row["error"] == "" and row["memory"] > 0


@needs("ssh")
def test_ssh_finds_the_job_by_its_name_and_refuses_other_keys(shell: Shell) -> None:
    shell.ok("container.ssh-config", "train", "--yes")
    ssh = ("ssh", "-F", str(shell.home / "ssh/config"), "-o", "BatchMode=yes")
    assert shell.run(*ssh, "train", "echo by name").out == "by name\n"
    on_terminal = shell.run(*ssh, "-tt", "train", "tty; exit 4")
    assert on_terminal.out.startswith("/dev/pts/")
    assert on_terminal.code == 4
    key = shell.project / "other_key"
    shell.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key))
    (place,) = shell.ok("container.list", "train", "-o", "json").json()
    options = ("StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "IdentitiesOnly=yes")
    flags = [word for one in (*options, "BatchMode=yes") for word in ("-o", one)]
    refused = shell.run(
        "ssh", "-F", "none", *flags, "-i", str(key), "-p", str(place["port"]), "root@127.0.0.1"
    )
    assert refused.code == 255
    assert "Permission denied (publickey)" in refused.err


def test_logins_work_again_after_the_server_was_killed(shell: Shell) -> None:
    (before,) = shell.ok("container.list", "train", "-o", "json").json()
    (service,) = services(shell)
    kill(json.loads((shell.home / "local/server.json").read_text())["pid"])
    assert shell.ok("container.run", "train", "echo again").out == "again\n"
    (after,) = shell.ok("container.list", "train", "-o", "json").json()
    assert after["port"] == before["port"]
    assert service not in services(shell)


def test_nothing_of_the_service_is_left_after_the_task(shell: Shell) -> None:
    submit(shell, "short")
    assert shell.ok("container.run", "short", "echo here").out == "here\n"
    assert len(services(shell)) == 2
    shell.ok("job.stop", "short")
    until(lambda: shell.ok("job.status", "short", "-o", "json").json()["state"] == "STOPPED")
    until(lambda: len(services(shell)) == 1)
    assert not list((shell.home / "local/jobs").glob("*~short/0/*/ssh"))


def test_failed_job_is_kept_as_it_crashed(shell: Shell) -> None:
    """In the pod, which is held meanwhile."""
    command = "cd /tmp; export SEEN=crash; echo left >file; exit 3"
    ran = shell.inv("job.sub", command, "-j", "boom", "--keep-failed", "10m", "--follow", *SMALL)
    assert ran.code == 3 and "for `inv container.ssh boom`; `inv container.stop boom` ends it" in ran.err
    seen = shell.ok("container.run", "boom", 'pwd; echo "$SEEN $PAI_JOB_NAME"; cat file').out.splitlines()
    assert seen[0] == "/tmp" and seen[1].startswith("crash ") and seen[2] == "left"
    shell.ok("container.stop", "boom")
    assert until(lambda: shell.ok("job.status", "boom", "-o", "json").json()["state"] == "FAILED")
    assert shell.ok("job.status", "boom", "-o", "json").json()["exit_code"] == 3
