"""Publish a new set: complete under new names first, then switched to at once.

Shards get names that are unused in the folder, so they can be written beside those of the current set.
Replacing the index is the switch: before it the old set is complete, after it the new one; the replaced
shards are removed only then. Of two packs at once, the one that writes its index last wins.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence

from openpai_tasks.errors import PaiError
from openpai_tasks.storage.copying.claims import part_name
from openpai_tasks.storage.copying.transfer import put
from openpai_tasks.storage.location import Location
from openpai_tasks.storage.packing import index as indexes
from openpai_tasks.storage.packing.index import Index
from openpai_tasks.storage.packing.opened import places
from openpai_tasks.storage.packing.target import UnfinishedPack, named_shards, remove
from openpai_tasks.storage.store import PIECE, WritesWhole


class NewSet:
    """The shards of a set that is not published yet."""

    def __init__(self, target: Location, begins: str, replaces: tuple[str, ...]) -> None:
        self._target, self._begins = target, begins
        self._note = UnfinishedPack(target.join(part_name(claimed=False)).path, begins, replaces)
        self._is_direct = isinstance(target.store, WritesWhole)  # these stores rename by copying
        self._parts, self._names = list[str](), list[str]()
        self._is_there = False

    def begin(self) -> None:
        """Write the note that identifies the shards of this pack."""
        self._note.write(self._target.store)

    def shard(self, number: int, suffix: str) -> tuple[str, str]:
        """Return the next shard's name and the path to write to.

        The path is the final one if the store writes whole files, else a temporary one.
        """
        name = f"{self._begins}{number:06d}{suffix}"
        if not self._is_direct:
            return name, self._part()
        self._names.append(name)
        return name, self._target.join(name).path

    def publish(self, index: Index) -> None:
        """Give the shards their names, then replace the index."""
        store, path = self._target.store, self._target.join(indexes.NAME).path

        def text() -> Iterator[bytes]:
            return gathered((lines,) for lines in indexes.written(index))

        if not self._is_direct:
            shards, part = [*self._parts], self._part()
            put(store, part, text)  # the last write that needs space
            for shard, written in zip(index.shards, shards, strict=True):
                self._names.append(shard.name)
                store.rename(written, self._target.join(shard.name).path)
        places(self._target, index)  # other packs may have removed shards if this took very long
        old = named_shards(self._target) or ()
        if self._is_direct:
            put(store, path, text)
        else:
            store.rename(part, path)
        self._is_there = True
        self._remove_old(set(old).difference(self._names))

    def discard(self) -> None:
        """Remove the unpublished shards, unless they belong to an identical set that is published."""
        for part in self._parts:
            with contextlib.suppress(PaiError):
                self._target.store.remove(part)
        with contextlib.suppress(PaiError):
            if not self._is_there and not {*(named_shards(self._target) or ())}.intersection(self._names):
                remove(self._target, self._names)
                self._target.store.remove(self._note.path)

    def _part(self) -> str:
        self._parts.append(self._target.join(part_name()).path)
        return self._parts[-1]

    def _remove_old(self, names: Iterable[str]) -> None:
        """Remove replaced shards; if that fails, the note makes a later pack remove them."""
        with contextlib.suppress(PaiError):
            remove(self._target, names)
            self._target.store.remove(self._note.path)


def gathered(groups: Iterable[Sequence[bytes]]) -> Iterator[bytes]:
    """Join small pieces, which come in groups, to larger ones."""
    waiting, size = list[bytes](), 0
    for pieces in groups:
        waiting += pieces
        size += sum(map(len, pieces))
        if size >= PIECE:
            yield b"".join(waiting)
            waiting, size = [], 0
    if size:
        yield b"".join(waiting)
