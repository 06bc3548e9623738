"""List the files and folders of a tree to pack, in an order that depends only on their names.

As in a copy, symlinks are followed: their targets are packed; a broken symlink, or one to a folder above it,
is an error. In a folder the files come first, those of a sample (the same name up to the first dot) together.
"""

from __future__ import annotations

import hashlib
import itertools
import struct
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple

from openpai_tasks.errors import NoSuchPath, PathError
from openpai_tasks.storage.copying.walk import check_link
from openpai_tasks.storage.local.store import LocalStore
from openpai_tasks.storage.location import Location
from openpai_tasks.storage.parts import PART, PART_NAME, is_part
from openpai_tasks.storage.store import Entry, Store, is_below, join

FACTS = struct.Struct(">QqH")
FOLDER_FACTS = struct.Struct(">QH")
MARK_LENGTH = 10
ASKED, MANY = 8, 1000
"""Concurrent requests for files, and the number of entries handled together."""


class PackMember(NamedTuple):
    """A file or folder to pack; its name is relative to the tree."""

    name: str
    path: str
    is_folder: bool
    size: int
    mtime_ms: int
    mode: int
    sample: str
    """The name of all files that stay together."""


@dataclass(frozen=True)
class PackFolder:
    """A folder of the tree; its files are in compact form, since there may be millions."""

    path: str
    name: str
    mode: int
    entered: tuple[str, ...]
    """The addresses of the symlinks that were followed to get here."""
    files: list[bytes] = field(default_factory=list)
    """The files in reverse order."""

    def sizes(self) -> Iterator[int]:
        return (size for size, _, _ in _facts(self.files))

    def members(self) -> Iterator[PackMember]:
        """Yield the files once, releasing many at a time."""
        path, name = join(self.path, ""), join(self.name, "") if self.name else ""
        while some := self.files[: -MANY - 1 : -1]:
            del self.files[-MANY:]
            names = b"".join([small[: -FACTS.size] for small in some]).decode("utf-8", "surrogateescape")
            parts = iter(names.split("\0"))
            for stem, rest, (size, mtime_ms, mode) in zip(parts, parts, _facts(some), strict=False):
                own = stem + rest
                sample = name + (stem or own)
                yield PackMember(name + own, path + own, False, size, mtime_ms, mode, sample)


def _facts(files: list[bytes]) -> Iterator[tuple[int, int, int]]:
    """Return size, time and mode of files in compact form."""
    return FACTS.iter_unpack(b"".join([small[-FACTS.size :] for small in files]))


def split(name: str) -> tuple[str, str]:
    """Split ``a/b.seg.png`` into the sample ``a/b`` and ``seg.png``; a hidden file is a sample by itself."""
    folder, slash, last = name.rpartition("/")
    stem, _, rest = last.partition(".")
    return (folder + slash + stem, rest) if stem else (name, "")


def folders(tree: Location, target: str) -> Iterator[PackFolder]:
    """Yield the folder and all folders below; ``target`` is an address that symlinks must not point to."""
    store = tree.store
    stack = [PackFolder(tree.path, "", 0, (store.address(tree.path),))]
    while stack:
        folder = stack.pop()
        stack += _list_into(store, folder, target)
        yield folder


def _list_into(store: Store, folder: PackFolder, target: str) -> list[PackFolder]:
    """Add the files to the folder, and return its subfolders in reverse order."""
    inner = []
    if isinstance(store, LocalStore):
        entries: Iterable[Entry] = _add_files(store, folder)
    else:
        entries = _with_own_times(store, store.list(folder.path))
    for entry in entries:
        if entry.name.startswith(PART) and is_part(entry):
            continue
        if entry.is_link:
            _check_link_target(store, entry, target)
        if entry.is_folder:
            inner.append(_inner(store, entry, folder))
            continue
        if entry.is_link:
            check_link(entry, store)
        folder.files.append(_small(entry))
    folder.files.sort(reverse=True)
    inner.sort(key=lambda each: each.name, reverse=True)
    return inner


def _add_files(store: LocalStore, folder: PackFolder) -> list[Entry]:
    """Add the regular files to the folder, and return its other entries."""
    others, add = list[Entry](), folder.files.append
    for name, size, mtime_ms, mode in store.list_files(folder.path, others):
        if not (name.startswith(PART) and PART_NAME.fullmatch(name)):
            add(_compact(name, size, mtime_ms, mode))
    return others


def _with_own_times(store: Store, entries: Iterator[Entry]) -> Iterator[Entry]:
    """Look up the files' own times, many in parallel, if the listing has only those of the store."""
    while some := list(itertools.islice(entries, MANY)):
        if any(entry.is_arrival for entry in some):
            with ThreadPoolExecutor(ASKED, "pack") as pool:
                yield from pool.map(lambda entry: _own(store, entry), some)
        else:
            yield from some


def _own(store: Store, entry: Entry) -> Entry:
    found = store.stat(entry.path) if entry.is_arrival else entry
    if found is None:
        raise NoSuchPath(f"{entry.path}: it disappeared while it was packed")
    return found


def _small(entry: Entry) -> bytes:
    """Return a file in compact form, which sorts by sample, then by name."""
    if entry.is_special:
        raise PathError(f"{entry.path}: neither a file nor a folder, so it cannot be packed")
    mode = entry.mode if entry.mode is not None else 0o755 if entry.is_executable else 0o644
    return _compact(entry.name, entry.size, entry.mtime_ms, mode & 0o777)


def _compact(name: str, size: int, mtime_ms: int, mode: int) -> bytes:
    stem, dot, rest = name.partition(".")
    return f"{stem}\0{dot}{rest}\0".encode("utf-8", "surrogateescape") + FACTS.pack(size, mtime_ms, mode)


def _inner(store: Store, entry: Entry, folder: PackFolder) -> PackFolder:
    entered = folder.entered
    if entry.is_link:
        leads = store.address(entry.path)
        if any(is_below(place, leads) for place in (*entered, store.address(folder.path))):
            raise PathError(f"{entry.path}: a link to a folder above it, which would never end")
        entered = (*entered, leads)
    name = f"{folder.name}/{entry.name}" if folder.name else entry.name
    return PackFolder(entry.path, name, 0o755 if entry.mode is None else entry.mode & 0o777, entered)


def _check_link_target(store: Store, link: Entry, target: str) -> None:
    leads = store.address(link.path)
    if is_below(leads, target) or (link.is_folder and is_below(target, leads)):
        raise PathError(f"{link.path}: a link that leads to the target, above or into it")


class PackTree:
    """A tree as found before anything is written; names, sizes, times and modes determine its marks."""

    def __init__(self, holds_folders: bool) -> None:
        """``holds_folders`` is whether folders are members themselves."""
        self._holds_folders, self._found = holds_folders, deque[PackFolder]()
        self._hash = hashlib.sha256()

    def add(self, folder: PackFolder) -> None:
        self._hash.update(FOLDER_FACTS.pack(len(folder.files), folder.mode))
        self._hash.update(folder.name.encode("utf-8", "surrogateescape") + b"\0")
        for start in range(0, len(folder.files), MANY):
            self._hash.update(b"".join(folder.files[start : start + MANY]))
        self._found.append(folder)

    def members(self) -> Iterator[PackMember]:
        """Yield all members once, releasing each."""
        while self._found:
            folder = self._found.popleft()
            if folder.name and self._holds_folders:
                yield PackMember(folder.name, folder.path, True, 0, 0, folder.mode, folder.name + "/")
            yield from folder.members()

    def marks(self, *rules: object) -> Iterator[str]:
        """Yield marks for the tree packed by these rules: always the same ones, in the same order."""
        number = 0
        while True:
            own = self._hash.copy()
            own.update(repr((*rules, number)).encode())
            yield own.hexdigest()[:MARK_LENGTH]
            number += 1
