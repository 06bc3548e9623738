"""Read the files for a shard: small ones are fetched ahead, large ones streamed."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from openpai_tasks.errors import PathError
from openpai_tasks.storage.copying.progress import Watch
from openpai_tasks.storage.packing.members import PackMember
from openpai_tasks.storage.store import PIECE, Store

AT_ONCE = 32
"""Small files that one worker fetches together, up to PIECE bytes in total."""
QUICK = 0.0005
"""Seconds per small file; if reading is this fast, one thread reads all files."""


def contents(
    store: Store, members: Iterable[PackMember], workers: int, watch: Watch
) -> Iterator[tuple[PackMember, Iterable[bytes]]]:
    """Yield each member with the pieces of its content, in order; raise if a file changes meanwhile."""
    batches = _batches(members)
    first = next(batches, [])
    began = time.perf_counter()
    fetched = _fetched(store, first, watch) if _is_small(first) else None
    is_quick = fetched is not None and time.perf_counter() - began < QUICK * len(first)
    yield from _handed_on(store, first, fetched, watch)
    if is_quick or workers < 2:  # then threads would only slow each other down
        for batch in batches:
            yield from _handed_on(store, batch, None, watch)
    else:
        yield from _in_parallel(store, batches, workers, watch)


def _in_parallel(
    store: Store, batches: Iterable[list[PackMember]], workers: int, watch: Watch
) -> Iterator[tuple[PackMember, Iterable[bytes]]]:
    """Fetch as many small batches at once as there are workers, and as many more ahead."""
    ahead: deque[tuple[list[PackMember], Future[list[bytes]] | None]] = deque()
    with ThreadPoolExecutor(workers, "pack") as pool:
        try:
            for batch in batches:
                ahead.append(
                    (batch, pool.submit(_fetched, store, batch, watch) if _is_small(batch) else None)
                )
                if len(ahead) > 2 * workers:
                    yield from _awaited(store, *ahead.popleft(), watch)
            while ahead:
                yield from _awaited(store, *ahead.popleft(), watch)
        finally:
            pool.shutdown(cancel_futures=True)


def _batches(members: Iterable[PackMember]) -> Iterator[list[PackMember]]:
    """Group small neighbours; keep a large file alone."""
    batch: list[PackMember] = []
    size = 0
    for member in members:
        if batch and (size + member.size > PIECE or len(batch) == AT_ONCE):
            yield batch
            batch, size = [], 0
        batch.append(member)
        size += member.size
    if batch:
        yield batch


def _is_small(batch: list[PackMember]) -> bool:
    return bool(batch) and batch[0].size <= PIECE


def _awaited(
    store: Store, batch: list[PackMember], fetched: Future[list[bytes]] | None, watch: Watch
) -> Iterator[tuple[PackMember, Iterable[bytes]]]:
    yield from _handed_on(store, batch, fetched.result() if fetched else None, watch)


def _handed_on(
    store: Store, batch: list[PackMember], fetched: list[bytes] | None, watch: Watch
) -> Iterator[tuple[PackMember, Iterable[bytes]]]:
    watch.check()
    if fetched is None:
        yield from ((member, _content(store, member, watch)) for member in batch)
    else:
        yield from ((member, [content]) for member, content in zip(batch, fetched, strict=True))


def _fetched(store: Store, batch: list[PackMember], watch: Watch) -> list[bytes]:
    return [b"".join(_content(store, member, watch)) for member in batch]


def _content(store: Store, member: PackMember, watch: Watch) -> Iterator[bytes]:
    """Yield the pieces; raise unless they have the listed size and, if the store has one, the digest."""
    if member.is_folder:
        return
    digest = store.digest(member.path) if store.knows_digests else None
    hasher = store.hasher(digest.kind) if digest else None
    count = 0
    # Files that claim to be empty may have content.
    for piece in store.read(member.path, 0, member.size or None):
        watch.check()
        count += len(piece)
        if count > member.size:
            break
        if hasher:
            hasher.update(piece)
        yield piece
    _refuse_changed(store, member, count, hasher is None or hasher.digest() == digest)


def _refuse_changed(store: Store, member: PackMember, count: int, is_intact: bool) -> None:
    now = store.stat(member.path)
    if now is None or (count, now.size, now.mtime_ms) != (member.size, member.size, member.mtime_ms):
        raise PathError(
            f"{member.path}: it changed while it was packed; pack again when nothing writes to it"
        )
    if not is_intact:
        raise PathError(f"{member.path}: damaged in transit: its checksum differs")
