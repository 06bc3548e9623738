"""Plan a copy before any file is copied: what the target becomes does not depend on whether it exists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from openpai_tasks.errors import NoSuchPath, PathError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.storage import patterns
from openpai_tasks.storage.local.store import LocalStore
from openpai_tasks.storage.location import Location, naming
from openpai_tasks.storage.store import Entry, KnowsPlaces, Store, is_below, join, parent


@dataclass(frozen=True)
class Errand:
    """One source, its entry, and the exact path of its copy."""

    source: Location
    entry: Entry
    target: Location
    is_inner: bool = False
    """Whether the target is a name in the given folder, in which symlinks are not followed."""


def copies(sources: Sequence[Location], target: Location) -> list[Errand]:
    """Plan ``copy``: one errand for each source; raise if one of them is impossible."""
    if not sources:
        raise PathError("nothing to copy: name a source and a target")
    found = [match for place in sources for match in _fitting(place)]
    with naming(target):
        target = patterns.target(target)
        there = target.store.stat(target.path)
    is_into = target.holds_copies or found != list(sources[:1])
    if is_into and there is not None and not there.is_folder:
        raise PathError(f"{target.url}: a file is there, not a folder")
    errands = [_errand(source, target, there, is_into) for source in found]
    _refuse_clashes(errands)
    return errands


def synced(source: Location, target: Location) -> list[Errand]:
    """Plan ``sync``: one errand that copies the contents of the source folder into the target folder."""
    entry = _there(source)
    if not entry.is_folder:
        raise PathError(f"{source.url}: sync takes a folder; copy takes files")
    with naming(target):
        there = target.store.stat(target.path)
    if there is not None and not there.is_folder:
        raise PathError(f"{target.url}: a file is there, not a folder")
    errand = Errand(source, entry, target)
    refuse_itself(errand)
    return [errand]


def target_of(errands: Sequence[Errand]) -> str:
    """Return the URL of the only copy, or of the folder of several."""
    first = errands[0].target
    if len(errands) == 1 or not errands[0].is_inner:
        return first.url
    return _holding(first).url


def _errand(source: Location, target: Location, there: Entry | None, is_into: bool) -> Errand:
    entry = _there(source)
    if entry.is_folder and there is not None and not there.is_folder:
        raise PathError(f"{target.url}: a file is there, so the folder {source.url} cannot be copied to it")
    is_into = is_into or (there is not None and there.is_folder and not entry.is_folder)
    is_inner = is_into and bool(source.name) and not source.is_content
    errand = Errand(source, entry, target.join(source.name) if is_inner else target, is_inner)
    refuse_itself(errand)
    return errand


def _fitting(place: Location) -> list[Location]:
    with naming(place):
        return patterns.sources(place)


def _there(place: Location) -> Entry:
    with naming(place):
        entry = place.store.stat(place.path)
    if entry is None:
        raise NoSuchPath(f"{place.url}: no such file or folder")
    return entry


def refuse_itself(errand: Errand) -> None:
    """Raise if a file is copied onto itself or a folder into itself, even under different names."""
    here, there = _address(errand.source), _address(errand.target)
    if here == there or (not errand.entry.is_folder and _is_same_file(errand.source, errand.target)):
        raise PathError(f"{errand.source.url} and {errand.target.url} are the same")
    if errand.entry.is_folder and (is_below(there, here) or is_within(errand.target, errand.source)):
        raise PathError(f"{errand.source.url} cannot be copied into itself ({errand.target.url})")


def refuse_loss(errands: Sequence[Errand]) -> None:
    """Refuse a copy with ``--delete`` that could remove files by mistake."""
    if len(errands) > 1:
        raise PathError("--delete takes exactly one source")
    for errand in errands:
        here, there, url = _address(errand.source), _address(errand.target), errand.target.url
        if errand.target.has_empty_name:
            raise PathError(f"{url} was written with an empty name in it: is a variable empty?")
        if there == LocalStore().address("/"):
            raise PathError(f"{url}: the root of this machine; nothing is deleted there")
        if errand.target.is_root and not errand.target.is_content:
            raise PathError(f"{url}: the root of a storage; write {join(url, '.')} to mean all of it")
        if is_below(here, there) or is_below(there, here) or is_within(errand.source, errand.target):
            raise PathError(f"{errand.source.url} is in {url}: deleting there would remove the source")


def can_meet(errands: Sequence[Errand]) -> bool:
    """Whether two errands may write the same path; otherwise equal targets have been refused."""
    return len(errands) > 1 and any(errand.source.is_content for errand in errands)


def is_within(place: Location, folder: Location) -> bool:
    """Whether the place is the folder or inside it, even under different names."""
    return _shares_marks(folder, place, above=True)


def _shares_marks(one: Location, other: Location, above: bool = False) -> bool:
    """Whether both are the same, or with ``above`` also whether the first is a folder above the other."""
    here, there = one.store, other.store
    if here.kind != there.kind or not (isinstance(here, KnowsPlaces) and isinstance(there, KnowsPlaces)):
        return False
    own = here.marks(one.path)
    return bool(own) and not own.isdisjoint(there.marks(other.path, above=above))


def _is_same_file(one: Location, other: Location) -> bool:
    """Whether they are one file in one folder: a copy on another HDFS may have the same number and time."""
    return _shares_marks(other, one) and _shares_marks(_holding(other), _holding(one))


def _holding(place: Location) -> Location:
    return replace(place, path=parent(place.path), url=parent(place.url))


def _address(place: Location) -> str:
    store: Store = place.store
    return store.address(place.path)


def _refuse_clashes(errands: Sequence[Errand]) -> None:
    taken: dict[str, Errand] = {}
    for errand in errands:
        other = taken.setdefault(errand.target.path, errand)
        if other is not errand and not (other.source.is_content or errand.source.is_content):
            both = f"{other.source.url} and {errand.source.url}"
            raise PathError(f"{both} would both become {errand.target.url}")
