"""Copy small files between two open folders, with few system calls for each."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable

from openpai_tasks.storage.store import Entry

READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW


class LocalFolderCopy:
    """Copies files from one open folder to another; names are never followed to another folder."""

    def __init__(self, source: int, target: int, allowed: Callable[[int], int]) -> None:
        """``allowed`` removes from a mode what new files may not have."""
        self._source, self._target, self._allowed = source, target, allowed

    def copy(self, entry: Entry, name: str, part: str) -> bool:
        try:
            content = self._read(entry)
            handle = os.open(part, NEW, 0o600, dir_fd=self._target)
            try:
                try:
                    _require(os.write(handle, content) == len(content))
                    self._set_attributes(handle, entry, name)
                finally:
                    os.close(handle)
                os.rename(part, name, src_dir_fd=self._target, dst_dir_fd=self._target)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(part, dir_fd=self._target)
                raise
        except OSError:
            return False
        return True

    def close(self) -> None:
        os.close(self._source)
        os.close(self._target)

    def _read(self, entry: Entry) -> bytes:
        """Return the content of a regular file that does not change meanwhile."""
        handle = os.open(entry.name, READ, dir_fd=self._source)
        try:
            before = os.fstat(handle)
            content = os.read(handle, entry.size + 1)
        finally:
            os.close(handle)
        after = os.stat(entry.name, dir_fd=self._source, follow_symlinks=False)
        _require(stat.S_ISREG(before.st_mode) and len(content) == before.st_size == entry.size)
        _require(before.st_mtime_ns // 1_000_000 == entry.mtime_ms and _version(before) == _version(after))
        return content

    def _set_attributes(self, handle: int, entry: Entry, name: str) -> None:
        """Give the file its time, and the mode of the file it replaces or of its source."""
        moment = entry.mtime_ms * 1_000_000
        os.utime(handle, ns=(moment, moment))
        os.fchmod(handle, self._mode(entry, name))

    def _mode(self, entry: Entry, name: str) -> int:
        try:
            there = os.stat(name, dir_fd=self._target, follow_symlinks=False).st_mode
        except FileNotFoundError:
            there = stat.S_IFLNK
        if not stat.S_ISLNK(there):
            return there & 0o777
        return self._allowed(0o666 if entry.mode is None else entry.mode)


def _version(facts: os.stat_result) -> tuple[int, ...]:
    return facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns


def _require(is_fine: bool) -> None:
    if not is_fine:
        raise OSError(errno.EAGAIN, "the file changed, or was not written completely")
