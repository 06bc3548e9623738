"""Read ranges of shards; those on this machine stay open between reads."""

from __future__ import annotations

import os
from collections.abc import Sequence

from openpai_tasks.errors import PathError
from openpai_tasks.storage.crc import crc32c
from openpai_tasks.storage.location import Location
from openpai_tasks.storage.packing.index import UNKNOWN, Index
from openpai_tasks.storage.packing.ranges import fetch
from openpai_tasks.storage.store import OpensFiles

MOST = 128
"""Number of shards that stay open; with more of them, the one opened first is closed."""


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
        handle = self._handles.get(shard) or self._opened(shard)
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

    def _opened(self, shard: int) -> _Handle | None:
        place = self._places[shard]
        if not isinstance(place.store, OpensFiles):
            return None
        handle = self._handles[shard] = _Handle(place.store.open_file(place.path))
        if len(self._handles) > MOST:
            self.close(next(iter(self._handles.copy()), shard))
        return handle
