"""A laptop whose cluster is Slurm on a login node, with a real sshd there."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Iterator

import paramiko
import pytest

from openpai_tasks.sdk.ssh.login_node_gateway import LoginNodeGateway
from openpai_tasks.sdk.ssh.target import gateway_to
from openpai_tasks.settings.config import Settings
from openpai_tasks.settings.registry import Cluster
from tests.e2e.laptop import Laptop, laptop_with
from tests.e2e.test_container import SECONDS
from tests.forkserver import BIN
from tests.ports import free_port
from tests.processes import kill
from tests.server.engines.slurm_cluster import slurm_cluster
from tests.server.workshop import until

SMALL = ("--cpu", "1", "--mem", "100", "-a", "hpc")


@pytest.fixture(scope="module")
def laptop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laptop]:
    with slurm_cluster(tmp_path_factory.mktemp("slurm")) as slurm:
        path, conf = f"{BIN}:{slurm.environment['PATH']}", slurm.environment["SLURM_CONF"]
        profile = f"echo Welcome\nexport PATH={path} SLURM_CONF={conf}\n"
        with laptop_with(tmp_path_factory.mktemp("laptop"), profile) as found:
            shell = found.shell
            try:
                shell.ok("cluster.add", "hpc", "--type", "slurm", "--ssh", "login")
                yield found
            finally:
                shell.inv("cluster.delete", "hpc")
                home = f"{found.remote}/.openpai"
                shell.inv("cluster.stop", OPENPAI_HOME=home, SLURM_CONF=conf, PATH=path)


def test_a_job_with_sources_runs_and_is_followed(laptop: Laptop) -> None:
    shell = laptop.shell
    (shell.project / "train.py").write_text("import os; print('on', os.environ['SLURMD_NODENAME'])")
    ran = shell.ok("job.sub", "python3 train.py", "-j", "first", "--sources", "train.py", "--follow", *SMALL)
    assert ran.out.strip() in ("on node1", "on node2")
    assert shell.ok("job.logs", "first", "-a", "hpc").out == ran.out


def test_files_are_copied_to_and_from_the_storage(laptop: Laptop) -> None:
    shell = laptop.shell
    folder = shell.project / "data"
    folder.mkdir()
    (folder / "a b.txt").write_text("one")
    (folder / "zeros").write_bytes(bytes(3_000_000))
    shell.ok("storage.copy", "data", "pai://hpc/home/")
    assert shell.ok("storage.list", "hpc", "-o", "json").json()[0]["type"] == "sftp"
    shell.ok("storage.copy", "pai://hpc/home/data", "back")
    assert (shell.project / "back/a b.txt").read_text() == "one"
    assert (shell.project / "back/zeros").stat().st_size == 3_000_000


def test_containers_are_reached_through_the_login_node(laptop: Laptop) -> None:
    shell, port = laptop.shell, free_port()
    serve = f"echo hello >page; exec python3 -m http.server {port} --bind 127.0.0.1"
    shell.ok("job.sub", serve, "-j", "open", "--ssh", "--ports", f"web={port}", *SMALL)
    until(lambda: "RUNNING" in shell.ok("job.status", "open", "-a", "hpc").out)
    begun = len(laptop.calls())
    ran = shell.ok("container.run", "open", "-a", "hpc", "--", "echo $SLURMD_NODENAME")
    assert ran.out.startswith("node")
    (shell.project / "note.txt").write_text("hello")
    shell.ok("container.put", "open", "note.txt", "-a", "hpc")
    assert all("-W" in call for call in laptop.calls()[begun:])
    by_hand = shlex.split(shell.ok("container.ssh", "open", "-a", "hpc", "--print-command").out)
    assert shell.run(*by_hand, "cat note.txt").out == "hello"
    shell.ok("container.ssh-config", "open", "-a", "hpc")
    assert shell.run("ssh", "open", "cat note.txt").out == "hello"
    laptop.check_forward("open", "hpc")
    shell.ok("job.stop", "open", "-a", "hpc")


def test_a_port_without_a_listener_is_told_from_other_failures(
    laptop: Laptop, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PATH", "OPENPAI_HOME"):
        monkeypatch.setenv(name, laptop.shell.environment[name])
    laptop.shell.ok("job.list", "-a", "hpc")
    way = gateway_to(Cluster("hpc", "ssh://login"), Settings())
    assert way
    gateway = LoginNodeGateway(way, SECONDS)
    with pytest.raises(paramiko.ChannelException):
        gateway.open_channel("direct-tcpip", ("127.0.0.1", free_port()), ("127.0.0.1", 0))
    laptop.kill_tunnel()
    with pytest.raises(paramiko.ChannelException):
        gateway.open_channel("direct-tcpip", ("127.0.0.1", free_port()), ("127.0.0.1", 0))


def test_an_open_tunnel_costs_no_process(laptop: Laptop) -> None:
    laptop.shell.ok("job.list", "-a", "hpc")
    begun = len(laptop.calls())
    laptop.shell.ok("job.list", "-a", "hpc")
    status = laptop.shell.ok("cluster.status", "hpc", "-o", "json").json()
    assert status["connected"] and status["login_node"] == "ssh://login"
    assert len(laptop.calls()) == begun


def test_a_broken_tunnel_is_restored_for_commands_that_run_and_for_new_ones(laptop: Laptop) -> None:
    shell, go = laptop.shell, laptop.folder / "go"
    waiting = f"echo begun; until [ -e {go} ]; do sleep 0.1; done; echo ended"
    shell.ok("job.sub", waiting, "-j", "long", *SMALL)
    until(lambda: shell.ok("job.logs", "long", "-a", "hpc").out == "begun\n")
    following = shell.start("inv", "job.logs", "long", "--follow", "-a", "hpc", stdout=subprocess.PIPE)
    assert following.stdout and following.stdout.readline() == "begun\n"
    laptop.kill_tunnel()
    others = [shell.start("inv", "job.list", "-a", "hpc", stdout=subprocess.DEVNULL) for _ in range(2)]
    assert [one.wait(100) for one in others] == [0, 0]
    go.touch()
    assert following.stdout.read() == "ended\n" and following.wait(100) == 0
    until(lambda: len(laptop.tunnels()) == 1)


def test_a_server_that_was_killed_is_started_again(laptop: Laptop) -> None:
    before, tunnels = laptop.server(), laptop.tunnels()
    kill(before)
    ran = laptop.shell.ok("job.sub", "echo again", "-j", "again", "--follow", *SMALL)
    assert ran.out == "again\n" and laptop.server() != before and laptop.tunnels() == tunnels


def test_nothing_secret_is_on_a_command_line_or_in_the_list_of_clusters(laptop: Laptop) -> None:
    shell = laptop.shell
    token = shell.ok("cluster.credentials", "hpc", "-o", "json").json()["token"]
    password = json.loads((laptop.remote / ".openpai/local/credentials.json").read_text())["password"]
    shown = "".join([*laptop.calls(), (shell.home / "clusters.yaml").read_text()])
    assert token not in shown and password not in shown
    for path in (shell.home / "ssh").rglob("*"):
        assert path.is_symlink() or not path.stat().st_mode & 0o077, path


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        ("key", "Permission denied"),
        ("host", "the host key of other has changed"),
        ("program", "there is no program '/no/pai'"),
        ("slurm", "Slurm: "),
        ("programs", "there is no sbatch on this machine"),
        ("token", "does not accept the token of user 'ann'"),
    ],
)
def test_a_cluster_that_cannot_be_added_is_explained_in_one_line(
    laptop: Laptop, spoil: str, reason: str
) -> None:
    profile = laptop.remote / ".bash_profile"
    before = profile.read_text()
    (laptop.folder / "token").write_text("x.y.z")
    login = ["--user", "ann", "--token-file", f"{laptop.folder}/token"]
    more = {"program": ["--remote-program", "/no/pai"], "token": login}
    try:
        if spoil == "key":
            laptop.ssh(laptop.sshd.folder / "other")
        elif spoil == "host":
            laptop.know("host2")
        elif spoil == "slurm":
            profile.write_text(f"export PATH={BIN}:/bin OPENPAI_HOME={laptop.remote}/empty\n")
        elif spoil == "programs":
            profile.write_text(f"export PATH={BIN} OPENPAI_HOME={laptop.remote}/empty\n")
        words = ["--type", "slurm", "--ssh", "other", *more.get(spoil, [])]
        ran = laptop.shell.pai("cluster.add", "bad", *words)
    finally:
        profile.write_text(before)
        laptop.ssh()
        laptop.know()
    assert ran.code and reason in ran.err and ran.err.count("\n") == 1, ran
    until(lambda: len(laptop.tunnels()) == 1)
    until(lambda: len(servers(laptop)) == 1)  # what one starts looks like it until it runs its own program
    assert "bad" not in laptop.shell.ok("cluster.list").out


def servers(laptop: Laptop) -> list[int]:
    return [pid for pid, words in laptop.processes().items() if "openpai_tasks.server" in words]


def test_an_expired_login_says_what_to_run(laptop: Laptop) -> None:
    laptop.kill_tunnel()
    laptop.ssh(laptop.sshd.folder / "other")
    try:
        ran = laptop.shell.pai("job.list", "-a", "hpc")
    finally:
        laptop.ssh()
    assert ran.code and "run: pai cluster.update hpc" in ran.err and ran.err.count("\n") == 1, ran
    laptop.shell.ok("cluster.update", "hpc")


def test_replacing_the_cluster_ends_the_tunnel_to_its_old_login_node(laptop: Laptop) -> None:
    laptop.shell.ok("cluster.add", "hpc", "--ssh", "other", "--force")
    until(lambda: len(laptop.tunnels()) == 1)
    (left,) = laptop.tunnels()
    assert "other" in laptop.processes()[left]


def test_deleting_the_cluster_ends_the_tunnel_and_leaves_the_server(laptop: Laptop) -> None:
    server = laptop.server()
    laptop.shell.ok("cluster.delete", "hpc")
    until(lambda: not laptop.tunnels())
    assert laptop.server() == server
