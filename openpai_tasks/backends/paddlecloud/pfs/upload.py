"""Write a file of PFS chunk by chunk: only chunks that differ from those at the server are sent.

A server that can replace files gets them under a temporary name first, beginning with a copy of the old file
that it makes itself. The original one cannot rename: there, a file is written in place, its last chunk last.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from openpai_tasks.backends.paddlecloud.pfs.connection import ChunkSum, PfsConnection, PfsEntry
from openpai_tasks.errors import NoSuchPath, PaiError, PathError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.storage.copying.claims import part_name
from openpai_tasks.storage.copying.resume import is_broken_off
from openpai_tasks.storage.parts import PART
from openpai_tasks.storage.retry import CorruptData, retrying, retrying_numbered
from openpai_tasks.storage.store import cut, join, parent

PARALLEL = 4  # chunks of one file in transit at once

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class PfsUpload:
    """A file to write, and the check that must pass before it becomes visible, or whole."""

    path: str
    size: int | None
    mtime_ms: int | None = None
    check: Callable[[], None] | None = None

    @property
    def temporary_path(self) -> str:
        """The temporary path: the same for each try with a file of this size and time."""
        if self.size is None or self.mtime_ms is None:
            return join(parent(self.path), part_name())
        mark = hashlib.sha256(repr((self.path, self.size, self.mtime_ms)).encode()).hexdigest()
        return join(parent(self.path), f"{PART}00000000{mark[:8]}")


class LocalChunk:
    """A chunk to send."""

    def __init__(self, offset: int, data: bytes) -> None:
        self.offset, self.data = offset, data

    @property
    def end(self) -> int:
        return self.offset + len(self.data)

    @functools.cached_property
    def sum(self) -> ChunkSum:
        return ChunkSum(len(self.data), hashlib.md5(self.data, usedforsecurity=False).hexdigest())


def send(
    connection: PfsConnection, slots: threading.Semaphore, upload: PfsUpload, pieces: Iterable[bytes]
) -> None:
    """Write the file; ``slots`` limits the chunks in transit of all files."""
    there = retrying(lambda: connection.stat(upload.path))
    if there is not None and there.is_folder:
        raise PathError(f"{upload.path}: a folder is there, so a file cannot be written")
    writer = (_Replacement if connection.can_replace else _InPlace)(connection, upload, there)
    with writer.remove_on_error():
        last = LocalChunk(0, b"")

        def all_but_the_last() -> Iterator[LocalChunk]:
            nonlocal last
            for data in cut(pieces, connection.chunk):
                chunk = LocalChunk(last.end, data)
                if upload.size is not None and chunk.end > upload.size:
                    raise CorruptData(f"{upload.path}: got more than {upload.size} bytes; it changed")
                if last.data:
                    yield last
                last = chunk

        for _ in in_parallel(writer.send_if_missing, all_but_the_last(), slots):
            pass
        if upload.check is not None:
            upload.check()
        if upload.size is not None and last.end != upload.size:
            raise CorruptData(
                f"{upload.path}: got {last.end} of {upload.size} bytes; it changed or was truncated"
            )
        writer.finish(last)


def rename(connection: PfsConnection, source: str, target: str, mtime_ms: int | None = None) -> None:
    """Give a file another name, at a server that can; the answer to an earlier try may be lost."""

    def attempt(number: int) -> None:
        try:
            connection.move(source, target, mtime_ms)
        except NoSuchPath:
            if number == 0 or connection.stat(target) is None:
                raise

    retrying_numbered(attempt)


class _Writer:
    """A file at the server while it is written: at ``path``, and compared with ``old``."""

    def __init__(self, connection: PfsConnection, upload: PfsUpload, path: str) -> None:
        self._connection, self._upload, self._path = connection, upload, path
        self._old, self._kept = path, 0  # bytes that the old file has

    def send_if_missing(self, chunk: LocalChunk) -> None:
        """Send the chunk unless the server has it, and verify what it has then."""
        if not self._has(chunk):
            self._prepare()
            self._send(chunk, {})

    def finish(self, last: LocalChunk) -> None:
        """Send the last chunk, and complete the file."""
        raise NotImplementedError

    @contextlib.contextmanager
    def remove_on_error(self) -> Iterator[None]:
        """Remove what a failure leaves, unless the next try can continue it."""
        yield

    def _prepare(self) -> None:
        """Prepare the first change."""

    def _has(self, chunk: LocalChunk) -> bool:
        if chunk.offset >= self._kept:
            return False
        return retrying(lambda: self._connection.sum(self._old, chunk.offset)) == chunk.sum

    def _send(self, chunk: LocalChunk, extra: Mapping[str, Any]) -> None:
        ours = chunk.sum
        if self._connection.can_replace:
            extra = {**extra, "md5": ours.md5}

        def once() -> None:
            found = self._connection.write(self._path, chunk.offset, chunk.data, extra)
            theirs = found or self._connection.sum(self._path, chunk.offset)
            if theirs != ours:
                reason = f"damaged in transit (MD5 {theirs.md5} instead of {ours.md5})"
                raise CorruptData(f"{self._upload.path}: {reason}")

        retrying(once)


class _InPlace(_Writer):
    """A file at its own path: shorter than it will be until its last chunk arrives, unless it was longer."""

    def __init__(self, connection: PfsConnection, upload: PfsUpload, there: PfsEntry | None) -> None:
        super().__init__(connection, upload, upload.path)
        if there is not None and upload.size is not None and there.size <= upload.size:
            self._kept = there.size
        elif there is None or there.size:  # the server would clear all of a file that becomes shorter
            retrying(lambda: connection.resize(upload.path, 0))

    def finish(self, last: LocalChunk) -> None:
        if last.data:
            self.send_if_missing(last)
        there = retrying(lambda: self._connection.stat(self._path))
        if there is None or there.size != last.end:
            count = "nothing" if there is None else f"{there.size} bytes"
            raise CorruptData(f"{self._path}: {count} arrived of {last.end} bytes")


class _Replacement(_Writer):
    """A file under a temporary name, which replaces the old one when it is complete."""

    def __init__(self, connection: PfsConnection, upload: PfsUpload, there: PfsEntry | None) -> None:
        super().__init__(connection, upload, upload.temporary_path)
        self._lock, self._is_begun, self._there = threading.Lock(), False, there
        begun = None
        if upload.size is None or upload.size > connection.chunk:
            begun = retrying(lambda: connection.stat(self._path))
        if begun is not None:
            self._kept, self._is_begun = begun.size, True
        elif there is not None and upload.size is not None:
            self._old, self._kept = upload.path, there.size

    def finish(self, last: LocalChunk) -> None:
        path, size, mtime_ms = self._upload.path, last.end, self._upload.mtime_ms
        has_last = self._kept == size == 0 or self._has(last)
        if has_last and not self._is_begun and self._kept == size and self._old == path:
            if mtime_ms is not None:
                retrying(lambda: self._connection.resize(path, size, mtime_ms))
            return
        if not last.offset:
            return self._send_whole(last)
        self._prepare()
        if not has_last:
            self._send(last, {})
        if self._kept > size:
            retrying(lambda: self._connection.resize(self._path, size))
        rename(self._connection, self._path, path, mtime_ms)

    @contextlib.contextmanager
    def remove_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException as err:
            is_resumed = self._upload.mtime_ms is not None and is_broken_off(err)
            if self._is_begun and not is_resumed:
                with contextlib.suppress(PaiError):
                    self._connection.remove(self._path, recursive=False)
            raise

    def _prepare(self) -> None:
        """Let the server copy the old file, whose equal chunks are kept."""
        with self._lock:
            if self._is_begun:
                return
            self._is_begun = True
            if self._kept:
                retrying(lambda: self._connection.copy(self._old, self._path, self._kept))
                if retrying(lambda: self._connection.stat(self._old)) != self._there:
                    raise CorruptData(f"{self._old}: another writer changed it")
                self._old = self._path
            else:
                retrying(lambda: self._connection.resize(self._path, 0))

    def _send_whole(self, chunk: LocalChunk) -> None:
        """Replace the file in one call; it may be repeated."""
        self._is_begun = True
        time = {} if self._upload.mtime_ms is None else {"modtime": self._upload.mtime_ms * 1_000_000}
        into = self._connection.full(self._upload.path)
        self._send(chunk, {"create": "true", "filesize": len(chunk.data), "into": into, **time})


def in_parallel(
    work: Callable[[Item], Result], items: Iterable[Item], slots: threading.Semaphore
) -> Iterator[Result]:
    """Yield the results in order; further ones are worked on in parallel while there are free slots."""
    underway = collections.deque[Future[Result]]()

    def first() -> Result:
        try:
            return underway.popleft().result()
        finally:
            slots.release()

    with ThreadPoolExecutor(PARALLEL) as pool:
        try:
            for item in items:
                while not (has_slot := len(underway) < PARALLEL and slots.acquire(blocking=False)):
                    if not underway:
                        break
                    yield first()
                if has_slot:
                    underway.append(pool.submit(work, item))
                else:
                    yield work(item)
            while underway:
                yield first()
        finally:
            for future in underway:
                future.cancel()
                slots.release()
