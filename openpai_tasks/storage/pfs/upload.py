"""Write a file of PFS in place, chunk by chunk: only chunks that differ are sent.

PFS cannot rename, so a file is written under its own name. Its last chunk is sent last, after all others have
been verified: until then the file is shorter than it will be, or at least not as new, and the next copy
continues it.
"""

from __future__ import annotations

import collections
import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from openpai_tasks.errors import PathError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.storage.pfs.connection import ChunkSum, PfsConnection
from openpai_tasks.storage.retry import Damaged, retrying

PARALLEL = 4  # chunks of one file in transit at once


@dataclass(frozen=True)
class PfsUpload:
    """A file to write, and the check that must pass before its last chunk is sent."""

    path: str
    size: int | None
    mtime_ms: int | None = None
    check: Callable[[], None] | None = None

    def last_offset(self, chunk: int) -> int:
        """Return where the last chunk begins."""
        return max((self.size or 0) - 1, 0) // chunk * chunk


class LocalChunk(NamedTuple):
    offset: int
    data: bytes

    @property
    def end(self) -> int:
        return self.offset + len(self.data)


def send(
    connection: PfsConnection, slots: threading.Semaphore, upload: PfsUpload, pieces: Iterable[bytes]
) -> None:
    """Write the file; ``slots`` limits the chunks in transit of all files."""
    writer = _Writer(connection, upload)
    last: LocalChunk | None = None
    with _Crew(slots, writer.settle) as crew:
        for chunk in _chunks(pieces, connection.chunk):
            if upload.size is not None and chunk.end > upload.size:
                raise Damaged(f"{upload.path}: got more than {upload.size} bytes; it changed")
            if last is not None:
                crew.settle(last)
            last = chunk
    total = last.end if last else 0
    if upload.check is not None:
        upload.check()
    if upload.size is not None and total != upload.size:
        raise Damaged(f"{upload.path}: got {total} of {upload.size} bytes; it changed or was truncated")
    writer.finish(last)


class _Writer:
    """The file at the server, while it is written."""

    def __init__(self, connection: PfsConnection, upload: PfsUpload) -> None:
        self._connection, self._upload, self._lock = connection, upload, threading.Lock()
        self._is_begun = self._creates = self._has_time = False
        self._kept = self._begin()  # bytes at the server that may be right

    def settle(self, chunk: LocalChunk, mtime_ms: int | None = None) -> None:
        """Send the chunk unless the server has it, and verify what it has then."""
        ours = ChunkSum(len(chunk.data), hashlib.md5(chunk.data, usedforsecurity=False).hexdigest())
        if chunk.offset < self._kept and self._sum(chunk.offset) == ours:
            return
        self._cut()
        retrying(lambda: self._write(chunk, ours, mtime_ms))

    def finish(self, last: LocalChunk | None) -> None:
        """Send the last chunk, verify the size, and set the time."""
        path, size, mtime_ms = self._upload.path, last.end if last else 0, self._upload.mtime_ms
        if self._kept > size:
            self._cut()
        if last:
            self.settle(last, mtime_ms if self._connection.checks_chunks else None)
        elif self._creates:
            retrying(lambda: self._connection.resize(path, 0))
        if last is None or len(last.data) == self._connection.chunk:
            there = retrying(lambda: self._connection.stat(path))
            if there is None or there.size != size:
                count = "nothing" if there is None else f"{there.size} bytes"
                raise Damaged(f"{path}: {count} arrived of {size} bytes")
        if mtime_ms is not None and not self._has_time:
            retrying(lambda: self._connection.resize(path, size, mtime_ms))

    def _begin(self) -> int:
        """Create the file, or return how much of it can be kept."""
        path, size = self._upload.path, self._upload.size
        there = retrying(lambda: self._connection.stat(path))
        if there is not None and there.is_folder:
            raise PathError(f"{path}: a folder is there, so a file cannot be written")
        if there is None and self._connection.checks_chunks:
            self._creates = True
            return 0
        keeps = size is not None and (self._connection.keeps_content or size >= (there.size if there else 0))
        if there is not None and keeps:
            return there.size
        if there is None or there.size:
            retrying(lambda: self._connection.resize(path, 0))
        return 0

    def _cut(self) -> None:
        """Before the first change, cut off the last chunk: a file that is being changed is too short."""
        with self._lock:
            upload, begun, self._is_begun = self._upload, self._is_begun, True
            is_longer = upload.size is not None and 0 < self._kept >= upload.size
            if begun or not is_longer or not self._connection.keeps_content:
                return
            end = upload.last_offset(self._connection.chunk)
            retrying(lambda: self._connection.resize(upload.path, end))
            self._kept = min(self._kept, end)

    def _write(self, chunk: LocalChunk, ours: ChunkSum, mtime_ms: int | None) -> None:
        path = self._upload.path
        found = self._connection.write(path, chunk.offset, chunk.data, self._creates, mtime_ms)
        theirs = found or self._connection.sum(path, chunk.offset)
        if theirs != ours:
            raise Damaged(f"{path}: damaged in transit (MD5 {theirs.md5} instead of {ours.md5})")
        self._has_time = mtime_ms is not None

    def _sum(self, offset: int) -> ChunkSum:
        return retrying(lambda: self._connection.sum(self._upload.path, offset))


class _Crew:
    """Settles chunks in parallel while there are free slots, else in the calling thread."""

    def __init__(self, slots: threading.Semaphore, settle: Callable[[LocalChunk], None]) -> None:
        self._slots, self._settle = slots, settle
        self._pool: ThreadPoolExecutor | None = None
        self._underway: collections.deque[Future[None]] = collections.deque()

    def __enter__(self) -> _Crew:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            while self._underway and kind is None:
                self._underway.popleft().result()
        finally:
            if self._pool is not None:
                self._pool.shutdown(cancel_futures=True)

    def settle(self, chunk: LocalChunk) -> None:
        while self._underway and self._underway[0].done():
            self._underway.popleft().result()
        if len(self._underway) == PARALLEL:
            self._underway.popleft().result()
        if not self._slots.acquire(blocking=False):
            return self._settle(chunk)
        self._pool = self._pool or ThreadPoolExecutor(PARALLEL)
        future = self._pool.submit(self._settle, chunk)
        future.add_done_callback(lambda _: self._slots.release())
        self._underway.append(future)


def _chunks(pieces: Iterable[bytes], size: int) -> Iterator[LocalChunk]:
    """Cut pieces of any size into chunks."""
    found, offset = bytearray(), 0
    for piece in pieces:
        found += piece
        while len(found) >= size:
            yield LocalChunk(offset, bytes(found[:size]))
            del found[:size]
            offset += size
    if found:
        yield LocalChunk(offset, bytes(found))
