"""The thread of an executor: it waits for calls, cancellations and the next look at the jobs."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Iterable
from concurrent.futures import BrokenExecutor

from openpai_tasks.api.futures.call_jobs import Call, CallJob
from openpai_tasks.api.futures.call_request import CallTarget
from openpai_tasks.api.futures.call_tracker import CallTracker
from openpai_tasks.api.futures.executor_record import ExecutorRecord
from openpai_tasks.api.futures.pai_future import OpenFutures
from openpai_tasks.errors import PaiError, Unreachable
from openpai_tasks.sdk.jobs.polling import Pauses

SETTLE_SECONDS, SETTLE_BATCH_SECONDS = 0.01, 0.05
"""How long to wait for more calls, which then travel in the same archive or run in the same job."""
LONGEST_SETTLE_SECONDS = 0.5
MOST_CALLS = 1000  # that wait for more
LEAVE_SECONDS = 5.0  # for a request that is under way when the program ends

log = logging.getLogger("openpai_tasks")


class ExecutorThread:
    """Runs the calls of an executor until it is closed and all have a result."""

    def __init__(
        self,
        target: CallTarget,
        record: ExecutorRecord,
        max_jobs: int | None = None,
        batch: int = 1,
        is_temporary: bool = False,
    ) -> None:
        self._client, self._record, self._is_temporary = target.client, record, is_temporary
        self._settle = SETTLE_SECONDS if batch == 1 else SETTLE_BATCH_SECONDS
        self._changed = threading.Condition(threading.RLock())
        self._open = OpenFutures(self._changed)
        self._tracker = CallTracker(target, record, self._open, max_jobs, batch)
        self._queue: list[Call] = []
        self._queued = (0.0, 0.0)  # when the first and the last of them came
        self._cancelled: list[int] = []
        self._is_planning = False
        self._is_closed = self._is_leaving = False
        self._thread: threading.Thread | None = None
        self.broken: PaiError | None = None

    # For other threads

    def put(self, call: Call) -> None:
        """Run a call; raise if it is too late for that."""
        with self._changed:
            self.check()
            self._start()  # which may fail: then, nothing is queued
            now = time.monotonic()
            self._queued = (self._queued[0] if self._queue else now, now)
            self._queue.append(call)
            self._open.add(call.future)
            if len(self._queue) in (1, MOST_CALLS):
                self._changed.notify_all()

    def check(self) -> None:
        """Raise if no call can be put."""
        if self.broken:
            raise BrokenExecutor(f"executor {self._record.name!r} has given up: {self.broken}")
        if self._is_closed:
            raise RuntimeError("cannot schedule new futures after shutdown")

    def collect(self, jobs: Iterable[CallJob]) -> None:
        """Collect the results of jobs of another executor, and submit those that it has not submitted."""
        for job in jobs:
            self._tracker.collect(job)
        if self._open:
            self._start()

    def note_cancelled(self, number: int) -> None:
        """Notice that the future of a call was cancelled."""
        with self._changed:
            self._cancelled.append(number)
            self._changed.notify_all()

    def close(self, cancel: bool = False) -> None:
        """Take no more calls, and end when all have a result; optionally cancel those that do not run."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        for future in self._open.all() if cancel else ():
            future.cancel()
        if self._thread is None:
            self._end()

    def wait_for_record(self) -> None:
        """Wait until all calls are recorded, so that they can be collected elsewhere."""
        with self._changed:
            while (self._queue or self._is_planning) and self._is_alive:
                self._changed.wait(0.1)

    def join(self) -> None:
        """Wait until all calls have a result."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def leave(self) -> None:
        """Wait until all calls are submitted, and end the thread, at the end of the program."""
        with self._changed:
            while (self._queue or self._is_planning or self._tracker.has_planned) and self._is_alive:
                self._changed.wait(0.1)
            left = len(self._open)
            self._is_leaving = True
            self._changed.notify_all()
        if self._thread:
            self._thread.join(LEAVE_SECONDS)
        if not left:
            self._end()
        elif not self.broken:
            name = self._record.name
            log.warning(
                "executor %r: %d calls continue; get them with PaiExecutor.attach(%r)", name, left, name
            )

    @property
    def _is_alive(self) -> bool:
        thread = self._thread
        is_own = thread is threading.current_thread()  # in a callback of a future
        return thread is not None and not is_own and thread.is_alive() and not self.broken

    def _start(self) -> None:
        """Start the thread: a daemon, as jobs can run for days and outlive this program."""
        if self._thread is None:
            name = f"PaiExecutor-{self._record.name}"
            thread = threading.Thread(target=self._run, name=name, daemon=True)
            thread.start()
            self._thread = thread

    # The thread

    def _run(self) -> None:
        try:
            pauses, moved = Pauses(self._client), True
            while self._wait(pauses, moved):
                calls, cancelled = self._take()
                moved = self._tracker.turn(calls, cancelled, self._note_planned)
            if not self._open:
                self._end()
        except PaiError as err:
            self._give_up(err)
        except BaseException as err:  # no future may wait forever
            self._give_up(Unreachable(f"executor {self._record.name!r} failed: {err!r}"))
            raise

    def _wait(self, pauses: Pauses, moved: bool) -> bool:
        """Wait until there is something to do; return False when all is done."""
        pause = pauses.next(moved) if self._tracker.is_watching else math.inf
        look = time.monotonic() + (0.0 if self._tracker.can_submit else pause)
        with self._changed:
            self._changed.notify_all()
            while True:
                if self._is_leaving or (self._is_closed and not self._open and not self._cancelled):
                    return False
                left = min(look, self._settled_at()) - time.monotonic()
                if self._cancelled or left <= 0:
                    return True
                self._changed.wait(None if left == math.inf else left)

    def _take(self) -> tuple[list[Call], list[int]]:
        """Take the calls that were put and cancelled."""
        with self._changed:
            cancelled, self._cancelled = self._cancelled, []
            if self._settled_at() > time.monotonic():
                return [], cancelled
            calls, self._queue = self._queue, []
            self._is_planning = bool(calls)
            return calls, cancelled

    def _note_planned(self) -> None:
        with self._changed:
            self._is_planning = False
            self._changed.notify_all()

    def _settled_at(self) -> float:
        """Return when the calls in the queue will be sent, unless more arrive."""
        if not self._queue:
            return math.inf
        if self._is_closed or len(self._queue) >= MOST_CALLS:
            return -math.inf
        first, last = self._queued
        return min(last + self._settle, first + LONGEST_SETTLE_SECONDS)

    def _end(self) -> None:
        self._record.release()
        if self._is_temporary:
            self._record.remove()

    def _give_up(self, err: PaiError) -> None:
        """Fail all calls, and keep the record."""
        self._record.release()
        later = Unreachable(f"{err}; later, PaiExecutor.attach({self._record.name!r}) collects the result")
        with self._changed:
            self.broken = err
            self._changed.notify_all()
        for future in self._open.all():
            self._tracker.fail(future.number, later if future.job else err)
