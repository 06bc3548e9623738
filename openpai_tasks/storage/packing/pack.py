"""Pack a tree into shards, streamed into the store: complete with an index, or not at all.

The tree is walked first. A mark computed from it is part of the shards' names, so that the same tree gives
the same names, and no name that is in the folder already. Each shard is verified when it is written.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from openpai_tasks.errors import PathError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.storage.copying.progress import Watch
from openpai_tasks.storage.copying.transfer import put
from openpai_tasks.storage.crc import crc32c
from openpai_tasks.storage.location import Location
from openpai_tasks.storage.packing import target as targets
from openpai_tasks.storage.packing.formats import Format, find_format
from openpai_tasks.storage.packing.index import Index, Row, Shard
from openpai_tasks.storage.packing.members import PackMember, PackTree, members
from openpai_tasks.storage.packing.publish import NewSet, gathered
from openpai_tasks.storage.packing.shards import cut
from openpai_tasks.storage.packing.sources import contents
from openpai_tasks.storage.packing.target import PackTarget
from openpai_tasks.storage.store import Store


@dataclass(frozen=True)
class Packing:
    """Options of packing."""

    format: str = "tar"
    shard_size: int = 256 << 20
    name: str = ""
    replace: bool = False
    workers: int = 8


@dataclass(frozen=True)
class Packed:
    """The result of packing."""

    url: str
    format: str
    files: int
    folders: int
    bytes: int
    shards: int
    packed_bytes: int
    seconds: float


def pack(tree: Location, target: Location, rules: Packing, watch: Watch) -> Packed:
    """Pack the content of the folder into shards in the target folder."""
    began, form = time.monotonic(), find_format(rules.format)
    there, index = targets.inspect_target(target, rules.replace), Index(rules.format)
    walked = _walked(tree, target, form, index, watch)
    target.store.make_folder(target.path)
    targets.clear(target, there)
    new = NewSet(target, _free(walked, there, rules), there.shards)
    try:
        new.begin()
        for number, shard in enumerate(cut(walked.members(), rules.shard_size, form.measure)):
            name, path = new.shard(number, form.suffix)
            rows, size = _written(tree.store, shard, number, target.store, path, rules, watch)
            index.extend(rows)
            index.shards.append(Shard(name, size))
        new.publish(index)
    except BaseException:
        new.discard()
        raise
    seconds = round(time.monotonic() - began, 3)
    counts = len(index), len(index.folders), sum(index.size), len(index.shards)
    return Packed(target.url, rules.format, *counts, sum(shard.size for shard in index.shards), seconds)


def _walked(tree: Location, target: Location, form: Format, index: Index, watch: Watch) -> PackTree:
    """Return the members for the shards; folders only if the format supports them."""
    walked = PackTree(tree.path)
    for member in members(tree, target.store.address(target.path)):
        watch.check()
        walked.add(member, form.holds_folders or not member.is_folder)
        if member.is_folder:
            index.add_folder(member.name, member.mode)
        elif form.most and member.size > form.most:
            raise PathError(f"{member.path}: a file of 2 GiB or more can only be packed as tar")
        else:
            watch.found(member.size)
    return walked


def _free(walked: PackTree, there: PackTarget, rules: Packing) -> str:
    """Return the prefix of the shards' names: the first mark of the tree that is unused in the folder."""
    marks = walked.marks(rules.format, rules.shard_size)
    return next(begins for mark in marks if not there.is_taken(begins := f"{rules.name}-{mark}-"))


def _written(
    source: Store, shard: list[PackMember], number: int, store: Store, path: str, rules: Packing, watch: Watch
) -> tuple[Index, int]:
    """Write the shard, with retries; return the positions of its members and its size."""

    rows, moved = Index(rules.format), [0]

    def begin() -> Iterator[bytes]:
        nonlocal rows
        _take_back(moved, watch)
        rows = Index(rules.format)
        return gathered(_shard(source, shard, number, rules, rows, watch, moved))

    try:
        size = put(store, path, begin, wait=watch.wait)
    except BaseException:
        _take_back(moved, watch)
        raise
    return rows, size


def _take_back(moved: list[int], watch: Watch) -> None:
    """Subtract what a failed try has counted."""
    watch.moved(-moved[0])
    moved[0] = 0


def _shard(
    source: Store,
    shard: list[PackMember],
    number: int,
    rules: Packing,
    rows: Index,
    watch: Watch,
    moved: list[int],
) -> Iterator[bytes]:
    """Yield the bytes of a shard; record what has been sent in ``rows`` and ``moved``."""
    encoder = find_format(rules.format).encoder(shard)
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
