"""Read several ranges of a large file in parallel, in order and in limited memory."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

PART = 16 << 20
AHEAD = 3
"""Ranges that are being fetched or wait to be read: with PART, the memory of a parallel read."""

Piece = TypeVar("Piece")
Fetch = Callable[[int, int], Iterator[bytes]]
"""Yields the pieces of a number of bytes from an offset on."""


def measure_rate(pieces: Iterator[bytes], enough: int) -> Generator[bytes, None, tuple[int, float]]:
    """Yield the first pieces; return their size, and the bytes received per second of waiting."""
    moved, waited = 0, 0.0
    while moved < enough:
        start = time.perf_counter()
        piece = next(pieces, b"")
        waited += time.perf_counter() - start
        if not piece:
            break
        moved += len(piece)
        yield piece
    return moved, moved / max(waited, 1e-9)


def read_ahead(pieces: Generator[Piece, None, None]) -> Iterator[Piece]:
    """Yield the pieces, read by another thread while the previous ones are processed."""
    waiting: queue.Queue[Piece | BaseException | None] = queue.Queue(4)
    left = threading.Event()

    def fetch() -> None:
        try:
            for piece in pieces:
                waiting.put(piece)
                if left.is_set():
                    return pieces.close()
            waiting.put(None)
        except BaseException as err:  # raised again by the consumer
            waiting.put(err)

    thread = threading.Thread(target=fetch, name="webhdfs-ahead", daemon=True)
    thread.start()
    try:
        while (piece := waiting.get()) is not None:
            if isinstance(piece, BaseException):
                raise piece
            yield piece
    finally:
        left.set()
        while thread.is_alive():  # it may be blocked on a full queue
            with contextlib.suppress(queue.Empty):
                waiting.get(timeout=0.01)


def read_parallel(fetch: Fetch, start: int, end: int) -> Iterator[bytes]:
    """Yield the bytes from start to end; closing the iterator stops the fetching."""
    left = threading.Event()

    def whole(offset: int) -> list[bytes]:
        pieces = []
        for piece in fetch(offset, min(PART, end - offset)):
            pieces.append(piece)
            if left.is_set():
                break
        return pieces

    waiting: deque[Future[list[bytes]]] = deque()
    with ThreadPoolExecutor(AHEAD, "webhdfs-range") as pool:
        try:
            for offset in range(start, end, PART):
                waiting.append(pool.submit(whole, offset))
                if len(waiting) == AHEAD:
                    yield from _take(waiting.popleft())
            while waiting:
                yield from _take(waiting.popleft())
        finally:
            left.set()
            pool.shutdown(cancel_futures=True)


def _take(future: Future[list[bytes]]) -> Iterator[bytes]:
    """Yield each piece and free it at once."""
    pieces = deque(future.result())
    while pieces:
        yield pieces.popleft()
