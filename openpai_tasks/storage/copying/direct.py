"""Copy small files through stores that do it themselves, with the folders held open from file to file."""

from __future__ import annotations

import contextlib

from openpai_tasks.errors import PaiError
from openpai_tasks.storage.copying.claims import part_name
from openpai_tasks.storage.copying.progress import Watch
from openpai_tasks.storage.copying.walk import Item
from openpai_tasks.storage.store import CopiesFolders, FolderCopy, Store, base, parent

SMALL = 4 << 20
"""The largest file in bytes; it is held in memory as a whole, by each worker."""


def is_direct(item: Item) -> bool:
    entry, target = item.entry, item.target
    is_plain = entry.size <= SMALL and not entry.is_link
    return is_plain and isinstance(target, CopiesFolders) and target.can_copy_from(item.source)


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
        if folders is None or not folders.copy(item.entry, base(item.path), part_name()):
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
                assert isinstance(item.target, CopiesFolders)
                self._folders = item.target.folder_copy(item.source, between[1], between[3])
        return self._folders
