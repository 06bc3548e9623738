"""Plan a copy before any file is copied: what the target becomes does not depend on whether it exists."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from openpai_tasks.errors import NoSuchPath, PaiError, PathError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.storage import patterns
from openpai_tasks.storage.copying.claims import part_name
from openpai_tasks.storage.local.store import LocalStore
from openpai_tasks.storage.location import Location, naming
from openpai_tasks.storage.retry import retrying
from openpai_tasks.storage.store import Entry, KnowsPlaces, Store, is_below, join, parent


@dataclass(frozen=True)
class CopyItem:
    """One source, its entry, and the exact path of its copy."""

    source: Location
    entry: Entry
    target: Location
    is_inner: bool = False
    """Whether the target is a name in the given folder, in which symlinks are not followed."""


def plan_copy(sources: Sequence[Location], target: Location) -> list[CopyItem]:
    """Plan ``copy``: one item for each source; raise if one of them is impossible."""
    if not sources:
        raise PathError("nothing to copy: name a source and a target")
    found = [match for place in sources for match in _expand(place)]
    with naming(target):
        target = patterns.target(target)
        there = target.store.stat(target.path)
    is_into = target.holds_copies or found != list(sources[:1])
    if is_into and there is not None and not there.is_folder:
        raise PathError(f"{target.url}: a file is there, not a folder")
    items = [_item(source, target, there, is_into) for source in found]
    _check_distinct(items)
    return items


def plan_sync(source: Location, target: Location) -> list[CopyItem]:
    """Plan ``sync``: one item that copies the contents of the source folder into the target folder."""
    entry = _stat(source)
    if not entry.is_folder:
        raise PathError(f"{source.url}: sync takes a folder; copy takes files")
    with naming(target):
        there = target.store.stat(target.path)
    if there is not None and not there.is_folder:
        raise PathError(f"{target.url}: a file is there, not a folder")
    item = CopyItem(source, entry, target)
    check_not_itself(item)
    return [item]


def target_of(items: Sequence[CopyItem]) -> str:
    """Return the URL of the only copy, or of the folder of several."""
    first = items[0].target
    if len(items) == 1 or not items[0].is_inner:
        return first.url
    return _parent(first).url


def _item(source: Location, target: Location, there: Entry | None, is_into: bool) -> CopyItem:
    entry = _stat(source)
    if entry.is_folder and there is not None and not there.is_folder:
        raise PathError(f"{target.url}: a file is there, so the folder {source.url} cannot be copied to it")
    is_into = is_into or (there is not None and there.is_folder and not entry.is_folder)
    is_inner = is_into and bool(source.name) and not source.is_content
    item = CopyItem(source, entry, target.join(source.name) if is_inner else target, is_inner)
    check_not_itself(item)
    return item


def _expand(place: Location) -> list[Location]:
    with naming(place):
        return patterns.sources(place)


def _stat(place: Location) -> Entry:
    with naming(place):
        entry = place.store.stat(place.path)
    if entry is None:
        raise NoSuchPath(f"{place.url}: no such file or folder")
    return entry


def check_not_itself(item: CopyItem) -> None:
    """Raise if a file is copied onto itself or a folder into itself, even under different names."""
    here, there = _address(item.source), _address(item.target)
    if here == there or (not item.entry.is_folder and _is_same_file(item.source, item.target)):
        raise PathError(f"{item.source.url} and {item.target.url} are the same")
    if item.entry.is_folder and (is_below(there, here) or is_within(item.target, item.source)):
        raise PathError(f"{item.source.url} cannot be copied into itself ({item.target.url})")


def check_deletion(items: Sequence[CopyItem]) -> None:
    """Refuse a copy with ``--delete`` that could remove files by mistake."""
    if len(items) > 1:
        raise PathError("--delete takes exactly one source")
    for item in items:
        here, there, url = _address(item.source), _address(item.target), item.target.url
        if item.target.has_empty_name:
            raise PathError(f"{url} was written with an empty name in it: is a variable empty?")
        if there == LocalStore().address("/"):
            raise PathError(f"{url}: the root of this machine; nothing is deleted there")
        if item.target.is_root and not item.target.is_content:
            raise PathError(f"{url}: the root of a storage; write {join(url, '.')} to mean all of it")
        if is_below(here, there) or is_below(there, here) or is_within(item.source, item.target):
            raise PathError(f"{item.source.url} is in {url}: deleting there would remove the source")


def may_overlap(items: Sequence[CopyItem]) -> bool:
    """Whether two items may write the same path; otherwise equal targets have been refused."""
    return len(items) > 1 and any(item.source.is_content for item in items)


def is_within(place: Location, folder: Location) -> bool:
    """Whether the place is the folder or inside it, even under different names."""
    return _share_identity(folder, place, above=True)


def _share_identity(one: Location, other: Location, above: bool = False) -> bool:
    """Whether both are the same, or with ``above`` also whether the first is a folder above the other."""
    here, there = one.store, other.store
    if here.kind != there.kind or not (isinstance(here, KnowsPlaces) and isinstance(there, KnowsPlaces)):
        return False
    own = here.identities(one.path)
    return bool(own) and not own.isdisjoint(there.identities(other.path, above=above))


def _is_same_file(one: Location, other: Location) -> bool:
    """Whether they are one file in one folder: a copy on another HDFS may have the same number and time."""
    return _share_identity(other, one) and _share_identity(_parent(other), _parent(one))


def _parent(place: Location) -> Location:
    return replace(place, path=parent(place.path), url=parent(place.url))


def _address(place: Location) -> str:
    store: Store = place.store
    return store.address(place.path)


def _check_distinct(items: Sequence[CopyItem]) -> None:
    taken: dict[str, CopyItem] = {}
    for item in items:
        other = taken.setdefault(item.target.path, item)
        if other is not item and not (other.source.is_content or item.source.is_content):
            both = f"{other.source.url} and {item.source.url}"
            raise PathError(f"{both} would both become {item.target.url}")


def can_compare_places(source: Store, target: Store) -> bool:
    """Whether the stores know without a test which of their folders are the same."""
    return source.kind == target.kind and isinstance(source, KnowsPlaces)


def is_same_folder(target: Store, folder: str, source: Store, places: Iterable[str]) -> bool:
    """Test whether the target's folder is one of these folders of the source."""
    name = part_name()
    mark = join(folder, name)
    try:
        target.write(mark, (), 0)
    except PaiError:  # nothing can be written there, so the copy does no harm either
        return False
    try:
        return any(_has(source, join(place, name)) for place in places)
    finally:
        with contextlib.suppress(PaiError):
            retrying(partial(target.remove, mark))


def _has(store: Store, path: str) -> bool:
    with contextlib.suppress(PaiError):  # folders above the source may belong to others
        return store.stat(path) is not None
    return False


def with_parents(path: str) -> list[str]:
    """Return the path and all folders above it."""
    found = [path]
    while found[-1] != "/":
        found.append(parent(found[-1]))
    return found


def check_hidden_overlap(item: CopyItem) -> None:
    """Refuse to delete in a folder that the source is in, under another name."""
    source, target = item.source, item.target
    if can_compare_places(source.store, target.store) or target.store.stat(target.path) is None:
        return
    if is_same_folder(target.store, target.path, source.store, with_parents(source.path)):
        raise PathError(f"{source.url} is in {target.url}: deleting there would remove the source")
