"""Open a packed set with its index, or by scanning the named shards."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property

from openpai_tasks.errors import NoSuchPath, PathError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.storage import patterns
from openpai_tasks.storage.copying.progress import Watch
from openpai_tasks.storage.crc import crc32c
from openpai_tasks.storage.local.store import LocalStore
from openpai_tasks.storage.location import Location
from openpai_tasks.storage.packing import har, ranges
from openpai_tasks.storage.packing import index as indexes
from openpai_tasks.storage.packing.formats import find_format, format_of
from openpai_tasks.storage.packing.index import UNKNOWN, Index, Shard
from openpai_tasks.storage.packing.ranges import fetch
from openpai_tasks.storage.retry import retrying
from openpai_tasks.storage.store import join

MOST_OPEN = 128
"""Number of shards that stay open; with more of them, the one opened first is closed."""


@dataclass(frozen=True)
class PackedSet:
    """An index, and the location of each of its shards."""

    url: str
    index: Index
    shards: list[Location]

    @cached_property
    def contents(self) -> OpenShards:
        return OpenShards(self.index, self.shards)


def open_set(place: Location) -> PackedSet:
    """Open a folder by its index; scan a shard, or shards that match a pattern."""
    found = patterns.sources(place)
    is_folder = [_is_folder(each) for each in found]
    if any(is_folder):
        if len(found) > 1:
            raise PathError(f"{place.url} matches {len(found)} names, some of them folders; name one folder")
        return _with_index(found[0])
    return _without_index(found)


def locate_shards(place: Location, index: Index) -> list[Location]:
    """Locate the shards of a known index, and check their sizes."""
    entry = place.store.stat(place.path)
    if entry is not None and entry.is_folder:
        found = [place.join(shard.name) for shard in index.shards]
        there = {each.name: each.size for each in place.store.list(place.path) if not each.is_folder}
        sizes = [there.get(shard.name) for shard in index.shards]
    else:
        found = patterns.sources(place)
        sizes = [_size(each) for each in found]
    _check(place.url, index.shards, sizes)
    return found


def _check(url: str, shards: list[Shard], sizes: list[int | None]) -> None:
    if len(shards) != len(sizes):
        raise PathError(f"{url}: {len(sizes)} shards are there, not {len(shards)} as before")
    for shard, size in zip(shards, sizes, strict=True):
        if size is None:
            raise NoSuchPath(f"{join(url, shard.name)}: a shard of the index is missing")
        if size != shard.size:
            raise PathError(
                f"{join(url, shard.name)}: it has {size} of {shard.size} bytes; truncated or changed"
            )


def _with_index(folder: Location) -> PackedSet:
    place = folder.join(indexes.NAME)
    if place.store.stat(place.path) is None:
        if folder.store.stat(folder.join(har.MASTER).path):
            return _open_har(folder)
        raise NoSuchPath(
            f"{folder.url} has no {indexes.NAME}: no packed files, or an incomplete pack; "
            "name shards themselves to read them without it"
        )
    url, store = place.url, place.store
    index = retrying(lambda: indexes.read(store.read(place.path), url), Watch().wait)
    find_format(index.format)
    return PackedSet(folder.url, index, locate_shards(folder, index))


def _open_har(folder: Location) -> PackedSet:
    """Open an archive that Hadoop made."""
    store, there = folder.store, folder.store.list(folder.path)
    own = (har.INDEX, har.MASTER)
    shards = [Shard(each.name, each.size) for each in there if not each.is_folder and each.name not in own]
    master, index = folder.join(har.MASTER).path, folder.join(har.INDEX).path
    found = retrying(
        lambda: har.read(store.read(master), store.read(index), shards, folder.url), Watch().wait
    )
    return PackedSet(folder.url, found, [folder.join(shard.name) for shard in shards])


def _without_index(found: list[Location]) -> PackedSet:
    kinds = {format_of(place.name) for place in found}
    if len(kinds) > 1:
        raise PathError(
            f"shards of several formats ({', '.join(sorted(kinds))}) cannot be read together; name one format"
        )
    kind = kinds.pop()
    index = Index(kind)
    for number, place in enumerate(found):
        size = _size(place)
        index.shards.append(Shard(place.name, size))
        with ranges.open_file(place.store, place.path, size) as file:
            find_format(kind).scan(file, place.url, number, index)
    return PackedSet(found[0].url, index, found)


def _is_folder(place: Location) -> bool:
    entry = place.store.stat(place.path)
    return entry is not None and entry.is_folder


def _size(place: Location) -> int:
    entry = place.store.stat(place.path)
    if entry is None:
        raise NoSuchPath(f"{place.url}: no such file")
    return entry.size


class _Handle:
    """A descriptor that is closed with its last user, as another thread may still be reading from it."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        os.close(self.number)


class OpenShards:
    """The shards of a set, read by several threads."""

    def __init__(self, index: Index, places: Sequence[Location]) -> None:
        self._index, self._places = index, places
        self._handles: dict[int, _Handle] = {}

    def file(self, number: int) -> bytes:
        """Return the content of a file, compared with its CRC."""
        index = self._index
        data = self.read(index.shard[number], index.offset[number], index.size[number])
        if index.crc[number] not in (crc32c(data), UNKNOWN):
            self.close(index.shard[number])  # the shard may have been repaired, or the transfer was faulty
            data = self.read(index.shard[number], index.offset[number], index.size[number])
            self.verify(number, data)
        return data

    def verify(self, number: int, data: bytes) -> None:
        """Raise unless the data has the CRC of the file, where that is known."""
        if self._index.crc[number] not in (crc32c(data), UNKNOWN):
            url, name = self._places[self._index.shard[number]].url, self._index.names[number]
            raise PathError(f"{url}: {name!r} in it is damaged: wrong CRC32C")

    def read(self, shard: int, offset: int, length: int) -> bytes:
        """Read exactly this many bytes; raise if the shard is too short."""
        if not length:
            return b""
        handle = self._handles.get(shard) or self._open(shard)
        if handle is not None:
            try:
                data = os.pread(handle.number, length, offset)
            except OSError:
                data = b""
            if len(data) == length:
                return data
            self.close(shard)  # truncated, or a lost file server: the store finds out which
        place = self._places[shard]
        return fetch(place.store, place.path, offset, length)

    def close(self, shard: int) -> None:
        """Forget the open shard, so that the next read opens the file that has its name then."""
        self._handles.pop(shard, None)

    def _open(self, shard: int) -> _Handle | None:
        place = self._places[shard]
        if not isinstance(place.store, LocalStore):
            return None
        handle = self._handles[shard] = _Handle(place.store.open_file(place.path))
        while len(self._handles) > MOST_OPEN:  # two threads may have closed the same one
            self.close(next(iter(self._handles.copy()), shard))
        return handle
