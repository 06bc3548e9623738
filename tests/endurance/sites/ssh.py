"""Jobs on another machine: our server behind a real sshd, with its own home folder."""

from __future__ import annotations

import dataclasses
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from tests.e2e.laptop import SSH_CONFIG
from tests.endurance.sites.base import Site
from tests.endurance.sites.slurm import Slurm
from tests.endurance.world import PAI, World, send_signal
from tests.sdk import sshd_server
from tests.sdk.sshd_server import Sshd

SETTLE = 90.0  # seconds until the last session has ended; a silent network holds it for a minute


class Ssh(Site):
    kind, alias = "ssh", "far"
    fault_pause = 3.0
    engine = "process"
    sshd: Sshd

    def __init__(self) -> None:
        self._stack = ExitStack()

    def missing(self) -> str:
        return "" if shutil.which("ssh") and sshd_server.SSHD else "ssh or sshd is not installed"

    def server_folder(self, world: World) -> Path:
        return world.folder / "remote" / ".openpai" / "local"

    def start(self, world: World) -> None:
        """Start the other machine, and add it as a cluster."""
        world.environment["INVOKE_OPENPAI_LOCAL_ENGINE"] = self.engine
        names = {"PATH", "SLURM_CONF", *world.preloaded}
        remote = {name: value for name, value in world.environment.items() if name in names}
        remote["PATH"] = f"{Path(PAI).parent}:{remote['PATH']}"
        place = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="sshd-")))
        home, folder = world.folder / "remote", world.folder
        home.mkdir(exist_ok=True)
        lines = (f"export {name}={shlex.quote(value)}\n" for name, value in remote.items())
        (home / ".bash_profile").write_text("".join(lines))
        self.sshd = sshd_server.make(place)
        self._stack.callback(self.sshd.stop)
        self.start_sshd(world)
        self.use_port(world, self.sshd.port)
        wrapper = folder / "bin" / "ssh"
        wrapper.parent.mkdir(exist_ok=True)
        wrapper.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {folder}/config "$@"\n')
        wrapper.chmod(0o755)
        world.environment["PATH"] = f"{wrapper.parent}:{world.environment['PATH']}"
        for words in (
            ("cluster.add", self.alias, "--ssh", "login", "--engine", self.engine),
            ("cluster.select", self.alias),
        ):
            done = world.pai(*words)
            assert done.returncode == 0, done.stderr

    def use_port(self, world: World, port: int) -> None:
        """Let clients connect to this port, and end their connections to others."""
        place, folder = self.sshd.folder, world.folder
        public = (place / "host.pub").read_text()
        values = {"sshd": dataclasses.replace(self.sshd, port=port), "key": place / "id", "folder": folder}
        (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {public}")
        (folder / "config").write_text(SSH_CONFIG.format(**values))
        for pid in world.pids(" -f -N "):
            send_signal(pid, signal.SIGTERM)

    def start_sshd(self, world: World) -> None:
        home = world.folder / "remote"
        more = "MaxSessions 100\n"
        self.sshd.start(more=more, variables=f"HOME={home} OPENPAI_HOME={home}/.openpai")

    def daemons_and_tasks(self, world: World) -> Iterator[int]:
        if self.sshd.process:
            yield self.sshd.process.pid
        yield from self.sessions()

    def restart_daemons(self, world: World) -> None:
        self.sshd.stop()
        self.start_sshd(world)

    def sessions(self) -> list[int]:
        """Return the processes of sshd for its connections."""
        return sshd_server.children(self.sshd.process.pid) if self.sshd.process else []

    def stop_cluster(self, world: World) -> str:
        """Log in to the machine and stop its server there; then end the tunnel."""
        words = [str(world.folder / "bin" / "ssh"), "login", "bash -lc 'pai cluster.stop'"]
        stopped = subprocess.run(
            words, env=world.environment, timeout=self.limit, capture_output=True, text=True, check=False
        )
        return stopped.stderr + world.pai("cluster.delete", self.alias).stderr

    def stop(self, world: World) -> None:
        self._stack.close()

    def leftovers(self, world: World) -> Iterator[str]:
        deadline = time.monotonic() + SETTLE
        while (found := self.sessions()) and time.monotonic() < deadline:
            time.sleep(0.1)
        yield from (f"session {pid} of sshd" for pid in found)
        yield from (f"folder {path}" for path in (world.home / "ssh").glob("*") if path.is_dir())


class SshSlurm(Slurm, Ssh):
    """Slurm on the other machine, as on a login node."""

    kind, alias, engine = "ssh-slurm", "hpc", "slurm"
    server_folder, stop_cluster = Ssh.server_folder, Ssh.stop_cluster

    def missing(self) -> str:
        return Slurm.missing(self) or Ssh.missing(self)

    def start(self, world: World) -> None:
        Slurm.start(self, world)
        Ssh.start(self, world)

    def daemons_and_tasks(self, world: World) -> Iterator[int]:
        yield from Slurm.daemons_and_tasks(self, world)
        yield from Ssh.daemons_and_tasks(self, world)

    def restart_daemons(self, world: World) -> None:
        Slurm.restart_daemons(self, world)
        Ssh.restart_daemons(self, world)

    def leftovers(self, world: World) -> Iterator[str]:
        yield from Slurm.leftovers(self, world)
        yield from Ssh.leftovers(self, world)
