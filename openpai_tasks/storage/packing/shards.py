"""Assign files to shards by size alone, keeping the files of a sample together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from openpai_tasks.storage.packing.members import PackMember

MOST = 100_000
"""Maximum number of files in a shard, however small: their list is kept in memory for retries."""

Measure = Callable[[PackMember], int]
"""Returns the bytes that a member takes in a shard."""


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
