"""A laptop whose cluster is Slurm on a login node, with a real sshd there."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import paramiko
import pytest

from openpai_tasks.sdk.ssh.login_node_gateway import LoginNodeGateway
from openpai_tasks.sdk.ssh.target import gateway_to
from openpai_tasks.settings.config import Settings
from openpai_tasks.settings.registry import Cluster
from tests.conftest import Shell, make_shell
from tests.e2e.test_container import SECONDS, page, wait_for
from tests.forkserver import BIN
from tests.ports import free_port
from tests.sdk import sshd_server
from tests.sdk.sshd_server import Sshd
from tests.server.engines.slurm_cluster import slurm_cluster
from tests.server.workshop import until

SMALL = ("--cpu", "1", "--mem", "100", "-a", "hpc")
SSH_CONFIG = """\
Include {folder}/home/ssh/config
Host login other
  HostName 127.0.0.1
  Port {sshd.port}
Host *
  IdentityFile {key}
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known_hosts
"""


@dataclass
class Laptop:
    """A user's machine, and the home of the same user on the login node."""

    shell: Shell
    sshd: Sshd
    folder: Path
    remote: Path

    def ssh(self, key: Path | None = None) -> None:
        """Write the user's configuration of ssh."""
        values = {"sshd": self.sshd, "key": key or self.sshd.folder / "id", "folder": self.folder}
        (self.folder / "config").write_text(SSH_CONFIG.format(**values))

    def know(self, host_key: str = "host") -> None:
        public = (self.sshd.folder / f"{host_key}.pub").read_text()
        (self.folder / "known_hosts").write_text(f"[127.0.0.1]:{self.sshd.port} {public}")

    def calls(self) -> list[str]:
        """The arguments of every ssh that was started."""
        return (self.folder / "calls").read_text().splitlines()

    def server(self) -> int:
        return int(json.loads((self.remote / ".openpai/local/server.json").read_text())["pid"])

    def processes(self) -> dict[int, list[str]]:
        """The words of the processes that use a file of the laptop or of the login node."""
        found = {}
        for place in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):  # others end meanwhile
                words = os.fsdecode(place.read_bytes()).split("\0")
                if any(word.startswith(f"{self.folder}/") for word in words):
                    found[int(place.parent.name)] = words
        return found

    def tunnels(self) -> list[int]:
        """The processes of ssh that keep the connection."""
        config = str(self.folder / "config")
        return [pid for pid, words in self.processes().items() if "-N" in words and config in words]

    def clean(self) -> None:
        """End what tests that failed have left: tunnels, servers and the sshd."""
        self.sshd.stop()
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def kill_tunnel(self) -> None:
        (found,) = self.tunnels()
        os.kill(found, signal.SIGKILL)
        until(lambda: not self.tunnels())


@pytest.fixture(scope="module")
def laptop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laptop]:
    folder = tmp_path_factory.mktemp("laptop")
    remote = folder / "remote"
    remote.mkdir()
    sshd = sshd_server.make(folder / "sshd")
    with slurm_cluster(tmp_path_factory.mktemp("slurm")) as slurm:
        path = f"{BIN}:{slurm.environment['PATH']}"
        conf = slurm.environment["SLURM_CONF"]
        (remote / ".bash_profile").write_text(f"echo Welcome\nexport PATH={path} SLURM_CONF={conf}\n")
        sshd.start(variables=f"HOME={remote} OPENPAI_HOME={remote}/.openpai")
        shell = make_shell(folder)
        found = Laptop(shell, sshd, folder, remote)
        found.ssh()
        found.know()
        (folder / "bin").mkdir()
        wrapper = folder / "bin" / "ssh"
        wrapper.write_text(
            f'#!/bin/sh\necho "$*" >>{folder}/calls\nexec {shutil.which("ssh")} -F {folder}/config "$@"\n'
        )
        wrapper.chmod(0o755)
        shell.environment["PATH"] = f"{folder}/bin:{shell.environment['PATH']}"
        try:
            shell.ok("cluster.add", "hpc", "--type", "slurm", "--ssh", "login")
            yield found
        finally:
            shell.inv("cluster.delete", "hpc")
            shell.inv("cluster.stop", OPENPAI_HOME=f"{remote}/.openpai", SLURM_CONF=conf, PATH=path)
            found.clean()


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
    forward = shell.start("inv", "container.forward", "open", "web", "-a", "hpc")
    try:
        here = int(forward.stderr.readline().split()[1].rpartition(":")[2])
        assert wait_for(lambda: page(here)) == b"hello\n"
    finally:
        forward.send_signal(signal.SIGINT)
        forward.communicate(timeout=SECONDS)
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
    assert len(laptop.tunnels()) == 1


def test_a_server_that_was_killed_is_started_again(laptop: Laptop) -> None:
    before, tunnels = laptop.server(), laptop.tunnels()
    os.kill(before, signal.SIGKILL)
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
        ran = laptop.shell.pai("cluster.add", "bad", "--ssh", "other", *more.get(spoil, []))
    finally:
        profile.write_text(before)
        laptop.ssh()
        laptop.know()
    assert ran.code and reason in ran.err and ran.err.count("\n") == 1, ran
    until(lambda: len(laptop.tunnels()) == 1)
    servers = [words for words in laptop.processes().values() if "openpai_tasks.server" in words]
    assert len(servers) == 1 and "bad" not in laptop.shell.ok("cluster.list").out


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
