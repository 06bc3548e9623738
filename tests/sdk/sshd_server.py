"""Debian's sshd on loopback, as an ordinary image runs it, and ports that do not serve SSH."""

from __future__ import annotations

import atexit
import contextlib
import functools
import getpass
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from openpai_tasks.sdk.ssh.target import Target
from tests.needs import find, require
from tests.ports import free_port
from tests.ssh_keys import make_key

SSHD = find("sshd")
CONFIG = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/{host_key}
PidFile {folder}/sshd.pid
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
AuthorizedKeysFile {folder}/authorized_keys
StrictModes no
UseDNS no
Subsystem sftp internal-sftp
PermitRootLogin prohibit-password
MaxStartups 200
KexAlgorithms curve25519-sha256,curve25519-sha256@libssh.org
SetEnv SHLVL=2 {variables}
"""
# Clients prefer a key exchange that takes both sides a fifth of a second.
# SHLVL keeps bash from reading the .bashrc of the user who runs the tests, and from starting what it starts.


@dataclass
class Sshd:
    """A server; the folder holds the key that opens it (``id``) and one that does not (``other``)."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes] | None = None

    def target(self, tmp_path: Path, **more: object) -> Target:
        given = {
            "host": "127.0.0.1",
            "port": self.port,
            "user": getpass.getuser(),
            "key": self.folder / "id",
            "name": "ann~train-main-0-1",
            "known_hosts": tmp_path / "known_hosts",
            "label": "main-0 of job 'train'",
            "timeout": 30.0,
        }
        return Target(**{**given, **more})  # type: ignore[arg-type]

    def start(self, host_key: str = "host", more: str = "", variables: str = "") -> None:
        config = self.folder / "sshd_config"
        values = {"port": self.port, "folder": self.folder, "host_key": host_key, "variables": variables}
        config.write_text(CONFIG.format(**values) + more)
        self.process = subprocess.Popen([SSHD, "-D", "-f", str(config), "-E", str(self.folder / "log")])
        until_answers(self.port, self.process)

    def stop(self) -> None:
        if self.process:
            self.process.terminate()
            self.process.wait(60)
            self.process = None

    def drop(self) -> None:
        """End every connection, and leave the server as it is."""
        assert self.process is not None
        for child in children(self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, 9)


def make(folder: Path) -> Sshd:
    require("ssh", "sshd")
    folder.mkdir(parents=True, exist_ok=True)
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    for name in ("host", "host2", "id", "other"):
        make_key(folder / name)
    shutil.copy(folder / "id.pub", folder / "authorized_keys")
    return Sshd(folder, free_port())


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Sshd]:
    server = make(folder)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@functools.cache
def shared() -> Sshd:
    """The server that tests share unless they need another one; it ends with them."""
    folder = tempfile.TemporaryDirectory(prefix="sshd-")
    server = make(Path(folder.name))
    server.start("host", "MaxSessions 100")
    atexit.register(folder.cleanup)
    atexit.register(server.stop)
    return server


_refusing: list[socket.socket] = []


def refusing_port() -> int:
    """A port where nothing listens as long as the tests run: it is bound, but nothing listens on it."""
    holder = socket.socket()
    holder.bind(("127.0.0.1", 0))
    _refusing.append(holder)
    return int(holder.getsockname()[1])


def until_answers(port: int, process: subprocess.Popen[bytes]) -> None:
    limit = time.monotonic() + 60
    while time.monotonic() < limit:
        assert process.poll() is None, "sshd has ended"
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.02)
    raise AssertionError(f"nothing listens at {port}")


@contextlib.contextmanager
def port_sending(words: bytes | None) -> Iterator[int]:
    """A port where something else listens: it sends the words, or nothing at all."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        kept: list[socket.socket] = []

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    visitor, _ = listener.accept()
                    kept.append(visitor)
                    if words is not None:
                        visitor.sendall(words)

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]
        for visitor in kept:
            visitor.close()


@contextlib.contextmanager
def unresponsive_port() -> Iterator[int]:
    """A port that neither accepts nor refuses connections, like a host that drops all packets."""
    with socket.socket() as listener, contextlib.ExitStack() as queue:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(8):
            visitor = queue.enter_context(socket.socket())
            visitor.setblocking(False)
            visitor.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


def children(pid: int) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True).stdout
    direct = [int(word) for word in found.split()]
    return direct + [below for child in direct for below in children(child)]
