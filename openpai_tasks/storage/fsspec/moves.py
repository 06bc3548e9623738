"""Move files within ``pai://``: a source is removed only after its copy is complete."""

from __future__ import annotations

from openpai_tasks.errors import PathError
from openpai_tasks.storage.copying.copy import Rules, copy
from openpai_tasks.storage.copying.plan import Errand, is_within, refuse_itself
from openpai_tasks.storage.location import Location
from openpai_tasks.storage.store import Entry, WritesWhole, parent


def move(source: Location, entry: Entry, target: Location) -> None:
    """Move to the target's path, replacing a file there; merge folders."""
    if source.is_root:
        raise PermissionError(f"{source.url}: the root of a storage is never moved")
    errand = Errand(source, entry, target)
    refuse_itself(errand)
    there = target.store.stat(target.path)
    _refuse_other_kind(errand, there)
    target.store.make_folder(parent(target.path))
    if _is_renamed(errand, there):
        source.store.rename(source.path, target.path)
        return
    if is_within(source, target):
        raise PathError(f"{source.url} is in {target.url}: copied files could be removed with it")
    copied = copy([errand], Rules(checksum=True))  # equal size and time are not enough to remove the source
    if copied.failed:
        failure = copied.failed[0]
        raise PathError(f"{source.url} was not moved: {failure.path}: {failure.reason}")
    source.store.remove(source.path, recursive=True)


def _refuse_other_kind(errand: Errand, there: Entry | None) -> None:
    if there is None:
        return
    url = errand.target.url
    if there.is_special:
        raise PathError(f"{url} is neither a file nor a folder, so it is not replaced")
    if there.is_folder and not errand.entry.is_folder:
        raise IsADirectoryError(f"{url}: a folder is there, so a file cannot be moved to it")
    if errand.entry.is_folder and not there.is_folder:
        raise NotADirectoryError(f"{url}: a file is there, so a folder cannot be moved to it")


def _is_renamed(errand: Errand, there: Entry | None) -> bool:
    """Whether the store can rename it; object stores have no folders to rename."""
    if errand.source.store is not errand.target.store:
        return False
    is_bucket = isinstance(errand.source.store, WritesWhole)
    return not errand.entry.is_folder or (there is None and not is_bucket)
