"""Copy small files into folders of this machine, with few system calls for each.

The sources are other files of this machine, and those of stores that read small files themselves.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat

from openpai_tasks.errors import PaiError
from openpai_tasks.storage.copying.claims import keep_claim, part_name
from openpai_tasks.storage.copying.progress import Watch
from openpai_tasks.storage.copying.walk import Item
from openpai_tasks.storage.local.store import LocalStore, is_plain
from openpai_tasks.storage.store import Entry, ReadsSmallFiles, Store, base, parent

SMALL = 4 << 20
"""The largest file in bytes; it is held in memory as a whole, by each worker."""
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW


def is_direct(item: Item) -> bool:
    entry, source, target = item.entry, item.source, item.target
    is_possible = is_plain(target) and not target.read_only
    is_known = is_plain(source) or isinstance(source, ReadsSmallFiles)
    return is_possible and is_known and entry.size <= SMALL and not entry.is_link


class DirectCopies:
    """The direct copies of one worker; keeps the folders of its last file open."""

    def __init__(self) -> None:
        self._between: tuple[Store, str, Store, str] | None = None
        self._folders: FolderCopy | None = None

    def copy(self, item: Item, watch: Watch) -> bool:
        """Copy the file; return False, with nothing done, if it has to be copied in another way."""
        if not is_direct(item):
            return False
        folders = self._opened(item)
        if folders is None or not folders.copy(item.entry, base(item.path), item.there is None):
            return False
        watch.moved(item.entry.size)
        return True

    def close(self) -> None:
        if self._folders is not None:
            self._folders.close()
        self._folders = None

    def _opened(self, item: Item) -> FolderCopy | None:
        between = (item.source, parent(item.entry.path), item.target, parent(item.path))
        if between != self._between:
            self.close()
            self._between = between
            with contextlib.suppress(PaiError):  # the other way reports the reason for each file
                self._folders = FolderCopy(*between)
        return self._folders


class FolderCopy:
    """Copies files of one folder into another, both open; names are never followed to another folder."""

    def __init__(self, source: Store, folder: str, target: Store, target_folder: str) -> None:
        assert isinstance(target, LocalStore)
        self._allowed, self._part = target.allowed, part_name()
        self._target = target.open_folder(target_folder)
        try:
            self._source = source.open_folder(folder) if isinstance(source, LocalStore) else source
        except BaseException:
            os.close(self._target)
            raise

    def copy(self, entry: Entry, name: str, is_new: bool = False) -> bool:
        """Copy a small file, verified and complete or not at all; ``is_new``: it replaces no other file.

        Return False, and leave nothing, if the source is not a regular file, changes, or fails: then the
        general transfer copies it and reports errors.
        """
        try:
            content = self._read(entry)
            mode = 0o666 if entry.mode is None else entry.mode
            handle = os.open(self._part, NEW, mode if is_new else 0o600, dir_fd=self._target)
            try:
                try:
                    _require(os.write(handle, content) == len(content))
                    os.utime(handle, ns=(entry.mtime_ms * 1_000_000, entry.mtime_ms * 1_000_000))
                    if not is_new:
                        os.fchmod(handle, self._replaced_mode(name, mode))
                finally:
                    os.close(handle)
                os.rename(self._part, name, src_dir_fd=self._target, dst_dir_fd=self._target)
            except BaseException:
                self._remove_part()
                raise
        except (OSError, PaiError):
            return False
        return True

    def _remove_part(self) -> None:
        """Remove the part of a failed copy; if that fails, too, the next copy does it."""
        try:
            os.unlink(self._part, dir_fd=self._target)
        except FileNotFoundError:
            pass
        except OSError:
            keep_claim()

    def close(self) -> None:
        if isinstance(self._source, int):
            os.close(self._source)
        os.close(self._target)

    def _read(self, entry: Entry) -> bytes:
        """Return the content of a regular file that does not change meanwhile."""
        source = self._source
        if isinstance(source, ReadsSmallFiles):
            return source.read_small(entry.path)
        assert isinstance(source, int)
        handle = os.open(entry.name, READ, dir_fd=source)
        try:
            before = os.fstat(handle)
            content = os.read(handle, entry.size + 1)
        finally:
            os.close(handle)
        after = os.stat(entry.name, dir_fd=source, follow_symlinks=False)
        _require(stat.S_ISREG(before.st_mode) and len(content) == before.st_size == entry.size)
        _require(before.st_mtime_ns // 1_000_000 == entry.mtime_ms and _version(before) == _version(after))
        return content

    def _replaced_mode(self, name: str, mode: int) -> int:
        """Return the mode of the file that is replaced, or else the given one as far as it is allowed."""
        try:
            there = os.stat(name, dir_fd=self._target, follow_symlinks=False).st_mode
        except FileNotFoundError:
            there = stat.S_IFLNK
        return self._allowed(mode) if stat.S_ISLNK(there) else there & 0o777


def _version(facts: os.stat_result) -> tuple[int, ...]:
    return facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns


def _require(is_fine: bool) -> None:
    if not is_fine:
        raise OSError(errno.EAGAIN, "the file changed, or was not written completely")
