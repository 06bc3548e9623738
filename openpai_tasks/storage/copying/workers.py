"""The threads that copy files, and the queue between them and the walk."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from openpai_tasks.storage.copying.direct import is_direct
from openpai_tasks.storage.copying.progress import Watch
from openpai_tasks.storage.copying.walk import Item

AHEAD = 20_000
"""Number of files that are looked up before they are copied: enough to show a total, in limited memory."""
CHUNK = 32
"""Small files that a worker takes at once: taking one costs as much as copying it."""
LOOK_UP = 0.2  # seconds between two looks whether the copy is to end
WINDOW = 0.05  # seconds over which the load of the process is measured
BUSY = 0.5
"""Share of a processor from which another thread would rather disturb the others than help them."""


class ItemQueue:
    """The queue of files to copy, in chunks; its methods raise Interrupted when the copy is interrupted."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._chunks: deque[list[Item]] = deque()
        self._files = 0
        self._has_ended = False
        self._changed = threading.Condition()

    def put(self, chunk: list[Item]) -> None:
        """Add files; wait while there are too many."""
        with self._changed:
            self._wait_for(lambda: self._files < AHEAD)
            self._chunks.append(chunk)
            self._files += len(chunk)
            self._changed.notify()

    def end(self) -> None:
        """Let ``get`` return None once all files are taken."""
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()

    def get(self) -> list[Item] | None:
        """Return the next files; None at the end."""
        with self._changed:
            self._wait_for(lambda: bool(self._chunks) or self._has_ended)
            if not self._chunks:
                return None
            chunk = self._chunks.popleft()
            self._files -= len(chunk)
            self._changed.notify()
            return chunk

    def has_more(self) -> bool:
        return bool(self._chunks)

    def _wait_for(self, is_ready: Callable[[], bool]) -> None:
        self._watch.check()
        while not self._changed.wait_for(is_ready, LOOK_UP):
            self._watch.check()


class WorkerPool:
    """The workers of a copy: one for each file up to a limit, but no more than help where files are small.

    Small files on this machine keep a processor busy; further threads would only wait for the interpreter.
    They help as soon as the files are on a disk or a mounted share that lets a thread wait.
    """

    def __init__(
        self, pool: ThreadPoolExecutor, work: Callable[[WorkerPool], None], most: int, queue: ItemQueue
    ) -> None:
        self._pool, self._work, self._most, self._queue = pool, work, most, queue
        self._workers: list[Future[None]] = []
        self._small: list[Item] = []
        self._has_small = False
        self._lock = threading.Lock()
        self._wall, self._processor = time.monotonic(), time.process_time()

    def add(self, item: Item) -> None:
        """Queue a file; small ones wait until there are enough of them, or a large one comes."""
        if is_direct(item):
            self._small.append(item)
            if len(self._small) == CHUNK:
                self._add_small()
            return
        self._add_small()
        self._start_worker()
        self._queue.put([item])

    def finish(self) -> None:
        """Queue the end, and wait for the workers."""
        self._add_small()
        if self._workers:
            self._queue.end()
        self.wait()

    def wait(self) -> None:
        """Wait for the workers; raise what ended one of them."""
        for worker in self._workers:  # more may be added meanwhile
            worker.result()

    def start_if_idle(self) -> None:
        """Add a worker if there is more to do, and this process has mostly waited lately."""
        if self._queue.has_more() and self._has_waited():
            with contextlib.suppress(RuntimeError):  # the pool is closing: the copy is interrupted
                self._start_worker()

    def _add_small(self) -> None:
        if not self._small:
            return
        if not self._has_small:  # one worker for them, besides those of large files
            self._has_small = True
            self._start_worker()
        self._queue.put(self._small)
        self._small = []

    def _start_worker(self) -> None:
        with self._lock:
            if len(self._workers) < self._most:
                self._workers.append(self._pool.submit(self._work, self))

    def _has_waited(self) -> bool:
        with self._lock:
            wall, processor = time.monotonic() - self._wall, time.process_time() - self._processor
            if wall < WINDOW:
                return False
            self._wall, self._processor = self._wall + wall, self._processor + processor
            return processor < BUSY * wall
