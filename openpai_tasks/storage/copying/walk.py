"""Walk a folder and decide what a copy has to do, with one listing per folder on each side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from openpai_tasks.errors import PaiError, PathError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.storage.copying.compact_listing import CompactListing
from openpai_tasks.storage.copying.plan import CopyItem, can_compare_places, is_same_folder
from openpai_tasks.storage.copying.progress import CopyFailure
from openpai_tasks.storage.copying.transfer import remove_stale
from openpai_tasks.storage.local.store import LocalStore, is_plain
from openpai_tasks.storage.location import Location
from openpai_tasks.storage.parts import PART, is_part
from openpai_tasks.storage.store import (
    Entry,
    KeepsModes,
    KnowsPlaces,
    SetsModes,
    Store,
    base,
    is_below,
    is_closed,
    join,
)


class WalkedEntry(NamedTuple):
    """An entry below a folder; ``depth`` is 1 for the folder's own entries."""

    entry: Entry
    name: str
    depth: int


def walk(place: Location, depth: int | None = None, parts: bool = False) -> Iterator[WalkedEntry]:
    """Yield everything below by name, folders first; follow no symlinks. ``parts``: unfinished files, too."""
    stack = [iter(_sorted(place.store, place.path, "", 1, parts))]
    while stack:
        found = next(stack[-1], None)
        if found is None:
            stack.pop()
            continue
        yield found
        inside = found.entry.is_folder and not found.entry.is_link
        if inside and (depth is None or found.depth < depth):
            inner = _sorted(place.store, found.entry.path, found.name + "/", found.depth + 1, parts)
            stack.append(iter(inner))


def stream(place: Location, parts: bool = False) -> Iterator[WalkedEntry]:
    """Yield everything below the folder as it is listed, folders first; keep only folders in memory."""
    stack = [WalkedEntry(Entry("", place.path, True), "", 0)]
    while stack:
        folder = stack.pop()
        above = folder.name + "/" if folder.name else ""
        for entry in place.store.list(folder.entry.path):
            if not parts and is_part(entry):
                continue
            found = WalkedEntry(entry, above + entry.name, folder.depth + 1)
            if entry.is_folder and not entry.is_link:
                stack.append(found)
            yield found


def _sorted(store: Store, path: str, above: str, depth: int, parts: bool) -> list[WalkedEntry]:
    listed = (entry for entry in store.list(path) if parts or not is_part(entry))
    entries = sorted(listed, key=lambda entry: entry.name)
    return [WalkedEntry(entry, above + entry.name, depth) for entry in entries]


@dataclass(frozen=True)
class Item:
    """A file to copy, with the current entry at its target."""

    source: Store
    entry: Entry
    target: Store
    path: str
    there: Entry | None
    origin: str = ""
    """The part of the target's URL before a path."""

    def describe_error(self, err: PaiError) -> str:
        return _describe_error(err, self.entry.path, self.path, self.origin)


@dataclass(frozen=True)
class ExtraEntries:
    """Entries of a target folder that the source does not have."""

    store: Store
    entries: CompactListing


MOST_LINKS = 1000  # that lead to one folder: links to folders with links to folders would never end
Step = Item | ExtraEntries | CopyFailure

Skip = Callable[[Mapping[str, int]], None]
"""Gets the paths and sizes of files that need not be copied."""


@dataclass(frozen=True)
class _CopiedFolder:
    source: str
    target: str
    is_new: bool
    mode: int | None
    entered: tuple[str, ...]
    """The addresses of symlinks that were followed to get here: a link to a folder above one is a loop."""


class CreatedFolders:
    """The folders that a copy creates, so that it does not copy them if they are inside its source."""

    def __init__(self, source: Store, target: Store, root: str, preview: bool) -> None:
        self._source, self._target, self._root = source, target, root
        self._can_meet = can_compare_places(source, target)
        self._may_test = not (self._can_meet or preview)
        self._paths: dict[str, str] = {}

    def note(self, path: str, entry: Entry | None = None) -> None:
        if self._can_meet and (entry := entry or self._target.stat(path)):
            self._can_meet = bool(entry.id)
            self._paths[entry.id] = path

    def has(self, folder: Entry) -> bool:
        """Whether the copy has created the folder; another file system may have the same id."""
        if self._may_test and folder.name == base(self._root):
            return is_same_folder(self._target, self._root, self._source, [folder.path])
        path = self._paths.get(folder.id) if folder.id else None
        source, target = self._source, self._target
        if path is None or not (isinstance(source, KnowsPlaces) and isinstance(target, KnowsPlaces)):
            return False
        seen = None
        while seen != (seen := source.identities(folder.path)):  # the copy may change it
            if not seen.isdisjoint(target.identities(path)):
                return True
        return False


class Steps:
    """The steps of one item in order; creates the folders."""

    def __init__(
        self,
        item: CopyItem,
        make_folder: Callable[[Store, str], None],
        preview: bool,
        taken: set[str] | None,
        skip: Skip | None,
    ) -> None:
        """``taken`` contains the target files of the copy so far, if items may write the same path.

        ``skip`` is called with the files that the target has already, by size and time, as far as the store
        can tell for a whole folder; None if size and time do not suffice.
        """
        self._source, self._target = item.source.store, item.target.store
        self._item = item
        self._make_folder = make_folder
        self._preview = preview
        self._taken = taken
        self._links: Counter[str] = Counter()
        can_compare = is_plain(self._source) and is_plain(self._target)
        self._skip = skip if can_compare and taken is None else None
        self._root = self._target.address(item.target.path)
        self._origin = item.target.origin
        self._made = CreatedFolders(self._source, self._target, item.target.path, preview)

    def __iter__(self) -> Iterator[Step]:
        item = self._item
        there = self._target.stat(item.target.path)
        if not item.entry.is_folder:
            yield self._file(item.entry, item.target.path, there)
            return
        if item.is_inner and (reason := self._obstacle(item.target.path, there)):
            yield CopyFailure(item.source.path, reason)
            return
        self._made.note(item.target.path, there)
        entered = (self._source.address(item.source.path),)
        stack = [_CopiedFolder(item.source.path, item.target.path, there is None, item.entry.mode, entered)]
        while stack:
            folder = stack.pop()
            try:
                for step in self._folder(folder):
                    if isinstance(step, _CopiedFolder):
                        stack.append(step)
                    else:
                        yield step
            except PaiError as err:
                reason = _describe_error(err, folder.source, folder.target, self._origin)
                yield CopyFailure(folder.source, reason)

    def _folder(self, folder: _CopiedFolder) -> Iterator[Step | _CopiedFolder]:
        if folder.is_new and not self._preview:
            self._make_new(folder)
        same: set[str] = set()
        if self._skip and not folder.is_new and not self._skip_same(self._skip, folder, same):
            return
        there = CompactListing(folder.target, () if folder.is_new else self._existing(folder.target, same))
        for entry in _list_others(self._source, folder.source, same):
            if is_part(entry):
                continue
            old, path = there.pop(entry.name), join(folder.target, entry.name)
            if entry.is_link and self._is_at_target(entry):
                yield CopyFailure(entry.path, "a link that leads to the target of the copy, above or into it")
            elif entry.is_folder:
                yield self._subfolder(entry, path, old, folder)
            else:
                yield self._file(entry, path, old)
        there.drop_popped()
        if there:
            yield ExtraEntries(self._target, there)

    def _skip_same(self, skip: Skip, folder: _CopiedFolder, same: set[str]) -> bool:
        """Skip the files that are the same, add their names to ``same``, and return whether others exist."""
        assert is_plain(self._source) and is_plain(self._target)
        inside, others = join(folder.source, ""), 0
        for found in self._target.same_files(self._source, folder.source, folder.target):
            sizes = {name: size for name, size in found.sizes.items() if not name.startswith(PART)}
            others += found.others + len(found.sizes) - len(sizes)
            same.update(sizes)
            skip({inside + name: size for name, size in sizes.items()})
        return others > 0

    def _make_new(self, folder: _CopiedFolder) -> None:
        """Give the folder the mode of the source's, but keep it accessible to the user."""
        target = self._target
        if is_closed(folder.mode) and isinstance(target, KeepsModes):
            target = target.closed
        self._make_folder(target, folder.target)
        self._made.note(folder.target)
        if folder.mode is not None and isinstance(self._target, SetsModes):
            self._target.set_mode(folder.target, self._target.allowed(folder.mode) | 0o700)

    def _is_at_target(self, link: Entry) -> bool:
        leads = self._source.address(link.path)
        return is_below(leads, self._root) or (link.is_folder and is_below(self._root, leads))

    def _existing(self, path: str, same: set[str]) -> Iterator[Entry]:
        """Yield the other entries of the target folder; remove old parts of killed copies."""
        for entry in _list_others(self._target, path, same):
            if not is_part(entry):
                yield entry
            elif not self._preview:
                remove_stale(self._target, entry)

    def _file(self, entry: Entry, path: str, there: Entry | None) -> Step:
        reason, place = "", f"{self._origin}{path}"
        if there is not None and there.is_folder:
            reason = f"a folder is at {place}, so the file cannot be put there"
        elif entry.is_special:
            reason = "neither a file nor a folder"
        elif there is not None and there.is_special:
            reason = f"{place} is neither a file nor a folder, so it is not replaced"
        elif self._taken is not None and path in self._taken:
            reason = f"another source has a file for {place}"
        elif self._taken is not None:
            self._taken.add(path)
        if reason:
            return CopyFailure(entry.path, reason)
        return Item(self._source, entry, self._target, path, there, self._origin)

    def _subfolder(
        self, entry: Entry, path: str, there: Entry | None, folder: _CopiedFolder
    ) -> _CopiedFolder | CopyFailure:
        entered = folder.entered
        if reason := self._obstacle(path, there):
            return CopyFailure(entry.path, reason)
        if self._made.has(entry):
            reason = "this copy has made it: the target is in the source, by another name"
            return CopyFailure(entry.path, reason)
        if entry.is_link:
            leads = self._source.address(entry.path)
            here = self._source.address(folder.source)
            if any(is_below(place, leads) for place in (*entered, here)):
                return CopyFailure(entry.path, "a link to a folder above it: the copy would never end")
            self._links[leads] += 1
            if self._links[leads] > MOST_LINKS:
                return CopyFailure(entry.path, f"more than {MOST_LINKS} links lead to this folder")
            entered = (*entered, leads)
        return _CopiedFolder(entry.path, path, there is None, entry.mode, entered)

    def _obstacle(self, path: str, there: Entry | None) -> str:
        """Return why the path cannot become a folder; symlinks are not followed, as they lead elsewhere."""
        if path in (self._taken or ()) or (there is not None and not there.is_folder):
            return f"a file is at {self._origin}{path}, so the folder cannot be put there"
        if there is not None and there.is_link:
            return f"{self._origin}{path} is a link to a folder, which is not entered; remove it first"
        return ""


def _list_others(store: Store, path: str, same: set[str]) -> Iterator[Entry]:
    """Yield the entries of the folder that are not known to be the same."""
    return store.list_except(path, same) if same and isinstance(store, LocalStore) else store.list(path)


def _describe_error(err: PaiError, source: str, target: str, origin: str) -> str:
    """Return the error's text, with the storage in front of a path of the target."""
    text = str(err)
    is_there = text.startswith((f"{target}:", f"{target} ")) and not text.startswith(f"{source}:")
    return origin + text if is_there else text


def check_link(entry: Entry, store: Store) -> None:
    """Raise if the entry is a dangling symlink."""
    if entry.is_link and store.stat(entry.path) is None:
        raise PathError(f"{entry.path}: a broken symlink")
