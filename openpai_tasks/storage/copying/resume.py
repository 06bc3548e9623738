"""Notes of large copies that were interrupted, so that the same copy can continue.

Each has a note: a file in the user's home, named after its target, that says what is copied to which part.
The process that copies holds a lock on it, which the system releases when the process dies. So a part is
continued only by the same copy, and by one process at a time.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from openpai_tasks.errors import ConfigError, PaiError
from openpai_tasks.settings.home import home
from openpai_tasks.storage.copying.claims import claims_folder, is_free
from openpai_tasks.storage.copying.progress import Interrupted
from openpai_tasks.storage.retry import CorruptData, is_temporary
from openpai_tasks.storage.store import Appends, Entry, Store

LARGE = 32 << 20
"""Smaller files start again: checking what has arrived would cost as much."""


class ResumeNote:
    """The note of one copy; ``part`` is the path of the unfinished file."""

    def __init__(self, handle: int, path: Path, facts: str) -> None:
        self._handle, self._path, self._facts = handle, path, facts
        noted, _, part = os.pread(handle, 1 << 16, 0).decode("utf-8", "surrogateescape").partition("\n")
        self.part, self.outdated = (part, "") if noted == facts else ("", part)
        """``outdated`` is the part of another source, or of this one before it changed."""

    def write(self, part: str) -> None:
        data = f"{self._facts}\n{part}".encode("utf-8", "surrogateescape")
        os.pwrite(self._handle, data, 0)
        os.ftruncate(self._handle, len(data))
        self.part = part

    def forget(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)
        self.part = ""


@contextlib.contextmanager
def open_note(source: Store, entry: Entry, target: Store, path: str) -> Iterator[ResumeNote | None]:
    """Return the note of this copy; None if it cannot be resumed, or another process does the same copy."""
    handle = None
    if entry.size >= LARGE and _can_resume(source, target):
        with contextlib.suppress(OSError, ConfigError):
            handle, file = _lock_note(_hash(target.address(path)))
    if handle is None:
        yield None
        return
    try:
        facts = (source.address(entry.path), entry.size, entry.mtime_ms, entry.version)
        note = ResumeNote(handle, file, _hash(facts))
        if note.outdated:
            with contextlib.suppress(PaiError):
                target.remove(note.outdated)
        yield note
    finally:
        os.close(handle)


def is_broken_off(err: BaseException) -> bool:
    """Whether the error leaves an unfinished file that can be resumed."""
    if isinstance(err, Interrupted):
        return True
    return isinstance(err, PaiError) and is_temporary(err) and not isinstance(err, CorruptData)


def is_resumed(part: str) -> bool | None:
    """Whether a running copy continues the part of this name; None if no copy could."""
    with contextlib.suppress(OSError, ConfigError):
        for note in (home() / "transfers").iterdir():
            with contextlib.suppress(FileNotFoundError):
                if note.read_bytes().endswith(b"/" + part.encode()):
                    return not is_free(note)
    return None


def is_local(store: Store) -> bool:
    """Whether reading from the store again is cheap."""
    return store.kind == "local"


def _can_resume(source: Store, target: Store) -> bool:
    """Whether the part that has arrived can be verified without another transfer."""
    if not isinstance(target, Appends):
        return False
    return target.hasher() is not None if is_local(source) else is_local(target) and source.knows_digests


def _hash(facts: object) -> str:
    return hashlib.sha256(repr(facts).encode("utf-8", "surrogateescape")).hexdigest()


def _lock_note(name: str) -> tuple[int | None, Path]:
    path = claims_folder() / name
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
