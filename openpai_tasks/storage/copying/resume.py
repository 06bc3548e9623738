"""Notes of large copies that were interrupted, so that the same copy can continue.

Each copy has a note: a file in the user's home, named after its source and target. The process that copies
holds a lock on it, which the system releases when the process dies. So a part is continued only by the same
copy, and by one process at a time.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from openpai_tasks.errors import ConfigError, PaiError
from openpai_tasks.settings.home import home, make_private
from openpai_tasks.storage.copying.progress import Interrupted
from openpai_tasks.storage.retry import Damaged, can_help
from openpai_tasks.storage.store import Appends, Entry, Store

LARGE = 32 << 20
"""Smaller files start again: checking what has arrived would cost as much."""
FORGOTTEN = 8 * 24 * 3600  # seconds; the parts themselves go after a day, or a week


class ResumeNote:
    """The note of one copy; ``part`` is the path of the unfinished file."""

    def __init__(self, handle: int, path: Path) -> None:
        self._handle, self._path = handle, path
        self.part = os.pread(handle, 1 << 16, 0).decode("utf-8", "surrogateescape")

    def write(self, part: str) -> None:
        data = part.encode("utf-8", "surrogateescape")
        os.pwrite(self._handle, data, 0)
        os.ftruncate(self._handle, len(data))
        self.part = part

    def forget(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)
        self.part = ""


@contextlib.contextmanager
def note_of(source: Store, entry: Entry, target: Store, path: str) -> Iterator[ResumeNote | None]:
    """Return the note of this copy; None if it cannot be resumed, or another process does the same copy."""
    handle = None
    if entry.size >= LARGE and _can_go_on(source, target):
        with contextlib.suppress(OSError, ConfigError):
            handle, file = _held(_name(source, entry, target, path))
    if handle is None:
        yield None
        return
    try:
        yield ResumeNote(handle, file)
    finally:
        os.close(handle)


def is_broken_off(err: BaseException) -> bool:
    """Whether the error leaves an unfinished file that can be resumed."""
    if isinstance(err, Interrupted):
        return True
    return isinstance(err, PaiError) and can_help(err) and not isinstance(err, Damaged)


def is_claimed(part: str) -> bool:
    """Whether a running copy on this machine is writing the unfinished file with this name."""
    with contextlib.suppress(OSError):
        return any(_is_claim(path, part.encode()) for path in (home() / "transfers").iterdir())
    return False


def _is_claim(note: Path, part: bytes) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return note.read_bytes().endswith(b"/" + part) and not _is_free(note)
    return False


def _is_free(note: Path) -> bool:
    """Whether no process holds the lock of the note."""
    with open(note, "rb") as file, contextlib.suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return True
    return False


def is_near(store: Store) -> bool:
    """Whether reading from the store again is cheap."""
    return store.kind == "local"


def _can_go_on(source: Store, target: Store) -> bool:
    """Whether the part that has arrived can be verified without another transfer."""
    if not isinstance(target, Appends):
        return False
    return target.hasher() is not None if is_near(source) else is_near(target) and source.knows_digests


def _name(source: Store, entry: Entry, target: Store, path: str) -> str:
    facts = (source.address(entry.path), entry.size, entry.mtime_ms, entry.version, target.address(path))
    return hashlib.sha256(repr(facts).encode("utf-8", "surrogateescape")).hexdigest()


def _held(name: str) -> tuple[int | None, Path]:
    folder = make_private(home() / "transfers")
    _clear(folder)
    path = folder / name
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(handle).st_ino == os.stat(path).st_ino:  # otherwise its copy has just ended
            os.utime(handle)
            return handle, path
    except OSError:
        os.close(handle)
        raise
    os.close(handle)
    return None, path


def _clear(folder: Path) -> None:
    """Remove old notes of copies that were never resumed."""
    for path in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime > FORGOTTEN and _is_free(path):
                path.unlink()
