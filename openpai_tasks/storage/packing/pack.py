"""Pack a tree into shards, streamed into the store: complete with an index, or not at all.

The tree is walked first. A mark computed from it is part of the shards' names, so that the same tree gives
the same names, and no name that is in the folder already. Each shard is verified when it is written.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from openpai_tasks.errors import PathError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.storage.copying.claims import held, keep
from openpai_tasks.storage.copying.progress import Watch
from openpai_tasks.storage.copying.transfer import put
from openpai_tasks.storage.location import Location
from openpai_tasks.storage.packing import target as targets
from openpai_tasks.storage.packing.formats import Format, find_format
from openpai_tasks.storage.packing.index import Index, Shard
from openpai_tasks.storage.packing.members import PackMember, PackTree, folders
from openpai_tasks.storage.packing.publish import NewSet, gathered
from openpai_tasks.storage.packing.shard_bytes import ShardBytes
from openpai_tasks.storage.packing.shards import cut
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


@held()
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
            made, size = _written(tree.store, shard, target.store, path, rules, watch)
            index.add_shard(Shard(name, size), made.files, made.offsets, made.crcs)
        new.publish(index)
    except BaseException:
        keep()
        new.discard()
        raise
    seconds = round(time.monotonic() - began, 3)
    counts = len(index), len(index.folders), sum(index.size), len(index.shards)
    return Packed(target.url, rules.format, *counts, sum(shard.size for shard in index.shards), seconds)


def _walked(tree: Location, target: Location, form: Format, index: Index, watch: Watch) -> PackTree:
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
                raise PathError(f"{large}: a file of 2 GiB or more can only be packed as tar")
    return walked


def _free(walked: PackTree, there: PackTarget, rules: Packing) -> str:
    """Return the prefix of the shards' names: the first mark of the tree that is unused in the folder."""
    marks = walked.marks(rules.format, rules.shard_size)
    return next(begins for mark in marks if not there.is_taken(begins := f"{rules.name}-{mark}-"))


def _written(
    source: Store, members: list[PackMember], store: Store, path: str, rules: Packing, watch: Watch
) -> tuple[ShardBytes, int]:
    """Write a shard, with retries; return what it consists of, and its size."""
    made: list[ShardBytes] = []

    def begin() -> Iterator[bytes]:
        for failed in made:
            failed.take_back()
        made[:] = [ShardBytes(source, members, rules.format, rules.workers, watch)]
        return gathered(made[0])

    try:
        size = put(store, path, begin, wait=watch.wait)
    except BaseException:
        for failed in made:
            failed.take_back()
        raise
    return made[0], size
