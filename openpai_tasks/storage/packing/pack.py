"""A tree into shards, streamed into the store: complete, with its index, or not there at all.

Shards are written under other names, each verified; when all are there they get their own names, and the
index comes last: without it there is no set. So neither a pack that fails nor one that is killed leaves a
set that looks like one, and the set that a new one replaces is whole until the new one is. On a store where
to rename is to copy, shards have their own names at once; there a set that is replaced ends first.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from openpai_tasks.errors import PaiError, PathError
from openpai_tasks.storage.location import Location
from openpai_tasks.storage.packing import index as indexes
from openpai_tasks.storage.packing.crc import crc32c
from openpai_tasks.storage.packing.formats import Format, named
from openpai_tasks.storage.packing.index import Index, Row, Shard
from openpai_tasks.storage.packing.members import Member, members
from openpai_tasks.storage.packing.shards import cut
from openpai_tasks.storage.packing.sources import contents
from openpai_tasks.storage.progress import Watch
from openpai_tasks.storage.retry import retrying
from openpai_tasks.storage.store import PIECE, Entry, Store, WritesWhole
from openpai_tasks.storage.transfer import is_part, is_stale, part_name, put

SHARD = re.compile(r".*-\d{6,}\.(tar|tfrecord|seq)", re.S)
"""The name of a shard of ours."""


@dataclass(frozen=True)
class Packing:
    """How to pack."""

    format: str = "tar"
    shard_size: int = 256 << 20
    name: str = ""
    replace: bool = False
    workers: int = 8


@dataclass(frozen=True)
class Packed:
    """What became of it."""

    url: str
    format: str
    files: int
    folders: int
    bytes: int
    shards: int
    packed_bytes: int
    seconds: float


def pack(tree: Location, target: Location, rules: Packing, watch: Watch) -> Packed:
    """Pack what is in the folder into shards in the target folder."""
    began, form = time.monotonic(), named(rules.format)
    old = _to_replace(target, rules.replace)
    target.store.make_folder(target.path)
    index, parts = Index(rules.format), list[str]()
    wanted = _noted(tree, target, form, index, watch)
    is_direct = isinstance(target.store, WritesWhole)  # where to rename is to copy
    try:
        if is_direct:
            _remove_index(target.store, old)
        for number, shard in enumerate(cut(wanted, rules.shard_size, form.measure)):
            name = f"{rules.name}-{number:06d}{form.suffix}"
            parts.append(target.join(name if is_direct else part_name()).path)
            rows, size = _written(tree.store, shard, number, target.store, parts[-1], rules, watch)
            index.extend(rows)
            index.shards.append(Shard(name, size))
        _publish(target, index, parts, old)
    except BaseException:
        _discard(target.store, parts)
        raise
    seconds = round(time.monotonic() - began, 3)
    counts = len(index), len(index.folders), sum(index.size), len(index.shards)
    return Packed(target.url, rules.format, *counts, sum(shard.size for shard in index.shards), seconds)


def _to_replace(target: Location, replace: bool) -> list[Entry]:
    """What an earlier set left in the target; anything else there, or no leave to replace it, is an error."""
    entry = target.store.stat(target.path)
    if entry is None:
        return []
    if not entry.is_folder:
        raise PathError(f"{target.url}: a file is there, not a folder")
    old = []
    for found in target.store.list(target.path):
        if is_part(found):
            if is_stale(found):
                with contextlib.suppress(PaiError):
                    target.store.remove(found.path)
        elif found.is_folder or not (found.name == indexes.NAME or SHARD.fullmatch(found.name)):
            raise PathError(f"{target.url} holds {found.name!r}: pack into a folder of its own")
        else:
            old.append(found)
    if old and not replace:
        raise PathError(f"{target.url} holds packed files already; --replace packs anew in their place")
    return old


def _noted(tree: Location, target: Location, form: Format, index: Index, watch: Watch) -> Iterator[Member]:
    """What goes into shards; the folders only where the format has a place for them."""
    for member in members(tree, target.store.address(target.path)):
        watch.check()
        if member.is_folder:
            index.add_folder(member.name, member.mode)
            if form.holds_folders:
                yield member
            continue
        if form.most and member.size > form.most:
            raise PathError(f"{member.path}: a file of 2 GiB or more can only be packed as tar")
        watch.found(member.size)
        yield member


def _written(
    source: Store, shard: list[Member], number: int, store: Store, path: str, rules: Packing, watch: Watch
) -> tuple[Index, int]:
    """The shard is there, with other tries where they help: where its members are, and its size."""

    def once() -> tuple[Index, int]:
        rows, moved = Index(rules.format), [0]
        pieces = _shard(source, shard, number, rules, rows, watch, moved)
        try:
            return rows, put(store, path, gathered(pieces))
        except BaseException:
            watch.moved(-moved[0])
            raise

    return retrying(once, watch.wait)


def _shard(
    source: Store,
    shard: list[Member],
    number: int,
    rules: Packing,
    rows: Index,
    watch: Watch,
    moved: list[int],
) -> Iterator[bytes]:
    """The bytes of a shard; ``rows`` and ``moved`` are told what has gone by."""
    encoder = named(rules.format).encoder(shard)
    yield (head := encoder.head())
    at = len(head)
    for member, pieces in contents(source, shard, rules.workers, watch):
        before, crc = encoder.before(member, at), 0
        yield before
        for piece in pieces:
            crc = crc32c(piece, crc)
            encoder.passing(piece)
            moved[0] += len(piece)
            watch.moved(len(piece))
            yield piece
        yield (after := encoder.after(member))
        at += len(before)
        if not member.is_folder:
            rows.add(Row(member.name, number, at, member.size, member.mode, member.mtime_ms, crc))
            watch.ended(member.path, "copied", member.size)
        at += member.size + len(after)
    yield encoder.tail()


def gathered(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in pieces that are worth sending."""
    waiting, size = list[bytes](), 0
    for piece in pieces:
        waiting.append(piece)
        size += len(piece)
        if size >= PIECE:
            yield b"".join(waiting)
            waiting, size = [], 0
    if size:
        yield b"".join(waiting)


def _publish(target: Location, index: Index, parts: list[str], old: list[Entry]) -> None:
    """The shards under their names, then the index; from the first name on, the old set is none any more."""
    store, new = target.store, {shard.name for shard in index.shards}
    _remove_index(store, old)
    for entry in old:
        if entry.name not in (*new, indexes.NAME):
            store.remove(entry.path)
    for shard, part in zip(index.shards, parts, strict=True):
        if part != target.join(shard.name).path:
            store.rename(part, target.join(shard.name).path)
    put(store, target.join(indexes.NAME).path, gathered(indexes.written(index)))


def _remove_index(store: Store, old: list[Entry]) -> None:
    for entry in old:
        if entry.name == indexes.NAME and store.stat(entry.path) is not None:
            store.remove(entry.path)


def _discard(store: Store, parts: list[str]) -> None:
    for part in parts:
        with contextlib.suppress(PaiError):
            store.remove(part)
