"""The jobs of an executor: submit them, ask for all of their states at once, and collect results."""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from openpai_tasks.api.futures import call_jobs
from openpai_tasks.api.futures.call_jobs import Call, CallJob
from openpai_tasks.api.futures.call_request import CallTarget
from openpai_tasks.api.futures.call_results import CallResults, deliver
from openpai_tasks.api.futures.executor_record import ExecutorRecord
from openpai_tasks.api.futures.pai_future import OpenFutures, PaiFuture
from openpai_tasks.errors import ApiError, Conflict, JobFailed, NotFound, PaiError, Unreachable
from openpai_tasks.protocol import states
from openpai_tasks.protocol.document.job_storage import MountedFolder
from openpai_tasks.protocol.models import PLATFORM_STATUS, JobInfo
from openpai_tasks.protocol.routes import job_key
from openpai_tasks.sdk.jobs import submission
from openpai_tasks.sdk.jobs.submission import Sender
from openpai_tasks.sdk.payloads.call_runner import result_name
from openpai_tasks.text.hints import command

GLANCE_SECONDS = 0.5  # between two looks at the jobs while many are being submitted
LATE_SECONDS = 30.0  # that a job or a file on another machine may take to appear
MOST_ASKED = 50  # failed jobs whose own exit code, missing in the list, is requested
GONE = "GONE"  # the state of a job that the cluster does not know

log = logging.getLogger("openpai_tasks")


class CallTracker:
    """The jobs of an executor, from their calls to their results; only the executor's thread uses it."""

    def __init__(
        self,
        target: CallTarget,
        record: ExecutorRecord,
        futures: OpenFutures,
        max_jobs: int | None,
        batch: int,
    ) -> None:
        self._target, self._client, self._record = target, target.client, record
        self._open, self._max_jobs, self._batch = futures, max_jobs, batch
        self._results = CallResults(target.home, bytes.fromhex(record.facts.key))
        self._sender = Sender(self._client, self._pausing)
        self._late = 0.0 if self._client.polls_cheaply else LATE_SECONDS
        self._planned: deque[CallJob] = deque()
        self._submitted: dict[str, CallJob] = {}  # until all of their calls have a result
        self._job_of: dict[int, CallJob] = {}
        self._count = self._asked = 0

    @property
    def has_planned(self) -> bool:
        return bool(self._planned)

    @property
    def can_submit(self) -> bool:
        """Whether there is a job to submit, and room for it."""
        if not self._planned or self._max_jobs is None:
            return bool(self._planned)
        return sum(not job.has_ended for job in self._submitted.values()) < self._max_jobs

    @property
    def is_watching(self) -> bool:
        return bool(self._submitted)

    def collect(self, job: CallJob) -> None:
        """Watch a job of another executor; it may never have been submitted, or be removed."""
        self._submitted[job.name] = job
        self._job_of |= dict.fromkeys(job.waiting, job)
        for future in job.waiting.values():
            future.job = job.name
            self._open.add(future)

    def turn(
        self, calls: Sequence[Call], cancelled: Iterable[int], planned: Callable[[], None] = lambda: None
    ) -> bool:
        """Handle new and cancelled calls, and look at all jobs; return whether anything has changed.

        ``planned`` is called when the new calls are recorded.
        """
        moved = self._drop_cancelled(cancelled)
        self._plan(calls)
        planned()
        return any([moved, self._submit(), self._poll()])

    # Submission

    def _plan(self, calls: Sequence[Call]) -> None:
        """Divide calls among jobs, pack them, and record them."""
        wanted = [call for call in calls if call.number in self._open]
        jobs = call_jobs.make_jobs(self._record.name, self._count + 1, wanted, self._batch)
        self._count += len(jobs)
        for group in call_jobs.group_jobs(jobs):
            inside = [call for _, part in group for call in part]
            try:
                bundle = call_jobs.pack_calls(self._target, self._record, inside)
                has_secrets = bool(self._target.request.secrets)
                call_jobs.record_jobs(self._record, bundle, [job for job, _ in group], has_secrets)
            except PaiError as err:
                for call in inside:
                    self.fail(call.number, err)
                continue
            for job, _ in group:
                job.bundle = bundle
                self._job_of |= dict.fromkeys(job.numbers, job)
                self._planned.append(job)

    def _submit(self) -> bool:
        """Submit planned jobs while there is room, for a limited time."""
        limit, moved = time.monotonic() + GLANCE_SECONDS, False
        while self.can_submit and time.monotonic() < limit:
            job = self._planned[0]
            if job.waiting:
                self._submit_one(job)
                moved = True
            self._planned.popleft()
        return moved

    def _submit_one(self, job: CallJob) -> None:
        bundle = job.bundle
        assert bundle is not None
        try:
            made = bundle.submission(job)
            with submission.upload_files(self._client, made, bundle.is_sent):
                self._sender.submit(made, self._claim)
        except Unreachable:
            raise
        except PaiError as err:
            for number in list(job.waiting):
                self.fail(number, err)
            return
        self._record.mark_submitted(job.name)
        bundle.is_sent, job.bundle = True, None
        self._submitted[job.name] = job
        for future in job.waiting.values():
            future.job = job.name
        self._tag(job)

    def _tag(self, job: CallJob) -> None:
        try:
            for tag in self._target.request.tags:
                self._sender.call(functools.partial(self._client.add_tag, self._key(job), tag))
        except ApiError as err:
            log.warning("job %r was submitted, but not tagged: %s", job.name, err)

    def _claim(self, name: str) -> None:
        """Raise unless the existing job is this executor's."""
        key = job_key(self._client.user, name)
        document = self._sender.call(lambda: self._client.job_document(key))
        if call_jobs.read_mark(document) != call_jobs.mark_of(self._record):
            where = f"cluster {self._client.cluster.alias!r}"
            raise Conflict(f"a job named {name!r} exists on {where}; choose another name", 409)

    def _pausing(self, seconds: float) -> None:
        log.warning("the cluster asks for a pause of %.0f s (%d jobs wait)", seconds, len(self._planned))

    # Results

    def _poll(self) -> bool:
        """Look at all jobs with one request, or with two if some have ended without their results."""
        if not self._submitted:
            return False
        listed = self._list(state=states.UNFINISHED)
        jobs = list(self._submitted.values())
        moved = [self._update(job, listed[job.name]) for job in jobs if job.name in listed]
        ended = [job for job in jobs if job.name not in listed]
        moved += [self._collect_all(job) for job in ended]
        lost = [job for job in ended if job.waiting]
        listed = self._list() if lost else {}
        return any([*moved, *(self._update(job, listed.get(job.name)) for job in lost)])

    def _list(self, state: str | None = None) -> dict[str, JobInfo]:
        user, name = self._client.user, self._record.name
        ask = functools.partial(self._client.jobs, username=user, keyword=name, state=state)
        return {job.name: job for job in self._sender.call(ask) if job.user == user}

    def _update(self, job: CallJob, info: JobInfo | None) -> bool:
        """Take over the state of a job, and its new results."""
        if info is None:
            return self._search(job)
        before = job.state, len(job.waiting)
        job.state, job.missing = info.state, None
        if info.final:
            self._finish(job)
        elif info.state not in (states.WAITING, states.UNKNOWN):
            for future in job.waiting.values():
                future.begin()
            self._collect_early(job)
        return (job.state, len(job.waiting)) != before

    def _search(self, job: CallJob) -> bool:
        """Search for a job that is not listed: a new one may appear late, an old one may be removed."""
        now = time.monotonic()
        job.missing = now if job.missing is None else job.missing
        if now - job.missing < LATE_SECONDS or (job.missing == -math.inf and self._record.is_held):
            return False
        try:
            info = self._sender.call(lambda: self._client.job(self._key(job)))
        except NotFound:
            if job.bundle:  # its program ended before it was submitted
                self._planned.append(self._submitted.pop(job.name))
                return True
            job.state = GONE
            self._finish(job)
            return True
        job.bundle = None
        return self._update(job, info)

    def _finish(self, job: CallJob) -> None:
        """Collect the results of a job that has ended; fail calls without one."""
        job.ended = time.monotonic() if job.ended is None else job.ended
        is_late = time.monotonic() - job.ended >= self._late
        self._collect_all(job, is_late)
        if job.waiting and is_late:
            err = self._explain(job)
            for number in list(job.waiting):
                self.fail(number, err)
            self._submitted.pop(job.name, None)

    def _collect_all(self, job: CallJob, is_late: bool = False) -> bool:
        """Collect the results of a job that has probably ended; return whether there were any."""
        before = len(job.waiting)
        for number in list(job.waiting):
            self._collect(job, number, is_late)
        if not job.waiting:
            self._submitted.pop(job.name, None)
        return len(job.waiting) < before

    def _collect_early(self, job: CallJob) -> None:
        """Collect results of a running job with several calls, where its output can be read."""
        if len(job.numbers) == 1 or not isinstance(self._target.home.seen, MountedFolder):
            return
        with contextlib.suppress(PaiError):  # the next look tries again
            there = self._results.present(job.name)
            for number in [number for number in job.waiting if result_name(number) in there]:
                self._collect(job, number)

    def _collect(self, job: CallJob, number: int, is_late: bool = False) -> None:
        try:
            body = self._sender.call(lambda: self._results.read(job.name, number))
        except PaiError as err:
            if is_late:  # before, a share may show only a part of the file
                self.fail(number, err)
            return
        future = None if body is None else self._take(number)
        if body is not None and future is not None and future.begin():
            deliver(future, body)

    def _explain(self, job: CallJob) -> PaiError:
        """Return the error for calls whose job ended without their results."""
        name, message, status = job.name, self._results.error(job.name), PLATFORM_STATUS
        if job.state == GONE:
            return NotFound(f"job {name!r} was never submitted, or is removed; submit its calls again", 404)
        if self._asked < MOST_ASKED:
            self._asked += 1
            with contextlib.suppress(ApiError):
                info = self._sender.call(lambda: self._client.job(self._key(job)))
                message, status = message or info.message, info.exit_status or status
        alias = () if self._target.is_selected else ("-a", self._client.cluster.alias)
        reason = f" ({message})" if message else ""
        why = f"`{command('job.why', name, *alias)}` says more"
        return JobFailed(f"job {name!r} is {job.state} without a result{reason}; {why}", status)

    # Futures

    def _drop_cancelled(self, cancelled: Iterable[int]) -> bool:
        """Notify those who wait for cancelled futures, and stop jobs that have no other call."""
        moved = False
        for number in cancelled:
            job, future = self._job_of.get(number), self._take(number)
            if future is not None:
                future.begin()
                moved = True
            if job and not job.waiting and self._submitted.pop(job.name, None) and not job.has_ended:
                self._stop(job)
        return moved

    def _stop(self, job: CallJob) -> None:
        try:
            self._sender.call(lambda: self._client.stop_job(self._key(job)))
        except ApiError as err:  # it has ended in the meantime
            log.debug("cannot stop job %r: %s", job.name, err)

    def _take(self, number: int) -> PaiFuture[Any] | None:
        job = self._job_of.pop(number, None)
        if job:
            job.waiting.pop(number, None)
        return self._open.take(number)

    def fail(self, number: int, err: BaseException) -> None:
        """Set the error of a call, unless it has its result or was cancelled."""
        future = self._take(number)
        if future is not None and future.begin():
            future.set_exception(err)

    def _key(self, job: CallJob) -> str:
        return job_key(self._client.user, job.name)
