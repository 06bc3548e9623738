"""Copy small files to this machine directly, with the folders held open from file to file."""

from __future__ import annotations

import contextlib

from openpai_tasks.errors import PaiError
from openpai_tasks.storage.copying.claims import part_name
from openpai_tasks.storage.copying.progress import Watch
from openpai_tasks.storage.copying.walk import Item
from openpai_tasks.storage.local.folder_copy import LocalFolderCopy
from openpai_tasks.storage.local.store import LocalStore
from openpai_tasks.storage.store import Store, base, parent

SMALL = 4 << 20
"""The largest file in bytes; it is held in memory as a whole, by each worker."""


def is_direct(item: Item) -> bool:
    entry, target = item.entry, item.target
    is_plain = entry.size <= SMALL and not entry.is_link
    return is_plain and isinstance(target, LocalStore) and target.can_copy_from(item.source)


class DirectCopies:
    """The direct copies of one worker; keeps the folders of its last file open."""

    def __init__(self) -> None:
        self._between: tuple[Store, str, Store, str] | None = None
        self._folders: LocalFolderCopy | None = None
        self._part = ""

    def copy(self, item: Item, watch: Watch) -> bool:
        """Copy the file; return False, with nothing done, if it has to be copied in another way."""
        if not is_direct(item):
            return False
        folders = self._opened(item)
        name, is_new = base(item.path), item.there is None
        if folders is None or not folders.copy(item.entry, name, self._part, is_new):
            return False
        watch.moved(item.entry.size)
        return True

    def close(self) -> None:
        if self._folders is not None:
            self._folders.close()
        self._folders = None

    def _opened(self, item: Item) -> LocalFolderCopy | None:
        between = (item.source, parent(item.entry.path), item.target, parent(item.path))
        if between != self._between:
            self.close()
            self._between, self._part = between, part_name()
            with contextlib.suppress(PaiError):  # the other way reports the reason for each file
                assert isinstance(item.target, LocalStore)
                self._folders = item.target.folder_copy(item.source, between[1], between[3])
        return self._folders
