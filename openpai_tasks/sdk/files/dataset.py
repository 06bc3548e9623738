"""Packed files as a data set, from any storage: read by number, by name, or in order.

    dataset = PackedDataset("pai://lab/home/train")
    name, content = dataset[0]

It can be pickled, so torch's DataLoader can use it with several workers; torch itself is not needed.
"""

from __future__ import annotations

import operator
import os
import sys
from array import array
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from openpai_tasks.sdk.files.storages import ClusterStorages
from openpai_tasks.settings.config import Settings
from openpai_tasks.storage.location import Location, locate
from openpai_tasks.storage.packing.index import Names
from openpai_tasks.storage.packing.members import split
from openpai_tasks.storage.packing.packed_set import OpenShards, locate_shards, open_set
from openpai_tasks.storage.packing.packed_store import by_name, find
from openpai_tasks.text.plurals import counted

SPAN = 8 << 20
"""Bytes to read at once from adjacent files."""
GAP = 64 << 10
"""Gap between two files, in bytes, that is read instead of starting another request."""

KEY = "__key__"


class Sample(NamedTuple):
    """One packed file."""

    name: str
    data: bytes


Item = Sample | dict[str, Any]


class PackedDataset(Sequence[Item]):
    """The files of a packed set, each a ``Sample``, in the order they were packed in.

    With ``group=True`` the files of a sample, which have the same name up to the first dot, are one item, as
    in WebDataset: ``{"__key__": "a/0001", "jpg": b"...", "txt": b"..."}``.
    """

    def __init__(self, url: str | os.PathLike[str], *, group: bool = False) -> None:
        place = _locate(os.fspath(url))
        found = open_set(place)
        self.url, self.group = place.url if place.url.startswith("/") else os.fspath(url), group
        self._index = found.index
        self._starts = _starts(found.index.names) if group else None
        self._count = len(found.index) if self._starts is None else len(self._starts) - 1
        self._opened: tuple[int, OpenShards] | None = (os.getpid(), found.contents)
        self._sorted: tuple[Names, array[int]] | None = None

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, key: Any) -> Any:
        """Return an item by its number (from the end if negative) or name; a list of items for a slice."""
        if isinstance(key, slice):
            return self.__getitems__(range(*key.indices(len(self))))
        number = self._number(key)
        if self._starts is None:
            return Sample(self._index.names[number], self._shards().file(number))
        return self.__getitems__([number])[0]

    def __getitems__(self, numbers: Sequence[int]) -> list[Item]:
        """Return several items, reading adjacent ones together; torch requests whole batches like this."""
        wanted = [self._number(each) for each in numbers]
        found = {}
        for row, data in self._read(sorted(row for each in set(wanted) for row in self._rows(each))):
            found[row] = data
        return [self._item([(row, found[row]) for row in self._rows(each)]) for each in wanted]

    def __iter__(self) -> Iterator[Item]:
        """Yield all items, read in large ranges; in a torch worker, its share of them."""
        first, last = _share(len(self))
        if first == last:
            return
        waiting = list[tuple[int, bytes]]()
        number = first
        for row, data in self._read(range(self._rows(first)[0], self._rows(last - 1)[-1] + 1)):
            waiting.append((row, data))
            if row == self._rows(number)[-1]:
                yield self._item(waiting)
                waiting, number = [], number + 1

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and find(*self._by_name(), name) is not None

    @property
    def names(self) -> Sequence[str]:
        """The names of the items: file names, or keys of samples."""
        return self._index.names if self._starts is None else self._by_name()[0]

    def __repr__(self) -> str:
        return f"PackedDataset({self.url!r}, group={self.group}): {counted(len(self), 'item')}"

    def __getstate__(self) -> dict[str, Any]:
        """The state for another process: where the files are, without connections and secrets."""
        return {**vars(self), "_opened": None, "_sorted": None}

    def _number(self, key: Any) -> int:
        if isinstance(key, str):
            number = find(*self._by_name(), key)
            if number is None:
                raise KeyError(key)
            return number
        number, count = operator.index(key), self._count
        if not -count <= number < count:
            raise IndexError(f"{number}: there are {count} items")
        return number % count

    def _rows(self, number: int) -> range:
        if self._starts is None:
            return range(number, number + 1)
        return range(self._starts[number], self._starts[number + 1])

    def _item(self, parts: list[tuple[int, bytes]]) -> Item:
        names = self._index.names
        if not self.group:
            return Sample(names[parts[0][0]], parts[0][1])
        return {KEY: split(names[parts[0][0]])[0], **{split(names[row])[1]: data for row, data in parts}}

    def _by_name(self) -> tuple[Names, array[int]]:
        """The items' names, and their order; made when it is first needed."""
        if self._sorted is None:
            names = self._index.names
            if self._starts is not None:
                names = Names(split(names[start])[0] for start in self._starts[:-1])
            self._sorted = names, by_name(names)
        return self._sorted

    def _read(self, rows: Sequence[int]) -> Iterator[tuple[int, bytes]]:
        """The content of each row, in this order; neighbours by one request."""
        index, shards = self._index, self._shards()
        for run in self._runs(rows):
            start, end = index.offset[run[0]], max(index.offset[row] + index.size[row] for row in run)
            block = shards.read(index.shard[run[0]], start, end - start)
            for row in run:
                at = index.offset[row] - start
                data = block[at : at + index.size[row]]
                shards.verify(row, data)
                yield row, data

    def _runs(self, rows: Sequence[int]) -> Iterator[list[int]]:
        """Yield groups of adjacent rows in a shard, each worth one request."""
        index, run, start, end = self._index, list[int](), 0, 0
        for row in rows:
            offset, size = index.offset[row], index.size[row]
            is_near = run and index.shard[row] == index.shard[run[-1]] and 0 <= offset - end <= GAP
            if not is_near or offset + size - start > SPAN:
                if run:
                    yield run
                run, start = [], offset
            run.append(row)
            end = offset + size
        if run:
            yield run

    def _shards(self) -> OpenShards:
        """The open shards; a forked process must not share its parent's connections."""
        if self._opened is None or self._opened[0] != os.getpid():
            found = locate_shards(_locate(self.url), self._index)
            self._opened = os.getpid(), OpenShards(self._index, found)
        return self._opened[1]


def _locate(url: str) -> Location:
    return locate(url, ClusterStorages(Settings.load()))


def _starts(names: Names) -> array[int]:
    """The row that each sample begins with, and one past the end."""
    starts, last = array("I"), None
    for row, name in enumerate(names):
        key = split(name)[0]
        if key != last:
            starts.append(row)
        last = key
    starts.append(len(names))
    return starts


def _share(count: int) -> tuple[int, int]:
    """The first item, and one past the last: all, or this worker's part where torch has several."""
    torch = sys.modules.get("torch.utils.data")
    info = torch.get_worker_info() if torch else None
    if info is None:
        return 0, count
    return count * info.id // info.num_workers, count * (info.id + 1) // info.num_workers
