"""Jobs on another machine: our server behind a real sshd, with its own home folder."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from tests.e2e.laptop import SSH_CONFIG
from tests.endurance.sites.base import Site
from tests.endurance.sites.slurm import Slurm
from tests.endurance.world import LIMIT, PAI, World
from tests.sdk import sshd_server
from tests.sdk.sshd_server import Sshd

SETTLE = 20.0  # seconds until the last session has ended


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
        remote = {name: value for name, value in world.environment.items() if name in ("PATH", "SLURM_CONF")}
        remote["PATH"] = f"{Path(PAI).parent}:{remote['PATH']}"
        place = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="sshd-")))
        home, folder = world.folder / "remote", world.folder
        home.mkdir()
        (home / ".bash_profile").write_text("".join(f"export {name}={remote[name]}\n" for name in remote))
        self.sshd = sshd_server.make(place)
        self._stack.callback(self.sshd.stop)
        self.start_sshd(world)
        public = (place / "host.pub").read_text()
        (folder / "known_hosts").write_text(f"[127.0.0.1]:{self.sshd.port} {public}")
        (folder / "config").write_text(SSH_CONFIG.format(sshd=self.sshd, key=place / "id", folder=folder))
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

    def start_sshd(self, world: World) -> None:
        home = world.folder / "remote"
        more = "MaxSessions 100\n"
        self.sshd.start(more=more, variables=f"HOME={home} OPENPAI_HOME={home}/.openpai")

    def sessions(self) -> list[int]:
        """Return the processes of sshd for its connections."""
        return sshd_server.children(self.sshd.process.pid) if self.sshd.process else []

    def stop_cluster(self, world: World) -> str:
        """Log in to the machine and stop its server there; then end the tunnel."""
        words = [str(world.folder / "bin" / "ssh"), "login", "bash -lc 'pai cluster.stop'"]
        stopped = subprocess.run(
            words, env=world.environment, timeout=LIMIT, capture_output=True, text=True, check=False
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

    def leftovers(self, world: World) -> Iterator[str]:
        yield from Slurm.leftovers(self, world)
        yield from Ssh.leftovers(self, world)
