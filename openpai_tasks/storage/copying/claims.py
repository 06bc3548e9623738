"""Which copies are running, so that a part in use can be distinguished from a leftover.

While a process copies, it holds the lock of a file in the user's home, and the names of its parts end with
the name of that file. The system releases the lock when the process dies, so what a killed copy left is known
at once. Parts of other machines and other users have no such file here; only their age shows whether they are
in use.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from openpai_tasks.errors import ConfigError
from openpai_tasks.settings.home import home, make_private
from openpai_tasks.storage.parts import PART, PART_NAME

FORGOTTEN = 8 * 24 * 3600  # seconds; the parts themselves go after a day, or a week


class _Claim:
    """The claim of this process, which all its copies share."""

    def __init__(self) -> None:
        self._handle: int | None = None
        self.start_over()

    def start_over(self) -> None:
        """Begin without a claim: that of the process that this one was forked from stays there."""
        if self._handle is not None:
            os.close(self._handle)
        self._lock = threading.Lock()
        self._users = 0
        self._name: str | None = None  # empty if the home cannot be written
        self._handle, self._is_kept = None, False

    @contextlib.contextmanager
    def claiming(self) -> Iterator[None]:
        """Claim the parts that are begun in this block."""
        with self._lock:
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users = max(0, self._users - 1)  # 0 already in a process that was forked meanwhile
                if not self._users:
                    self._release()

    def keep_claim(self) -> None:
        """Let the claim outlast its copy, which may leave parts."""
        self._is_kept = True

    def name(self) -> str:
        """Return the name of the claim; empty outside of ``claiming``."""
        with self._lock:
            if self._users and self._name is None:
                self._name = ""
                with contextlib.suppress(OSError, ConfigError):
                    self._begin()
            return self._name or ""

    def _begin(self) -> None:
        name = os.urandom(4).hex()
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._handle = os.open(claims_folder() / name, flags, 0o600)
        fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._name = name

    def _release(self) -> None:
        if self._handle is not None:
            if self._name and not self._is_kept:
                with contextlib.suppress(OSError, ConfigError):
                    os.unlink(home() / "transfers" / self._name)
            os.close(self._handle)
        self._name, self._handle, self._is_kept = None, None, False


_claim = _Claim()
os.register_at_fork(after_in_child=_claim.start_over)
claiming, keep_claim = _claim.claiming, _claim.keep_claim


def part_name(claimed: bool = True) -> str:
    """Return a new name; one that is not claimed counts as in use until its age shows that it is not."""
    run = _claim.name() if claimed else ""
    return f"{PART}{int(time.time()):08x}{os.urandom(4).hex()}{run}"


def is_running(part: str) -> bool | None:
    """Whether the copy that began the part still runs; None if it is not known here."""
    named = PART_NAME.fullmatch(part)
    if named and named[2]:
        with contextlib.suppress(OSError, ConfigError):
            return not is_free(home() / "transfers" / named[2])
    return None


def claims_folder() -> Path:
    """Return the folder, made if it is missing and without files that have been forgotten."""
    folder = make_private(home() / "transfers")
    for path in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime > FORGOTTEN and is_free(path):
                path.unlink()
    return folder


def is_free(path: Path) -> bool:
    """Whether no process holds the lock of the file."""
    with open(path, "rb") as file, contextlib.suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return True
    return False
