"""Upload an object: in one request if it is small, else in parts that the last request makes visible."""

from __future__ import annotations

import collections
import contextlib
import hashlib
import io
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Protocol

from openpai_tasks.errors import PaiError, PathError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.storage.retry import CorruptData, retrying

MIB = 1 << 20
PART = 8 * MIB
PART_OF_UNKNOWN = 16 * MIB
ROOM = 3 * PART  # bytes that all uploads of a store hold together
PARALLEL = 3  # parts of one file in transit at once


@dataclass(frozen=True)
class ObjectBody:
    """The bytes of one request, and their MD5 for the service to verify."""

    data: bytes
    md5: bytes


class UploadSession(Protocol):
    """An object that is uploaded in parts and not visible yet."""

    def part(self, number: int, body: ObjectBody) -> None:
        """Upload a part, counted from 1; called from several threads."""

    def complete(self, md5: bytes) -> None:
        """Make the object visible; may be repeated if the answer was lost."""

    def is_intact(self, size: int, md5: bytes) -> bool:
        """Whether the visible object is what was uploaded."""

    def remove(self) -> bool:
        """Remove the object; return False if another object has its name now, or may have."""

    def abort(self) -> None: ...


class UploadTarget(Protocol):
    """The writing half of an object service."""

    most_parts: int

    def put(self, key: str, body: ObjectBody, mtime_ms: int | None) -> None: ...

    def put_folder(self, key: str) -> None: ...

    def delete(self, keys: Sequence[str]) -> None:
        """Delete all keys; missing ones are fine."""

    def begin(self, key: str, mtime_ms: int | None, part_size: int) -> UploadSession: ...


class Budget:
    """A memory budget for uploads; senders wait until there is room."""

    def __init__(self) -> None:
        self._room, self._used = ROOM, 0
        self._changed = threading.Condition()
        self._allocator, self._process = ThreadPoolExecutor(1), os.getpid()

    def acquire(self, size: int) -> None:
        """Wait for room; a size larger than the budget waits until nothing else is held."""
        with self._changed:
            self._changed.wait_for(lambda: not self._used or self._used + size <= self._room)
            self._used += size

    def release(self, size: int) -> None:
        with self._changed:
            self._used -= size
            self._changed.notify_all()

    def buffer(self, size: int) -> io.BytesIO:
        """Allocate the whole buffer at once, always in the same thread.

        glibc keeps freed memory for the thread that allocated it; with many senders that would be much more
        than they use at a time.
        """
        with self._changed:
            if self._process != os.getpid():  # a forked process has none of the threads
                self._allocator, self._process = ThreadPoolExecutor(1), os.getpid()
        return self._allocator.submit(_allocate, size).result()


def _allocate(size: int) -> io.BytesIO:
    buffer = io.BytesIO()
    buffer.seek(size - 1)
    buffer.write(b"\0")
    buffer.seek(0)
    return buffer


class PartCutter:
    """Cuts pieces of any size into bodies of one size; ``is_done`` is set with the last one."""

    def __init__(self, pieces: Iterable[bytes], part_size: int, size: int | None, budget: Budget) -> None:
        self._pieces, self._part_size = iter(pieces), part_size
        self._expected, self._budget = size, budget
        self._rest: bytes | memoryview = b""
        self._md5 = hashlib.md5(usedforsecurity=False)
        self.size, self.is_done = 0, False

    @property
    def md5(self) -> bytes:
        """The MD5 of everything so far."""
        return self._md5.digest()

    def body(self) -> ObjectBody:
        buffer, left = self._buffer(), self._part_size
        while left:
            piece = self._next()
            if not piece:
                break
            buffer.write(piece[:left])
            self._rest = memoryview(piece)[left:]
            left -= min(left, len(piece))
        self._rest = self._next()  # check whether there is more
        self.is_done = not self._rest
        buffer.truncate()
        data = buffer.getvalue()
        self.size += len(data)
        self._md5.update(data)
        return ObjectBody(data, hashlib.md5(data, usedforsecurity=False).digest())

    def _buffer(self) -> io.BytesIO:
        """Allocate memory for the next body; one that may be short grows as it is filled."""
        expected = self.size and self._part_size  # of unknown size, but more than one part
        if self._expected is not None:
            expected = max(0, min(self._part_size, self._expected - self.size))
        return self._budget.buffer(expected) if expected > MIB else io.BytesIO()

    def _next(self) -> bytes | memoryview:
        if self._rest:
            return self._rest
        return next((piece for piece in self._pieces if piece), b"")


def send(
    target: UploadTarget,
    budget: Budget,
    key: str,
    pieces: Iterable[bytes],
    size: int | None,
    mtime_ms: int | None,
    check: Callable[[], None] | None,
) -> None:
    """Upload an object, completely or not at all; ``check`` must pass before it becomes visible."""
    part_size = _part_size(size, target.most_parts)
    cut = PartCutter(pieces, part_size, size, budget)

    def check_all() -> None:
        if check is not None:
            check()
        if size is not None and cut.size != size:
            raise CorruptData(f"{key}: got {cut.size} of {size} bytes; it changed or was truncated")

    with _acquired(budget, part_size if size is None else min(part_size, size)):
        first = cut.body()
        if cut.is_done:
            check_all()
            retrying(lambda: target.put(key, first, mtime_ms))
            return
        session = retrying(lambda: target.begin(key, mtime_ms, part_size))
        with _aborting_on_error(session):
            retrying(lambda: session.part(1, first))
    with _aborting_on_error(session):
        _send_parts(session, cut, budget, part_size, target.most_parts)
        check_all()
        retrying(lambda: session.complete(cut.md5))
    if not retrying(lambda: session.is_intact(cut.size, cut.md5)):
        if not retrying(session.remove):
            raise PathError(f"{key}: another writer replaced it; that version was kept")
        raise CorruptData(f"{key}: it differs from what was sent; it was removed")


def _send_parts(session: UploadSession, cut: PartCutter, budget: Budget, part_size: int, most: int) -> None:
    """Upload all parts but the first, several at once."""
    underway: collections.deque[Future[None]] = collections.deque()
    number = 1

    def start() -> None:
        """Start to upload the next part; release its memory when it has arrived or failed."""
        budget.acquire(part_size)
        try:
            part = partial(session.part, number, cut.body())
            underway.append(pool.submit(retrying, part))
        except BaseException:
            budget.release(part_size)
            raise
        underway[-1].add_done_callback(lambda _: budget.release(part_size))

    with ThreadPoolExecutor(PARALLEL) as pool:
        try:
            while not cut.is_done:
                number += 1
                if number > most:
                    raise PathError(
                        f"more than {most * part_size} bytes, too many for a file of unknown size"
                    )
                if len(underway) == PARALLEL:
                    underway.popleft().result()
                start()
            while underway:
                underway.popleft().result()
        except BaseException:
            for future in underway:
                future.cancel()
            raise


def _part_size(size: int | None, most_parts: int) -> int:
    """Return the size of all parts but the last; very large objects need larger parts."""
    if size is None:
        return PART_OF_UNKNOWN
    least = -(-size // most_parts)
    return max(PART, -(-least // MIB) * MIB)


@contextlib.contextmanager
def _acquired(budget: Budget, size: int) -> Iterator[None]:
    budget.acquire(size)
    try:
        yield
    finally:
        budget.release(size)


@contextlib.contextmanager
def _aborting_on_error(session: UploadSession) -> Iterator[None]:
    try:
        yield
    except BaseException:
        with contextlib.suppress(PaiError):
            session.abort()
        raise
