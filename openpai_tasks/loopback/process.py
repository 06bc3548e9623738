"""The process of a server, identified by the lock that it holds, so that it can be ended safely."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from openpai_tasks.errors import ConfigError
from openpai_tasks.loopback.lock import LOCK, STATUS, is_held

PAUSE = 0.02
ENDING_SECONDS = 1.0


class ServerEnded(ConfigError):
    """Raised if a server has just ended by itself."""


class ServerProcess:
    """A process that signals are sent to by its handle: its pid may belong to another process by now."""

    def __init__(self, pid: int, handle: int | None) -> None:
        self.pid = pid
        self._handle = handle

    def signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            if self._handle is None:
                os.kill(self.pid, number)
            else:
                signal.pidfd_send_signal(self._handle, number)

    def ends_within(self, seconds: float) -> bool:
        if self._handle is not None:
            poller = select.poll()
            poller.register(self._handle, select.POLLIN)
            ended = bool(poller.poll(seconds * 1000))
        else:
            limit = time.monotonic() + seconds
            while not (ended := not _is_alive(self.pid)) and time.monotonic() < limit:
                time.sleep(PAUSE)
        if ended:
            _reap(self.pid)
        return ended


@contextmanager
def found(folder: Path, program: str) -> Iterator[ServerProcess]:
    """Yield the process of this module that serves the folder; raise unless it is certain which one it is."""
    pid = _noted_pid(folder)
    handle = _open(pid)
    try:
        # Only looked at once the handle is open: from here on the number cannot become another's.
        if not (pid > 0 and is_held(folder) and _serves(pid, folder, program)):
            lock = folder / LOCK
            if _is_released(folder):
                raise ServerEnded(f"the server in {folder} has just ended by itself")
            raise ConfigError(
                f"cannot find out which process uses {lock}: no process was ended (`lsof {lock}` shows it)"
            )
        yield ServerProcess(pid, handle)
    finally:
        if handle is not None:
            os.close(handle)


def terminate(folder: Path, program: str, seconds: float) -> bool:
    """End the server of this module in the folder, if it runs; return whether it has ended in time."""
    if not is_held(folder):
        return True
    try:
        with found(folder, program) as server:
            server.signal(signal.SIGTERM)
            return server.ends_within(seconds)
    except ServerEnded:
        return True


def _is_released(folder: Path) -> bool:
    """Whether no server holds the lock of the folder; an exiting one may hold it a moment longer."""
    limit = time.monotonic() + ENDING_SECONDS
    while is_held(folder) and time.monotonic() < limit:
        time.sleep(PAUSE)
    return not is_held(folder)


def last_line(log: Path, start: int = 0) -> str:
    """Return the last line that a server has written to its log after ``start``, or why there is none."""
    with log.open("rb") as file:
        file.seek(start)
        lines = file.read().decode("utf-8", "replace").split("\n")
    if last := next((line.strip() for line in reversed(lines) if line.strip()), ""):
        return last.removeprefix("error: ")
    try:
        with log.open("ab", buffering=0) as file:
            file.write(b"\n")
    except OSError as err:  # the disk may be full
        return str(err.strerror)
    return "it printed nothing"


def _noted_pid(folder: Path) -> int:
    """Return the pid in the lock file; earlier releases wrote it to another file only."""
    with suppress(OSError, ValueError):
        return int((folder / LOCK).read_text(encoding="ascii"))
    with suppress(OSError, ValueError, KeyError, TypeError):
        return int(json.loads((folder / STATUS).read_text(encoding="utf-8"))["pid"])
    return 0


def _open(pid: int) -> int | None:
    """Return a handle of the process, on systems that have them."""
    if pid > 0 and hasattr(os, "pidfd_open"):
        with suppress(OSError):
            return os.pidfd_open(pid)
    return None


def _serves(pid: int, folder: Path, program: str) -> bool:
    """Whether the process is a server, and of this folder."""
    try:
        words = [os.fsdecode(word) for word in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")]
        place = os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        line = _listed(pid)
        return program in line and str(folder) in line
    homes = [words[at + 1] for at, word in enumerate(words[:-1]) if word == "--home"]
    homes += [word.partition("=")[2] for word in words if word.startswith("--home=")]
    here = os.path.realpath(folder)
    return program in words and any(os.path.realpath(os.path.join(place, home)) == here for home in homes)


def _listed(pid: int) -> str:
    """Return its command from the list of processes, for systems without /proc."""
    argv = ["ps", "-ww", "-o", "command=", "-p", str(pid)]
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(argv, capture_output=True, errors="replace", timeout=20, check=True)
        return done.stdout
    return ""


def _is_alive(pid: int) -> bool:
    _reap(pid)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _reap(pid: int) -> None:
    """Reap the process if it is a child of this one: it would stay a zombie."""
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
