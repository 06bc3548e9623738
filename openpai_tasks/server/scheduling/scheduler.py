"""Start waiting jobs in order and collect the ends of tasks: one thread, asleep when idle.

An engine that schedules by itself gets every job at once, jobs submitted in a burst together, and its states
are shown unchanged.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from openpai_tasks.files import shortages
from openpai_tasks.protocol import states
from openpai_tasks.protocol.fields import MALFORMED
from openpai_tasks.server.engines.base import (
    Engine,
    Shortage,
    TaskExit,
    TaskQueued,
    TaskRunning,
    TaskStatus,
)
from openpai_tasks.server.job_errors import JOB_ERRORS, describe
from openpai_tasks.server.resources import NOTHING, ResourceAmount
from openpai_tasks.server.scheduling.allocation import FreeResources, StartDecision
from openpai_tasks.server.scheduling.idle import IdleWatch
from openpai_tasks.server.scheduling.keeping import SLACK, TAIL, find_failure
from openpai_tasks.server.scheduling.launcher import Launcher
from openpai_tasks.server.scheduling.progress import CANNOT_BE_MADE, Progress
from openpai_tasks.server.scheduling.queries import SchedulerQueries, WaitingJob
from openpai_tasks.server.scheduling.task_end import read_gpu_percent, read_log_end
from openpai_tasks.server.scheduling.turns import Turns
from openpai_tasks.server.ssh.logins import SshLogins
from openpai_tasks.server.state.records import Job, Task
from openpai_tasks.server.state.state import State, now
from openpai_tasks.server.storages import Storage

log = logging.getLogger(__name__)

POLL_SECONDS = 1.0  # seconds between polls of all tasks, for those whose runner cannot signal
SLOWEST_POLL = 10.0  # seconds between polls if one takes long
QUIET = 0.05  # seconds without the end of a task, after which there is time to explain why jobs wait
EXPLAIN_AFTER = 1.0  # seconds that a job may wait without an event that explains it, while tasks end
MOST_ENDED = 500  # tasks looked up by folder; SQLite takes about 1000 values in a statement
MOST_STARTED = 100  # jobs in a turn, which is one transaction

Polled = tuple[Task, TaskStatus | None, bytes]
"""A task, the engine's answer about it, and the end of its log if it has failed."""
BURST_QUIET = 0.2  # seconds without a submission, after which a burst is over
BURST_LATEST = 15.0  # seconds after which its jobs are started even if it continues


class Scheduler:
    """Users and their sweeps take turns in a virtual cluster; by default, a job's tasks start together."""

    def __init__(
        self,
        state: State,
        engine: Engine,
        virtual_clusters: Mapping[str, ResourceAmount],
        enforce: bool = False,
        logins: SshLogins | None = None,
        storages: Mapping[str, Storage] | None = None,
    ) -> None:
        self._state = state
        self._engine = engine
        self._clusters = dict(virtual_clusters) or {"default": engine.capacity().total}
        self._enforce = enforce
        self._queries = SchedulerQueries(state.database)
        self._turns = Turns(self._queries)
        self._progress = Progress(state)
        self._launcher = Launcher(
            state, self._progress, engine, os.environ, logins or SshLogins(state.folder), storages or {}
        )
        self._idle = IdleWatch(state, engine)
        self._closing = False
        self._next_poll = 0.0  # when to poll all tasks again
        self._has_started = False  # some job, in this turn
        self._has_more = False  # to start, which the next turn does
        self._burst = SubmissionBurst()
        self._is_full = False  # a job waits for the end of another, and all that follow wait, too
        self._wait_reasons: dict[str, str] = {}  # job -> why it waits, as last reported
        self._explain_at = 0.0  # when to explain again why jobs wait
        self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)

    def start(self) -> None:
        self._state.listen(self._note_submission, self.wake)
        self._thread.start()

    def wake(self) -> None:
        self._engine.wakeups.notify()

    def _note_submission(self) -> None:
        """Look at a new job now, unless it has to wait for the end of another.

        A turn that did not see the job has decided before whether it is full, as both are transactions.
        """
        if not self._is_full and (not self._engine.schedules or self._burst.note()):
            self.wake()

    def close(self) -> None:
        """End the thread; tasks continue."""
        self._state.listen(lambda: None, lambda: None)
        self._closing = True
        self.wake()
        if self._thread.is_alive():
            self._thread.join()
        self._engine.close()

    def _run(self) -> None:
        recovered, ended = False, set[str]()
        while not self._closing:
            try:
                if not recovered:
                    self._engine.hold(self._queries.unfinished()[0])
                    self._launcher.recover(self._queries.alive())
                    recovered = True
                ended = self._engine.wakeups.wait(self._turn(ended))
            except Exception:  # the next turn may succeed
                log.exception("a turn of the scheduler failed")
                ended = set()
                time.sleep(POLL_SECONDS)

    def _turn(self, ended: Collection[str]) -> float | None:
        """Do everything there is to do; return the seconds until the next turn unless it is woken.

        ``ended`` has the folders of tasks whose runners have signalled their end.
        """
        polled = self._poll(self._due(ended))  # before the transaction, as an engine may take a while
        idle = self._idle.look(self._queries.running_with_gpus()) if self._idle.is_due() else {}
        with self._state.database.transaction():
            self._record_all(polled)
            for key, span in idle.items():
                with self._apart(f"look at the GPUs of job {key}"):
                    self._idle.act(key, span, now())
            has_alive = self._queries.has_alive()
            for key in self._queries.stopping():
                self._wait_reasons.pop(key, None)
                with self._apart(f"settle job {key}"):
                    self._progress.settle(key)
            ending = self._queries.ending()
            delays = [] if ending else list(self._start_waiting(bool(ended)))
        if ending:
            polled = self._stop(ending)
            with self._state.database.transaction():
                self._record_all(polled)
                delays = list(self._start_waiting(bool(ended)))
        if not (self._engine.schedules and self._has_more):
            self._launcher.start_committed()
        return min([*delays, POLL_SECONDS] if has_alive or self._has_started else delays, default=None)

    def _due(self, ended: Collection[str]) -> list[Task]:
        """Return the tasks that have signalled their end, and from time to time all tasks."""
        if time.monotonic() < self._next_poll and len(ended) <= MOST_ENDED:
            return self._queries.alive_in(ended) if ended else []
        self._next_poll = 0.0
        return self._queries.alive()

    def _poll(self, tasks: Sequence[Task]) -> list[Polled]:
        """Ask the engine once about all these tasks."""
        began = time.monotonic()
        statuses = self._engine.poll(tasks) if tasks else {}
        answers = [(task, statuses.get(task.uid)) for task in tasks]
        found = [(task, self._with_gpu_use(task, one), self._log_end(task, one)) for task, one in answers]
        for task, status in answers:
            if task.kept and task.kept + SLACK < now() and isinstance(status, TaskRunning):
                self._engine.stop(task)
        if not self._next_poll:
            took = time.monotonic() - began
            self._next_poll = time.monotonic() + min(max(POLL_SECONDS, 10 * took), SLOWEST_POLL) * 0.9
        return found

    def _with_gpu_use(self, task: Task, status: TaskStatus | None) -> TaskStatus | None:
        """Add the use of its GPUs to the end of a task."""
        if not isinstance(status, TaskExit):
            return status
        try:
            return replace(status, gpu_percent=read_gpu_percent(self._engine, task))
        except (OSError, *JOB_ERRORS):
            log.exception("cannot read the use of GPUs of task %s-%s of %s", task.role, task.index, task.job)
            return status

    def _log_end(self, task: Task, status: TaskStatus | None) -> bytes:
        """Return the end of the log of a task that has failed, also if it is kept."""
        try:
            if task.kept == 0 and isinstance(status, TaskRunning):
                is_kept = find_failure(task, read_log_end(self._engine, task, TAIL))
                return read_log_end(self._engine, task) if is_kept else b""
            has_failed = isinstance(status, TaskExit) and status.user_code and not status.stopped
            return read_log_end(self._engine, task) if has_failed else b""
        except (OSError, *JOB_ERRORS):
            log.exception("cannot read the log of task %s-%s of job %s", task.role, task.index, task.job)
            return b""

    def _record_all(self, polled: Sequence[Polled]) -> None:
        """Record what the engine has answered."""
        self._mirror_queue([(task, status) for task, status, _ in polled if status is not None])
        for task, status, log_end in polled:
            with self._apart(f"record task {task.role}-{task.index} of job {task.job}"):
                self._record(task, status, log_end)

    @contextlib.contextmanager
    def _apart(self, what: str) -> Iterator[None]:
        """Undo and log a change of one job that fails, so that it does not stop those of the others."""
        try:
            with self._state.database.part():
                yield
        except (OSError, *JOB_ERRORS):
            log.exception("cannot %s", what)

    def _mirror_queue(self, polled: Iterable[tuple[Task, TaskStatus]]) -> None:
        """Record when tasks of an engine that schedules by itself start running, or why they wait."""
        queued = [(task, status) for task, status in polled if task.sub_state == states.PREPARING]
        begun: dict[str, list[Task]] = {}
        reasons: dict[str, str] = {}  # by job: the reason of its first waiting task
        for task, status in queued:
            if isinstance(status, TaskQueued):
                reasons.setdefault(task.job, status.reason)
            elif isinstance(status, TaskRunning) or status.user_code is not None:
                begun.setdefault(task.job, []).append(_at_its_place(task, status))
        for key, tasks in begun.items():
            self._wait_reasons.pop(key, None)
            self._progress.begin_queued(key, tasks)
            self._idle.expect(key)
        for key, why in reasons.items():
            self._report_wait(key, why)

    def _record(self, task: Task, status: TaskStatus | None, log_end: bytes) -> None:
        for note in self._engine.notes(task):
            self._state.add_event(task.job, note.type, note.reason, note.message, task, once=True)
        if isinstance(status, TaskRunning) and (failure := find_failure(task, log_end)):
            self._progress.keep(task, failure)
        if isinstance(status, TaskExit):
            try:
                with self._state.database.part():
                    self._progress.finish(task, status, log_end)
            except MALFORMED as err:  # without what may have caused it
                self._progress.finish(task, TaskExit(None, describe(err), platform_code=CANNOT_BE_MADE))
            self._state.database.when_committed(lambda: self._engine.forget(task))

    def _stop(self, ending: Sequence[Task]) -> list[Polled]:
        """Stop the tasks that must end; one that had not begun has already ended."""
        for task in ending:
            self._engine.stop(task)
        return self._poll(ending)

    # Starting

    def _start_waiting(self, is_busy: bool) -> Iterator[float]:
        """Start the jobs that fit; yield the seconds until a delayed retry is due.

        If tasks end all the time (``is_busy``), most jobs start before anyone could read why they wait.
        """
        self._is_full = self._has_started = self._has_more = False
        if self._engine.schedules and (left := self._burst.remaining()) > 0:
            yield left
            return
        heads = list(self._queries.heads())
        if not heads:
            return
        queues = list(dict.fromkeys(head.job.virtual_cluster for head in heads))
        free = self._free_resources()
        blocked: dict[str, WaitingJob] = {}  # virtual cluster -> the job that all others in it wait for
        waits: dict[str, StartDecision] = {}  # why each job cannot start
        started = 0
        for one in self._turns.in_order(heads, blocked):
            cluster = one.job.virtual_cluster
            if one.not_before > now():
                yield (one.not_before - now()) / 1000
                continue
            if started == MOST_STARTED:
                self._has_more = True
                yield 0.0  # in the next turn, so that others can write in between
                return
            answer = self._try_start(one, free)
            if answer.start:
                started += 1
                self._has_started = True
                self._turns.take(one)
            if answer.retry_after is not None:
                yield answer.retry_after
            if not answer.start:
                waits[one.job.key] = answer
                stuck = [] if answer.never_starts else queues if answer.machine_full else [cluster]
                blocked.update((name, one) for name in stuck if name not in blocked)
        self._turns.keep(blocked)
        self._is_full = len(blocked) == len(self._clusters)
        if is_busy and time.monotonic() < self._explain_at:
            yield QUIET
        elif all(one.why for one in waits.values()):  # otherwise, the reason is known soon
            self._explain(
                {name: blocked[name].job.key if name in blocked else None for name in queues}, waits
            )

    def _free_resources(self) -> FreeResources:
        tasks, usage = self._queries.unfinished()
        self._engine.hold(tasks)
        total = None if self._engine.schedules else self._engine.capacity().total
        self._turns.begin(total, usage)
        used: dict[str, ResourceAmount] = {}
        for (cluster, *_), amount in usage.items():
            used[cluster] = used.get(cluster, NOTHING) + amount
        return FreeResources(total, self._clusters, used, self._enforce)

    def _try_start(self, one: WaitingJob, free: FreeResources) -> StartDecision:
        try:
            return self._start_whole(one, free) if one.gang else self._start_each(one.job, free)
        except Shortage as err:
            return _wait_for(err)
        except JOB_ERRORS as err:
            if shortage := shortages.find_shortage(err):
                why = f"cannot start yet: {shortages.describe(shortage)}"
                return StartDecision(False, why, machine_full=True, retry_after=POLL_SECONDS)
            self._progress.refuse(one.job.key, describe(err))
            self._engine.hold(self._queries.unfinished()[0])  # its ports and GPUs are free again
            self.wake()  # and so are its resources
            return StartDecision(True)

    def _start_whole(self, one: WaitingJob, free: FreeResources) -> StartDecision:
        job = one.job
        answer = free.judge(job.virtual_cluster, one.need)
        if answer.start:
            tasks = self._launcher.waiting_tasks(job)
            self._launcher.launch(job, tasks)
            self._idle.expect(job.key)
            self._warn(job.key, answer)
            free.take(job.virtual_cluster, one.need)
        return answer

    def _start_each(self, job: Job, free: FreeResources) -> StartDecision:
        """Start each task as soon as it fits, without gang allocation."""
        ready: list[Task] = []
        answer = StartDecision(True)
        for task in self._launcher.waiting_tasks(job):
            need = self._launcher.need(task)
            answer = free.judge(job.virtual_cluster, need)
            if not answer.start:
                break
            if need.gpu:  # which others may use
                try:
                    self._launcher.launch(job, [task])
                except Shortage as err:
                    answer = _wait_for(err)
                    break
            else:
                ready.append(task)
            self._warn(job.key, answer)
            free.take(job.virtual_cluster, need)
        if ready:
            self._launcher.launch(job, ready)
        return answer

    # Events that explain

    def _warn(self, key: str, answer: StartDecision) -> None:
        self._wait_reasons.pop(key, None)
        if answer.why:
            self._state.add_event(key, "Warning", "LargerThanCluster", answer.why)

    def _report_wait(self, key: str, why: str, never_starts: bool = False) -> None:
        """Add an event that explains why the job waits, a warning if in vain; only if the reason changed."""
        if why and self._wait_reasons.get(key) != why:
            self._wait_reasons[key] = why
            kind = "Warning" if never_starts else "Normal"
            self._state.add_event(key, kind, "FailedScheduling", why)
            self._queries.mark_explained([key])

    def _explain(self, heads: Mapping[str, str | None], waits: Mapping[str, StartDecision]) -> None:
        """Add one event to each job that cannot start, and to those that wait behind one."""
        self._explain_at = time.monotonic() + EXPLAIN_AFTER
        for key, answer in waits.items():
            self._report_wait(key, answer.why, answer.never_starts)
        for cluster, head in heads.items():
            behind = f"behind job {head} " if head else ""
            keys = self._queries.unexplained(cluster)
            for key in keys:
                self._state.add_event(key, "Normal", "Queued", f"waits {behind}in virtual cluster {cluster}")
            self._queries.mark_explained(keys)


def _wait_for(shortage: Shortage) -> StartDecision:
    return StartDecision(False, str(shortage), machine_full=True, retry_after=shortage.retry_after)


def _at_its_place(task: Task, status: TaskStatus) -> Task:
    """Return the task with the address, ports, GPUs and start that its engine has reported."""
    place = None if isinstance(status, TaskQueued) else status.place
    if place is None:
        return task
    return replace(task, ip=place.ip, ports=place.ports, gpus=place.gpus, launched=place.began)


class SubmissionBurst:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._first: float | None = None
        self._last = 0.0

    def note(self) -> bool:
        """Note a submission; return whether it begins a burst."""
        with self._lock:
            self._last = time.monotonic()
            begins = self._first is None
            if self._first is None:
                self._first = self._last
            return begins

    def remaining(self) -> float:
        """Return the seconds until the jobs of the burst are to start; 0 ends the burst."""
        with self._lock:
            if self._first is None:
                return 0.0
            left = min(self._last + BURST_QUIET, self._first + BURST_LATEST) - time.monotonic()
            if left <= 0:
                self._first = None
            return max(0.0, left)
