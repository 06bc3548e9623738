"""The number of threads that copy: small files on this machine get more only while these wait."""

from __future__ import annotations

import threading
from concurrent.futures import Future

import pytest

from openpai_tasks.storage.copying import workers
from openpai_tasks.storage.copying.progress import Watch
from openpai_tasks.storage.copying.walk import Item
from openpai_tasks.storage.local.store import LocalStore
from openpai_tasks.storage.store import Entry

MOST = 3


class Clock:
    """The clocks of the wall and of the processor."""

    wall = processor = 0.0

    def monotonic(self) -> float:
        return self.wall

    def process_time(self) -> float:
        return self.processor

    def pass_by(self, seconds: float, share: float) -> None:
        self.wall += seconds
        self.processor += seconds * share


class Pool:
    """Counts the workers instead of starting them."""

    started = 0

    def submit(self, work, worker_pool):
        self.started += 1
        return Future()


@pytest.fixture
def clock(monkeypatch):
    found = Clock()
    monkeypatch.setattr(workers, "time", found)
    return found


@pytest.fixture
def counted(clock):
    """A pool that counts, and its workers."""
    pool = Pool()
    return pool, workers.WorkerPool(pool, lambda worker_pool: None, MOST, workers.ItemQueue(Watch()))


def item(number, size=1):
    entry = Entry(str(number), f"/s/{number}", False, size)
    return Item(LocalStore(), entry, LocalStore(), f"/t/{number}", None)


def test_a_large_file_gets_a_worker_up_to_the_limit(counted):
    pool, worker_pool = counted
    for number in range(9):
        worker_pool.add(item(number, 1 << 30))
    assert pool.started == MOST


def test_small_files_do_not_wait_for_a_large_one(counted):
    pool, worker_pool = counted
    worker_pool.add(item("small"))
    worker_pool.add(item("large", 1 << 30))
    assert pool.started == 2
    assert [[one.entry.name for one in worker_pool._queue.get()] for _ in range(2)] == [["small"], ["large"]]


@pytest.mark.parametrize(
    ("seconds", "share", "started"),
    [(1, 0.9, 1), (1, 0.1, MOST), (0.001, 0.1, 1)],
    ids=["busy", "waiting", "too early"],
)
def test_small_files_get_more_workers_only_while_these_wait(counted, clock, seconds, share, started):
    pool, worker_pool = counted
    for number in range(10 * workers.CHUNK):
        worker_pool.add(item(number))
    assert pool.started == 1
    for _ in range(9):
        clock.pass_by(seconds, share)
        worker_pool.start_if_idle()
    assert pool.started == started


def test_no_worker_is_started_when_nothing_is_left(counted, clock):
    pool, worker_pool = counted
    clock.pass_by(1, 0.1)
    worker_pool.start_if_idle()
    assert pool.started == 0


def test_the_queue_is_bounded_by_files_not_by_chunks():
    line, chunk = workers.ItemQueue(Watch()), [item(number) for number in range(workers.CHUNK)]
    for _ in range(-(-workers.AHEAD // workers.CHUNK)):
        line.put(chunk)
    waiting = threading.Thread(target=line.put, args=(chunk,))
    waiting.start()
    waiting.join(0.1)
    assert waiting.is_alive()
    line.get()
    waiting.join(10)
    assert not waiting.is_alive()


def test_every_worker_sees_the_end_after_the_last_files():
    line = workers.ItemQueue(Watch())
    line.put([item(1)])
    line.end()
    assert line.get() and line.get() is None and line.get() is None
