"""The target folder of a pack: its contents, and which pack they belong to.

A set's files are those that its index names. A running pack has a note in the folder, named like any
unfinished file, with the names of its shards and of those it replaces. The note distinguishes the files of a
killed pack from those of others and of packs that still run.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from openpai_tasks.errors import NotFound, PaiError, PathError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.storage.copying.claims import part_name
from openpai_tasks.storage.copying.transfer import is_stale, put
from openpai_tasks.storage.location import Location
from openpai_tasks.storage.packing import index as indexes
from openpai_tasks.storage.packing.formats import FORMATS, find_format
from openpai_tasks.storage.packing.index import Index
from openpai_tasks.storage.packing.packed_set import locate_shards
from openpai_tasks.storage.parts import is_part
from openpai_tasks.storage.store import PIECE, Entry, Store, WritesWhole

SHARD = re.compile(r"(.*-)\d{6,}\.(tar|tfrecord|seq|part)", re.S)
"""The name of a shard, and the common prefix of its set."""
WHAT = "openpai-tasks pack on its way"
MOST = 16 << 20
"""Bytes of a note; a larger file is not a note."""


@dataclass(frozen=True)
class UnfinishedPack:
    """The files that an unfinished pack may have left in the folder."""

    path: str
    begins: str
    replaces: tuple[str, ...]
    is_stale: bool = False

    def covers(self, name: str) -> bool:
        shard = SHARD.fullmatch(name)
        return name in self.replaces or (shard is not None and shard[1] == self.begins)

    def write(self, store: Store) -> None:
        record = {"what": WHAT, "begins": self.begins, "replaces": self.replaces}
        put(store, self.path, lambda: [json.dumps(record).encode()])


@dataclass(frozen=True)
class PackTarget:
    """The content of the target folder, all of it from packs."""

    files: tuple[str, ...] = ()
    """The shards of the published set, and other files of its format."""
    names: tuple[str, ...] = ()
    """Names of all files except those being written."""
    notes: tuple[UnfinishedPack, ...] = ()
    stale: tuple[str, ...] = ()
    """Paths of other unfinished files that are abandoned."""

    def is_taken(self, begins: str) -> bool:
        """Whether a published, replaced or running set uses this prefix."""
        replaced = (name for note in self.notes for name in note.replaces)
        return any(name.startswith(begins) for name in (*self.names, *replaced)) or any(
            note.begins == begins for note in self.notes
        )


def inspect_target(target: Location, replace: bool) -> PackTarget:
    """Return the content of the target; raise for foreign files, and for a set without ``replace``."""
    entry = target.store.stat(target.path)
    if entry is None:
        return PackTarget()
    if not entry.is_folder:
        raise PathError(f"{target.url}: a file is there, not a folder")
    shards = _replaceable(target)
    entries, parts = list[Entry](), list[Entry]()
    for found in target.store.list(target.path):
        if is_part(found):
            parts.append(found)
        elif found.is_folder or not _may_be_ours(found.name, shards or ()):
            raise _foreign_file(target, found.name)
        else:
            entries.append(found)
    notes = tuple(filter(None, (_note(target.store, part) for part in parts)))
    names = tuple(found.name for found in entries)
    unknown = {*names} - {indexes.NAME, *(shards or ())}
    unknown = {name for name in unknown if not any(note.covers(name) for note in notes)}
    if unknown:
        unknown -= {*(_replaceable(target) or ())}  # another pack may have ended since the index was read
    for name in sorted(unknown):
        raise _foreign_file(target, name)
    if shards is not None and not replace:
        raise PathError(f"{target.url} contains packed files already; --replace replaces them")
    noted = {note.path for note in notes}
    stale = tuple(part.path for part in parts if is_stale(part) and part.path not in noted)
    return PackTarget(shards or (), names, notes, stale)


def named_files(target: Location) -> tuple[str, ...] | None:
    """Return the files of the set that the folder's index describes now; None without an index."""
    place = target.join(indexes.NAME)
    if place.store.stat(place.path) is None:
        return None
    head = indexes.read_head(place.store.read(place.path), place.url)
    others = FORMATS[head.format].companions if head.format in FORMATS else ()
    return (*(shard.name for shard in head.shards), *others)


def clear(target: Location, there: PackTarget) -> None:
    """Remove leftovers of old packs and copies; those that cannot be removed do no harm."""
    for path in there.stale:
        with contextlib.suppress(PaiError):
            target.store.remove(path)
    for note in there.notes:
        if note.is_stale:
            left = (name for name in there.names if note.covers(name) and name not in there.files)
            with contextlib.suppress(PaiError):
                remove(target, left)
                target.store.remove(note.path)


def remove(target: Location, names: Iterable[str]) -> None:
    """Remove these files from the folder; missing ones are fine."""
    for name in names:
        if name != indexes.NAME:
            with contextlib.suppress(NotFound):
                target.store.remove(target.join(name).path)


def _replaceable(target: Location) -> tuple[str, ...] | None:
    try:
        return named_files(target)
    except PathError as err:
        raise PathError(f"{err}; remove it, or pack into an empty folder") from err


def _may_be_ours(name: str, shards: tuple[str, ...]) -> bool:
    return name == indexes.NAME or name in shards or SHARD.fullmatch(name) is not None


def _foreign_file(target: Location, name: str) -> PathError:
    why = "which no index there names" if SHARD.fullmatch(name) else "which is not of a packed set"
    return PathError(f"{target.url} contains {name!r}, {why}: pack into an empty folder")


def _note(store: Store, part: Entry) -> UnfinishedPack | None:
    """Return the note in this file, or None."""
    if part.size > MOST:
        return None
    try:
        record = json.loads(b"".join(store.read(part.path, 0, MOST)))
        if record["what"] != WHAT:
            return None
        return UnfinishedPack(
            part.path, str(record["begins"]), tuple(map(str, record["replaces"])), is_stale(part)
        )
    except (PaiError, ValueError, KeyError, TypeError, RecursionError):
        return None  # without a valid note, no file is attributed to a pack or removed


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
        """Give the shards their names, replace the index, and then the files for other programs."""
        target, written_shards = self._target, [*self._parts]
        texts: dict[str, Callable[[], Iterator[bytes]]] = {
            indexes.NAME: lambda: join_pieces((lines,) for lines in indexes.encode(index))
        }
        form = find_format(index.format)
        if form.encode_companions:
            companions = zip(form.companions, form.encode_companions(index), strict=True)
            texts |= {name: partial(iter, (text,)) for name, text in companions}
        parts = {} if self._is_direct else {name: self._part() for name in texts}
        for name, part in parts.items():
            put(target.store, part, texts[name])  # the last writes that need space
        for shard, written in zip(index.shards, written_shards, strict=False):
            self._names.append(shard.name)
            target.store.rename(written, target.join(shard.name).path)
        locate_shards(target, index)  # other packs may have removed shards if this took very long
        old = named_files(target) or ()
        for name, text in texts.items():
            if self._is_direct:
                put(target.store, target.join(name).path, text)
            else:
                target.store.rename(parts[name], target.join(name).path)
            self._is_there = True
        self._remove_old(set(old).difference(self._names, texts))

    def discard(self) -> None:
        """Remove the unpublished shards, unless they belong to an identical set that is published."""
        for part in self._parts:
            with contextlib.suppress(PaiError):
                self._target.store.remove(part)
        with contextlib.suppress(PaiError):
            if not self._is_there and not {*(named_files(self._target) or ())}.intersection(self._names):
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


def join_pieces(groups: Iterable[Sequence[bytes]]) -> Iterator[bytes]:
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
