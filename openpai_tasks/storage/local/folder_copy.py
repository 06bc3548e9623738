"""Copy small files into an open folder, with few system calls for each."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable

from openpai_tasks.errors import PaiError
from openpai_tasks.storage.store import Entry, ReadsSmallFiles

READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW


class LocalFolderCopy:
    """Copies files to an open folder, from another one or from a store that reads small files itself.

    Names are never followed to another folder.
    """

    def __init__(self, source: int | ReadsSmallFiles, target: int, allowed: Callable[[int], int]) -> None:
        """``allowed`` removes from a mode what new files may not have."""
        self._source, self._target, self._allowed = source, target, allowed

    def copy(self, entry: Entry, name: str, part: str, is_new: bool = False) -> bool:
        """Copy a small file, verified and complete or not at all; ``part`` is its name until then.

        ``is_new``: no file of this name is replaced. Return False, and leave nothing, if the source is not a
        regular file, changes, or fails: then the general transfer copies it and reports errors.
        """
        try:
            source = self._source
            content = _read(source, entry) if isinstance(source, int) else source.read_small(entry.path)
            mode = 0o666 if entry.mode is None else entry.mode
            handle = os.open(part, NEW, mode if is_new else 0o600, dir_fd=self._target)
            try:
                try:
                    _require(os.write(handle, content) == len(content))
                    os.utime(handle, ns=(entry.mtime_ms * 1_000_000, entry.mtime_ms * 1_000_000))
                    if not is_new:
                        os.fchmod(handle, self._replaced_mode(name, mode))
                finally:
                    os.close(handle)
                os.rename(part, name, src_dir_fd=self._target, dst_dir_fd=self._target)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(part, dir_fd=self._target)
                raise
        except (OSError, PaiError):
            return False
        return True

    def close(self) -> None:
        if isinstance(self._source, int):
            os.close(self._source)
        os.close(self._target)

    def _replaced_mode(self, name: str, mode: int) -> int:
        """Return the mode of the file that is replaced, or else the given one as far as it is allowed."""
        try:
            there = os.stat(name, dir_fd=self._target, follow_symlinks=False).st_mode
        except FileNotFoundError:
            there = stat.S_IFLNK
        return self._allowed(mode) if stat.S_ISLNK(there) else there & 0o777


def _read(folder: int, entry: Entry) -> bytes:
    """Return the content of a regular file that does not change meanwhile."""
    handle = os.open(entry.name, READ, dir_fd=folder)
    try:
        before = os.fstat(handle)
        content = os.read(handle, entry.size + 1)
    finally:
        os.close(handle)
    after = os.stat(entry.name, dir_fd=folder, follow_symlinks=False)
    _require(stat.S_ISREG(before.st_mode) and len(content) == before.st_size == entry.size)
    _require(before.st_mtime_ns // 1_000_000 == entry.mtime_ms and _version(before) == _version(after))
    return content


def _version(facts: os.stat_result) -> tuple[int, ...]:
    return facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns


def _require(is_fine: bool) -> None:
    if not is_fine:
        raise OSError(errno.EAGAIN, "the file changed, or was not written completely")
