"""Pack a tree into shards, streamed into the store: complete with an index, or not at all.

The tree is walked first. A mark computed from it is part of the shards' names, so that the same tree gives
the same names, and no name that is in the folder already. Each shard is verified when it is written.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence

from openpai_tasks.errors import PathError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.storage.copying.claims import claiming, keep_claim
from openpai_tasks.storage.copying.progress import Watch
from openpai_tasks.storage.copying.transfer import put
from openpai_tasks.storage.crc import crc32c, crc32c_of
from openpai_tasks.storage.location import Location
from openpai_tasks.storage.packing import target as targets
from openpai_tasks.storage.packing.formats import find_format
from openpai_tasks.storage.packing.index import Index, Shard
from openpai_tasks.storage.packing.members import PackMember, PackTree, folders
from openpai_tasks.storage.packing.shards import Format
from openpai_tasks.storage.packing.sources import batches, stream_file
from openpai_tasks.storage.packing.target import NewSet, PackTarget, join_pieces
from openpai_tasks.storage.store import Store

MOST = 100_000
"""Maximum number of files in a shard, however small: their list is kept in memory for retries."""

Measure = Callable[[PackMember], int]
"""Returns the bytes that a member takes in a shard."""


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


@claiming()
def pack(tree: Location, target: Location, rules: Packing, watch: Watch) -> Packed:
    """Pack the content of the folder into shards in the target folder."""
    began, form = time.monotonic(), find_format(rules.format)
    there, index = targets.inspect_target(target, rules.replace), Index(rules.format)
    walked = _walk_tree(tree, target, form, index, watch)
    target.store.make_folder(target.path)
    targets.clear(target, there)
    new = NewSet(target, _unused_prefix(walked, there, rules), there.files)
    try:
        new.begin()
        for number, shard in enumerate(cut(walked.members(), rules.shard_size, form.measure)):
            name, path = new.shard(number, form.suffix)
            made, size = _write_shard(tree.store, shard, target.store, path, rules, watch)
            index.add_shard(Shard(name, size), made.files, made.offsets, made.crcs)
        new.publish(index)
    except BaseException:
        keep_claim()
        new.discard()
        raise
    seconds = round(time.monotonic() - began, 3)
    counts = len(index), len(index.folders), sum(index.size), len(index.shards)
    return Packed(target.url, rules.format, *counts, sum(shard.size for shard in index.shards), seconds)


def _walk_tree(tree: Location, target: Location, form: Format, index: Index, watch: Watch) -> PackTree:
    """Return the members for the shards; folders only if the format supports them."""
    walked = PackTree(form.holds_folders)
    for folder in folders(tree, target.store.address(target.path)):
        walked.add(folder)
        if folder.name:
            index.add_folder(folder.name, folder.mode)
        watch.check()
        for size in folder.sizes():
            watch.found(size)
            if form.most and size > form.most:
                large = next(member.path for member in folder.members() if member.size > form.most)
                raise PathError(f"{large}: a file of 2 GiB or more can only be packed as tar or har")
    return walked


def _unused_prefix(walked: PackTree, there: PackTarget, rules: Packing) -> str:
    """Return the prefix of the shards' names: the first mark of the tree that is unused in the folder."""
    marks = walked.marks(rules.format, rules.shard_size)
    return next(begins for mark in marks if not there.is_taken(begins := f"{rules.name}-{mark}-"))


def _write_shard(
    source: Store, members: list[PackMember], store: Store, path: str, rules: Packing, watch: Watch
) -> tuple[ShardBytes, int]:
    """Write a shard, with retries; return what it consists of, and its size."""
    made: list[ShardBytes] = []

    def begin() -> Iterator[bytes]:
        for failed in made:
            failed.undo_progress()
        made[:] = [ShardBytes(source, members, rules.format, rules.workers, watch)]
        return join_pieces(made[0])

    try:
        size = put(store, path, begin, wait=watch.wait)
    except BaseException:
        for failed in made:
            failed.undo_progress()
        raise
    return made[0], size


def cut(members: Iterable[PackMember], shard_size: int, measure: Measure) -> Iterator[list[PackMember]]:
    """Yield the members of each shard; a member larger than a shard gets its own."""
    shard: list[PackMember] = []
    filled = 0
    for sample, size in samples(members, shard_size, measure):
        if shard and (filled + size > shard_size or len(shard) + len(sample) > MOST):
            yield shard
            shard, filled = [], 0
        shard += sample
        filled += size
    if shard:
        yield shard


def samples(
    members: Iterable[PackMember], most: int, measure: Measure
) -> Iterator[tuple[list[PackMember], int]]:
    """Yield groups to keep together, with their size: the files of a sample, unless they exceed a shard."""
    sample: list[PackMember] = []
    name, size, is_large = "", 0, False
    for member in members:
        if member.sample != name:
            if sample:
                yield sample, size
            sample, name, size, is_large = [], member.sample, 0, False
        size += measure(member)
        sample.append(member)
        is_large = is_large or size > most or len(sample) > MOST
        if is_large:
            yield from (([each], measure(each)) for each in sample)
            sample = []
    if sample:
        yield sample, size


class ShardBytes:
    """One try to produce a shard; ``offsets`` and ``crcs`` have a number for each file that was read."""

    def __init__(
        self, source: Store, members: list[PackMember], format: str, workers: int, watch: Watch
    ) -> None:
        self._source, self._members, self._workers, self._watch = source, members, workers, watch
        self._encoder = find_format(format).encoder(members)
        self._at = self._moved = 0
        self.offsets, self.crcs = array("Q"), array("q")

    @property
    def files(self) -> list[PackMember]:
        return [member for member in self._members if not member.is_folder]

    def __iter__(self) -> Iterator[Sequence[bytes]]:
        """Yield the pieces in groups."""
        yield ((head := self._encoder.head()),)
        self._at = len(head)
        for batch, contents in batches(self._source, self._members, self._workers, self._watch):
            if contents is None:
                yield from ((piece,) for piece in self._large(batch[0]))
            else:
                yield self._small(batch, contents)
        yield (self._encoder.tail(),)

    def undo_progress(self) -> None:
        """Subtract what was counted, as the try has failed."""
        self._watch.moved(-self._moved)
        self._moved = 0

    def _small(self, batch: list[PackMember], contents: list[bytes]) -> list[bytes]:
        encoder, at, pieces = self._encoder, self._at, list[bytes]()
        add, ended = self.offsets.append, self._watch.ended
        for member, content in zip(batch, contents, strict=True):
            before = encoder.before(member, at)
            encoder.update(content)
            after = encoder.after(member)
            at += len(before)
            if not member.is_folder:
                add(at)
                ended(member.path, "copied", member.size)
            pieces += before, content, after
            at += len(content) + len(after)
        self._at = at
        pairs = zip(batch, contents, strict=True)
        self.crcs.extend(crc32c_of(content) for member, content in pairs if not member.is_folder)
        self._count(sum(map(len, contents)))
        return pieces

    def _large(self, member: PackMember) -> Iterator[bytes]:
        before, crc = self._encoder.before(member, self._at), 0
        yield before
        for piece in stream_file(self._source, member, self._watch):
            crc = crc32c(piece, crc)
            self._encoder.update(piece)
            self._count(len(piece))
            yield piece
        self.offsets.append(self._at + len(before))
        self.crcs.append(crc)
        self._watch.ended(member.path, "copied", member.size)
        yield (after := self._encoder.after(member))
        self._at += len(before) + member.size + len(after)

    def _count(self, size: int) -> None:
        self._moved += size
        self._watch.moved(size)
