"""Move files within ``pai://``: a source is removed only after its copy is complete."""

from __future__ import annotations

import contextlib

from openpai_tasks.errors import Denied, PathError
from openpai_tasks.storage.copying.claims import claiming, part_name
from openpai_tasks.storage.copying.copy import Rules, copy
from openpai_tasks.storage.copying.plan import CopyItem, check_not_itself, is_within, with_parents
from openpai_tasks.storage.location import Location
from openpai_tasks.storage.store import Entry, WritesWhole, base, join, parent


def move(source: Location, entry: Entry, target: Location) -> None:
    """Move to the target's path, replacing a file there; merge folders."""
    if source.is_root:
        raise PermissionError(f"{source.url}: the root of a storage is never moved")
    item = CopyItem(source, entry, target)
    check_not_itself(item)
    there = target.store.stat(target.path)
    _check_same_type(item, there)
    target.store.make_folder(parent(target.path))
    if _can_rename(item, there):
        source.store.rename(source.path, target.path)
        return
    if is_within(source, target):
        raise PathError(f"{source.url} is in {target.url}: copied files could be removed with it")
    _check_same_place(item)
    copied = copy([item], Rules(checksum=True))  # equal size and time are not enough to remove the source
    if copied.failed:
        failure = copied.failed[0]
        raise PathError(f"{source.url} was not moved: {failure.path}: {failure.reason}")
    source.store.remove(source.path, recursive=True)


@claiming()
def _check_same_place(item: CopyItem) -> None:
    """Raise if stores of different kinds lead to the same place, which only a new file there can show."""
    source, target = item.source, item.target
    if source.store.kind == target.store.kind:
        return
    if item.entry.is_folder:
        place, seen_at = source.path, with_parents(target.path)
    else:
        place = parent(source.path)
        seen_at = [parent(target.path)] if base(target.path) == source.name else []
    name = part_name()
    source.store.write(join(place, name), [b""], 0)
    try:
        if any(_is_there(target, join(folder, name)) for folder in seen_at):
            raise PathError(f"{source.url} cannot be moved to {target.url}: they are the same place")
    finally:
        source.store.remove(join(place, name))


def _is_there(target: Location, path: str) -> bool:
    """Whether the path exists; one that may not be seen is not the user's own."""
    with contextlib.suppress(Denied):
        return target.store.stat(path) is not None
    return False


def _check_same_type(item: CopyItem, there: Entry | None) -> None:
    if there is None:
        return
    url = item.target.url
    if there.is_special:
        raise PathError(f"{url} is neither a file nor a folder, so it is not replaced")
    if there.is_folder and not item.entry.is_folder:
        raise IsADirectoryError(f"{url}: a folder is there, so a file cannot be moved to it")
    if item.entry.is_folder and not there.is_folder:
        raise NotADirectoryError(f"{url}: a file is there, so a folder cannot be moved to it")


def _can_rename(item: CopyItem, there: Entry | None) -> bool:
    """Whether the store can rename it; object stores have no folders to rename."""
    if item.source.store is not item.target.store:
        return False
    is_bucket = isinstance(item.source.store, WritesWhole)
    return not item.entry.is_folder or (there is None and not is_bucket)
