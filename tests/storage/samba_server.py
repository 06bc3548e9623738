"""A real Samba on loopback: one server process, a user and a few shares; ended with the tests."""

from __future__ import annotations

import contextlib
import ctypes
import getpass
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests import needs
from tests.ports import free_ports

USER = getpass.getuser()  # Samba's users are the system's
PASSWORD = "not-to-be-seen-anywhere"
START = 90.0
SHARES = """
[data]
path = {folder}/data
read only = no
[fixed]
path = {folder}/fixed
read only = yes
[exact]
path = {folder}/exact
read only = no
case sensitive = yes
"""
GLOBAL = """
[global]
smb ports = {port}
interfaces = 127.0.0.1/8
bind interfaces only = yes
server role = standalone server
workgroup = LAB
map to guest = never
disable netbios = yes
load printers = no
printing = bsd
log level = 1
log file = {folder}/log
lock directory = {folder}/run
state directory = {folder}/run
cache directory = {folder}/run
private dir = {folder}/run
pid directory = {folder}/run
ncalrpc dir = {folder}/run/ncalrpc
{options}
"""


def missing() -> str:
    """Why Samba cannot be started here; empty when it can."""
    return needs.missing("smbd", "pdbedit")


class Samba:
    """smbd and a folder; ``stop`` ends and removes them. ``data`` is the folder of the share ``data``."""

    def __init__(self, options: str = "") -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="samba-"))
        self.data, self.fixed = self.folder / "data", self.folder / "fixed"
        for name in ("data", "fixed", "exact", "run"):
            (self.folder / name).mkdir(mode=0o700)
        (self.port,) = free_ports(1)
        self._conf = self.folder / "smb.conf"
        facts = {"folder": self.folder, "port": self.port, "options": options}
        self._conf.write_text(GLOBAL.format(**facts) + SHARES.format(**facts))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Samba:
        """Call it from the main thread: the process ends with the thread that it was started by."""
        try:
            if not (self.folder / "run" / "passdb.tdb").exists():
                self._add_user()
            self._launch()
        except BaseException:
            self.stop()
            raise
        return self

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """Kill the server and the process of each connection, as a power failure would."""
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # its own group: it was started so
        self._process.wait()
        self._process = None

    def stop(self) -> None:
        if self._process is not None:
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _add_user(self) -> None:
        subprocess.run(
            [needs.find("pdbedit"), "-s", str(self._conf), "-a", "-t", "-u", USER],
            input=f"{PASSWORD}\n{PASSWORD}\n".encode(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=True,
        )

    def _launch(self) -> None:
        with open(self.folder / "out", "ab") as log:
            self._process = subprocess.Popen(
                [needs.find("smbd"), "--foreground", "--no-process-group", "-s", str(self._conf)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_end_with_us if sys.platform == "linux" else None,
            )
        end = time.monotonic() + START
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"smbd does not come up: {(self.folder / 'out').read_text()[-2000:]}")
            time.sleep(0.02)

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False


_shared: list[Samba] = []


def shared() -> Samba:
    """The server that all tests of a session share, started on first use."""
    if not _shared:
        _shared.append(Samba().start())
    return _shared[0]


def stop_shared() -> None:
    while _shared:
        _shared.pop().stop()


def _end_with_us() -> None:
    """Have the server terminated when the tests are killed."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)
