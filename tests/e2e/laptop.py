"""A laptop whose cluster is another machine, with a real sshd there."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import Shell, make_shell
from tests.e2e.test_container import SECONDS, page
from tests.processes import kill
from tests.sdk import sshd_server
from tests.sdk.sshd_server import Sshd
from tests.server.workshop import until

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
    """A user's machine, and the home of the same user on the other one."""

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
        """The words of the processes that use a file of the laptop or of the other machine."""
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

    def check_forward(self, job: str, alias: str) -> None:
        """Fetch the page that a job serves at its port ``web``, through a forwarded one."""
        forward = self.shell.start("inv", "container.forward", job, "web", "-a", alias)
        try:
            here = int(forward.stderr.readline().split()[1].rpartition(":")[2])
            assert until(lambda: page(here)) == b"hello\n"
        finally:
            forward.send_signal(signal.SIGINT)
            forward.communicate(timeout=SECONDS)

    def kill_tunnel(self) -> None:
        """Kill the process that keeps the connection; a command that runs may start another at once."""
        [pid] = until(lambda: len(found := self.tunnels()) == 1 and found)
        kill(pid)


@contextlib.contextmanager
def laptop_with(folder: Path, profile: str) -> Iterator[Laptop]:
    """Yield a laptop that reaches the machine by the names ``login`` and ``other``."""
    remote = folder / "remote"
    remote.mkdir()
    sshd = sshd_server.make(folder / "sshd")
    (remote / ".bash_profile").write_text(profile)
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
        yield found
    finally:
        found.clean()
