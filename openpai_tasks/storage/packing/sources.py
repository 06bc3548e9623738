"""Read the files for a shard: small ones are fetched ahead, large ones streamed."""

from __future__ import annotations

import os
import stat
import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from openpai_tasks.errors import PaiError, PathError
from openpai_tasks.storage.copying.progress import Watch
from openpai_tasks.storage.local.store import LocalStore
from openpai_tasks.storage.packing.members import PackMember
from openpai_tasks.storage.store import PIECE, Store

AT_ONCE = 32
"""Small files that one worker fetches together, up to PIECE bytes in total."""
QUICK = 0.0005
"""Seconds per small file; if reading is this fast, one thread reads all files."""


Batch = tuple[list[PackMember], list[bytes] | None]
"""Small files with their contents; or one large file, which is to be streamed."""
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def batches(store: Store, members: Iterable[PackMember], workers: int, watch: Watch) -> Iterator[Batch]:
    """Yield all members in order; raise if a file changes meanwhile."""
    groups = _groups(members)
    first = next(groups, None)
    if first is None:
        return
    with FolderReader(store) as reader:
        began = time.perf_counter()
        found = _fetch(store, first, watch, reader)
        is_quick = found[1] is not None and time.perf_counter() - began < QUICK * len(first)
        yield found
        if is_quick or workers < 2:  # then threads would only slow each other down
            yield from (_fetch(store, group, watch, reader) for group in groups)
            return
    yield from _in_parallel(store, groups, workers, watch)


def _in_parallel(
    store: Store, groups: Iterable[list[PackMember]], workers: int, watch: Watch
) -> Iterator[Batch]:
    """Fetch as many batches at once as there are workers, and as many more ahead."""
    ahead: deque[Future[Batch]] = deque()
    with ThreadPoolExecutor(workers, "pack") as pool:
        try:
            for group in groups:
                ahead.append(pool.submit(_fetch_with_own_reader, store, group, watch))
                if len(ahead) > 2 * workers:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


def _groups(members: Iterable[PackMember]) -> Iterator[list[PackMember]]:
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


def _fetch_with_own_reader(store: Store, group: list[PackMember], watch: Watch) -> Batch:
    with FolderReader(store) as reader:
        return _fetch(store, group, watch, reader)


def _fetch(store: Store, group: list[PackMember], watch: Watch, reader: FolderReader) -> Batch:
    watch.check()
    if group[0].size > PIECE:
        return group, None
    found = zip(group, map(reader.read, group), strict=True)
    return group, [
        b"".join(stream_file(store, member, watch)) if content is None else content
        for member, content in found
    ]


def stream_file(store: Store, member: PackMember, watch: Watch) -> Iterator[bytes]:
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
    _check_unchanged(store, member, count, hasher is None or hasher.digest() == digest)


def _check_unchanged(store: Store, member: PackMember, count: int, is_intact: bool) -> None:
    now = store.stat(member.path)
    if now is None or (count, now.size, now.mtime_ms) != (member.size, member.size, member.mtime_ms):
        raise PathError(
            f"{member.path}: it changed while it was packed; pack again when nothing writes to it"
        )
    if not is_intact:
        raise PathError(f"{member.path}: damaged in transit: its checksum differs")


class FolderReader:
    """Keeps the folder of the last file open, as the next one is mostly beside it."""

    def __init__(self, store: Store) -> None:
        self._store = store if isinstance(store, LocalStore) else None
        self._folder, self._handle = "", -1

    def __enter__(self) -> FolderReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def read(self, member: PackMember) -> bytes | None:
        """Return the content of a regular file as it was listed; None if it has to be read in another way.

        Files that claim to be empty may have content.
        """
        size = member.size
        if self._store is None or not 0 < size <= PIECE:
            return None
        folder, _, name = member.path.rpartition("/")
        try:
            if folder != self._folder or self._handle < 0:
                self._close()
                self._folder, self._handle = folder, self._store.open_folder(folder or "/")
            handle = os.open(name, FILE, dir_fd=self._handle)
            try:
                content = os.read(handle, size)
                facts = os.fstat(handle)  # after the last byte was read, so that no change is missed
            finally:
                os.close(handle)
        except (OSError, PaiError):
            return None
        is_same = len(content) == facts.st_size == size
        is_same = is_same and facts.st_mtime_ns // 1_000_000 == member.mtime_ms
        return content if is_same and stat.S_ISREG(facts.st_mode) and facts.st_nlink > 0 else None

    def _close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
