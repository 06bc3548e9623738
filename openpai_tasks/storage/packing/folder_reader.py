"""Read small files on this machine, relative to their open folder."""

from __future__ import annotations

import os
import stat
from types import TracebackType

from openpai_tasks.errors import PaiError
from openpai_tasks.storage.packing.members import PackMember
from openpai_tasks.storage.store import PIECE, OpensFiles, Store

FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class FolderReader:
    """Keeps the folder of the last file open, as the next one is mostly beside it."""

    def __init__(self, store: Store) -> None:
        self._store = store if isinstance(store, OpensFiles) else None
        self._folder, self._handle = "", -1

    def __enter__(self) -> FolderReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, err: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def read(self, member: PackMember) -> bytes | None:
        """Return the content of a regular file as it was listed; None if it has to be read in another way.

        Files that claim to be empty may have content.
        """
        size = member.size
        if self._store is None or not 0 < size <= PIECE:
            return None
        folder, _, name = member.path.rpartition("/")
        try:
            if folder != self._folder or self._handle < 0:
                self._close()
                self._folder, self._handle = folder, self._store.open_folder(folder or "/")
            handle = os.open(name, FILE, dir_fd=self._handle)
            try:
                content = os.read(handle, size)
                facts = os.fstat(handle)  # after the last byte was read, so that no change is missed
            finally:
                os.close(handle)
        except (OSError, PaiError):
            return None
        is_same = len(content) == facts.st_size == size
        is_same = is_same and facts.st_mtime_ns // 1_000_000 == member.mtime_ms
        return content if is_same and stat.S_ISREG(facts.st_mode) and facts.st_nlink > 0 else None

    def _close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
