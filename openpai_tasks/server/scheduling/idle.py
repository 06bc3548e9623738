"""Jobs whose GPUs are idle: warn about them, and stop those whose owner asked for it.

What is idle follows from the samples of the tasks (runner/usage.py). Only their end is read: back to the last
use of a GPU, or to what the look before this one has seen.
"""

from __future__ import annotations

import io
import itertools
import re
import time
from collections.abc import Iterable, Sequence
from typing import BinaryIO

from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol import states
from openpai_tasks.protocol.document.policy import BUSY_PERCENT, LOOK_SECONDS, WARN_SECONDS, JobPolicy
from openpai_tasks.server.engines.base import Engine
from openpai_tasks.server.engines.runner import usage
from openpai_tasks.server.state.records import Task
from openpai_tasks.server.state.state import STOP, State
from openpai_tasks.text.durations import compact_duration

BLIND_SECONDS = 300  # after which a task without samples of its GPUs is unlikely to have any
COST_SHARE = 100  # a pause is at least this many times as long as a look took
_ENDS = (1 << 14, 1 << 17, usage.MOST_BYTES)  # bytes at the end of the samples, as many as needed
_GPU = re.compile(r"gpu\d+")


@dataclass(frozen=True)
class IdleSpan:
    """From when until when (ms) the samples show no use of the GPUs; empty if they are in use."""

    since: int
    until: int

    @property
    def seconds(self) -> float:
        return (self.until - self.since) / 1000


def read_span(file: BinaryIO, known: IdleSpan | None = None) -> IdleSpan | None:
    """Return the idle time at the end of a task's samples; None if there are none of GPUs.

    ``known`` is what was found before: what is older need not be read again.
    """
    size = file.seek(0, io.SEEK_END)
    span = None
    for length in _ENDS:
        start = max(0, size - length)
        file.seek(start)
        text = file.read(length).decode("ascii", "replace")
        rows = usage.parse_rows(text.partition("\n")[2] if start else text)
        seen = [row for row in rows if any(map(_GPU.fullmatch, row.values))]
        if seen:
            ends = [int(row.time + 1000 * row.seconds) for row in seen]
            busy = [end for row, end in zip(seen, ends, strict=True) if _is_busy(row)]
            span = IdleSpan(busy[-1] if busy else seen[0].time, ends[-1])
            if busy:
                return span
            if known and seen[0].time <= known.until:
                return IdleSpan(known.since, ends[-1])
        if not start:
            break
    return span


def _is_busy(row: usage.Row) -> bool:
    return any(most >= BUSY_PERCENT for name, (_, most) in row.values.items() if _GPU.fullmatch(name))


def merge_spans(spans: Sequence[IdleSpan | None]) -> IdleSpan | None:
    """Return when the GPUs of all tasks were idle; None if it is unknown for some of them."""
    known = [span for span in spans if span]
    if not known or len(known) < len(spans):
        return None
    return IdleSpan(max(span.since for span in known), min(span.until for span in known))


class IdleWatch:
    """Looks at the GPUs of running jobs now and then."""

    def __init__(self, state: State, engine: Engine) -> None:
        self._state, self._engine = state, engine
        self._spans: dict[str, IdleSpan | None] = {}  # by task
        self._warned: dict[str, int] = {}  # by job: the beginning of the idle time that was reported
        self._next = 0.0
        self._least_pause = 0.0  # seconds, by what the last look took

    def is_due(self) -> bool:
        return self._engine.records_usage and time.monotonic() >= self._next

    def expect(self, key: str) -> None:
        """Look in time at a job that is about to start."""
        self._look_within(self._state.document(key).policy)

    def _look_within(self, policy: JobPolicy) -> None:
        if policy.idle_stop:
            pause = max(1, policy.idle_stop // 3, self._least_pause)
            self._next = min(self._next, time.monotonic() + pause)

    def look(self, running: Iterable[Task]) -> dict[str, IdleSpan | None]:
        """Return when the GPUs of jobs were idle, by job, given all running tasks that have GPUs."""
        began = time.monotonic()
        by_job: dict[str, list[Task]] = {}
        for task in running:
            by_job.setdefault(task.job, []).append(task)
        before, self._spans = self._spans, {}
        for task in itertools.chain.from_iterable(by_job.values()):
            self._spans[task.uid] = self._read(task, before.get(task.uid))
        self._warned = {key: since for key, since in self._warned.items() if key in by_job}
        self._least_pause = COST_SHARE * (time.monotonic() - began)
        self._next = time.monotonic() + max(LOOK_SECONDS, self._least_pause)
        return {key: merge_spans([self._spans[one.uid] for one in tasks]) for key, tasks in by_job.items()}

    def _read(self, task: Task, known: IdleSpan | None) -> IdleSpan | None:
        try:
            with self._engine.open_log(task, usage.FILE) as file:
                return read_span(file, known)
        except OSError:  # there are no samples yet, or the task has put something else there
            return None

    def act(self, key: str, span: IdleSpan | None, now: int) -> None:
        """Record that the GPUs are idle, warn about it, and stop the job if its owner asked for it."""
        job, policy = self._state.existing_job(key), self._state.document(key).policy
        if job.state != states.RUNNING:
            return
        self._look_within(policy)
        idle = span.seconds if span else 0.0
        since = span.since if span and idle >= min(LOOK_SECONDS, warn_seconds(policy)) else None
        if since != job.gpus_idle_since:
            change = "UPDATE jobs SET gpus_idle_since = ? WHERE key = ?"
            self._state.database.write(change, [since, job.key])
        if span is None and policy.idle_stop and now - (job.launched or now) > 1000 * BLIND_SECONDS:
            why = "there are no samples of its GPUs (is nvidia-smi missing in its PATH?)"
            message = f"the job is not stopped for idle GPUs: {why}"
            self._state.add_event(job.key, "Warning", "NoIdleStop", message, once=True)
        if span and policy.idle_stop and idle >= policy.idle_stop:
            limit = compact_duration(policy.idle_stop)
            self._state.set_execution(job.key, STOP, f"its GPUs were idle for {limit} (--idle-stop)")
        elif span and idle >= warn_seconds(policy) and self._warned.get(job.key) != span.since:
            self._warned[job.key] = span.since
            message = f"the GPUs of this job have been idle for {compact_duration(idle)}"
            self._state.add_event(job.key, "Warning", "GpusIdle", message)


def warn_seconds(policy: JobPolicy) -> int:
    """Return after how many idle seconds to warn: earlier if the job is about to be stopped."""
    return min(WARN_SECONDS, policy.idle_stop // 2) if policy.idle_stop else WARN_SECONDS
