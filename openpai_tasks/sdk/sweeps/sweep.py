"""A sweep: plan one job for each point, submit each exactly once, and watch all of them."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import math
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from openpai_tasks import protocol
from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import Conflict, InvalidOption, JobFailed, Unreachable
from openpai_tasks.hooks.hook import JobHooks
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol import JobRequest
from openpai_tasks.protocol.document.job import SWEEP
from openpai_tasks.protocol.fields import mapping
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.protocol.routes import job_key
from openpai_tasks.protocol.states import FINAL
from openpai_tasks.sdk.amounts import at_least, read
from openpai_tasks.sdk.jobs import records, submission
from openpai_tasks.sdk.jobs.polling import Pauses
from openpai_tasks.sdk.jobs.provenance import STAMP
from openpai_tasks.sdk.jobs.submission import JobFiles, Sender, Submission
from openpai_tasks.sdk.known_names import note_exits
from openpai_tasks.sdk.sweeps import grid
from openpai_tasks.sdk.sweeps import records as sweep_records
from openpai_tasks.sdk.sweeps.grid import Point
from openpai_tasks.text.hints import option
from openpai_tasks.text.plurals import counted, name_some

MOST_ASKED = 50  # failed jobs whose own exit code, missing in the list, is requested

Say = Callable[[str], None]


@dataclass(frozen=True)
class SweepJob:
    """A job of a sweep; its state is empty until it is submitted."""

    name: str
    point: Point
    state: str = ""
    duration: float | None = None
    exit_code: int | None = None

    @property
    def final(self) -> bool:
        return self.state in FINAL


@dataclass(frozen=True)
class Sweep:
    """A request with placeholders, its files, and a point for each job."""

    name: str
    request: JobRequest
    files: JobFiles
    points: dict[str, Point]  # by job name
    identity: str = ""

    @property
    def hooks(self) -> JobHooks:
        """The hooks that are notified once, when all jobs have ended."""
        return dataclasses.replace(submission.read_hooks(self.request), sweep=self.name)

    def submission(self, name: str, is_last: bool = False) -> Submission:
        """Build one job, with its values in commands or template parameters, and as variables.

        ``is_last`` means that no more jobs of the sweep are missing, for its hooks.
        """
        point, request = self.points[name], self.request
        request = dataclasses.replace(
            request,
            name=name,
            roles=tuple(
                dataclasses.replace(role, command=grid.fill_command(role.command, point))
                for role in request.roles
            ),
            command=grid.fill_command(request.command, point),
            environment={**request.environment, **point},
            extras={**request.extras, SWEEP: {"name": self.name, "point": point}},
            base=grid.fill_parameters(dict(request.base), point) if request.base else None,
        )
        origin = dataclasses.replace(self.files.origin, command=request.command)
        files = dataclasses.replace(self.files, origin=origin)
        text = protocol.dump(submission.build_document(request, files))
        hooks = dataclasses.replace(self.hooks, is_last=is_last)
        secrets = tuple(request.secrets)
        return Submission(name, text, files.archive, files.home, origin, secrets=secrets, hooks=hooks)


def plan_sweep(
    request: JobRequest,
    files: JobFiles,
    found: Sequence[Point],
    is_named: bool = False,
    has_free_names: bool = True,
) -> Sweep:
    """Plan the sweep and name its jobs; an unnamed sweep gets the same name for the same command."""
    identity = _identity(request, files)
    name = request.name
    if not is_named:
        name = f"{submission.short_name(request.command)[:60]}-{identity[:6]}"
        request = dataclasses.replace(request, name=name)
    jobs = dict(zip(grid.job_names(name, found, has_free_names), found, strict=True))
    sweep = Sweep(name, request, files, jobs, identity)
    first = next(iter(jobs))
    if protocol.validate(sweep.submission(first).text).name != first:  # the others are alike
        raise InvalidOption("update", f": each job of a sweep gets its own name; use {option('job_name')}")
    return sweep


def _identity(request: JobRequest, files: JobFiles) -> str:
    """Hash all that the jobs share: only points may be added to a sweep later."""
    plain: dict[str, Any] = {"archive": "", "secrets": {}, "extras": {}, "priority": ""}
    shared = dataclasses.replace(request, name="x", is_memory_asked=True, **plain)
    made = submission.build_document(shared, files)
    made.get("extras", {}).pop(STAMP, None)
    known = [made, files.origin.source_hash, sorted(request.secrets)]
    return hashlib.sha256(json.dumps(known, sort_keys=True, default=str).encode()).hexdigest()


def read_sweep_mark(document: Any) -> dict[str, Any]:
    """Read the sweep and point from a job's document; empty if it has none."""
    return mapping(mapping(mapping(document).get("extras")).get(SWEEP))


def describe_progress(name: str, rows: Sequence[SweepJob]) -> str:
    """Describe the sweep's progress in one line."""
    known = Counter(job.state or "not submitted" for job in rows)
    counts = ", ".join(f"{count} {state}" for state, count in sorted(known.items()))
    return f"sweep {name}: {counted(len(rows), 'job')}, {counts}"


def check_sweep(name: str, rows: Sequence[SweepJob]) -> None:
    """Raise if any ended job has not succeeded."""
    failed = [job.name for job in rows if job.final and job.state != "SUCCEEDED"]
    if failed:
        names = name_some(failed, 3)
        raise JobFailed(
            f"{len(failed)} of {counted(len(rows), 'job')} of sweep {name!r} did not succeed: {names}", 1
        )


@dataclass()
class SweepRun:
    """A running sweep: the jobs that exist, and those to submit."""

    client: Backend
    sweep: Sweep
    folder: Path
    say: Say
    refresh_seconds: float = 0.5  # between two tables while many jobs are being submitted
    jobs: dict[str, SweepJob] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.jobs = {name: SweepJob(name, point) for name, point in self.sweep.points.items()}
        self._asked: set[str] = set()
        self._has_sent = False  # the archive of sources
        self._sender = Sender(self.client, self._say_pause)
        self._record = sweep_records.load(self.folder, self.client.cluster.alias, self.sweep.name)

    @property
    def rows(self) -> list[SweepJob]:
        return list(self.jobs.values())

    @property
    def submitted(self) -> int:
        return sum(bool(job.state) for job in self.jobs.values())

    def until_over(self, most: int | None = None, detach: bool = False) -> Iterator[list[SweepJob]]:
        """Submit missing jobs, at most ``most`` unfinished at a time, and watch until all have ended."""
        if most is not None:
            read("max_parallel", at_least(1), most)
        self._begin()
        pauses = Pauses(self.client)
        while True:
            before = self.rows
            yield from self._submit(most)
            yield self.rows
            missing = len(self.jobs) - self.submitted
            if not missing and (detach or all(job.final for job in self.rows)):
                return
            pauses.wait(moved=self.rows != before)
            self._update()

    def _begin(self) -> None:
        """Find jobs that exist already; raise if one of them belongs to another sweep."""
        self._record.begin(self.sweep.identity)
        for name in self._update():
            if name not in self._record.points:
                self._claim(name)
                self._record.add(name, self.sweep.points[name])
        if self.sweep.request.tags and not self.client.capabilities.tags:
            self.say(f"{self.client.product} has no tags, so the jobs get none")
        if self.submitted:
            share = f"{self.submitted} of {counted(len(self.jobs), 'job')}"
            self.say(f"{share} of sweep {self.sweep.name} exist already")

    def _update(self) -> list[str]:
        """Update the states of all jobs; return the names of those that exist."""
        user = self.client.user
        with self._explain_outage():
            listed = self._sender.call(lambda: self.client.jobs(username=user, keyword=self.sweep.name))
        found = {job.name: job for job in listed if job.name in self.jobs and job.user == user}
        for name, job in found.items():
            self._set(name, job)
        failed = [job for job in self.rows if job.final and job.state != "SUCCEEDED"]
        for known in failed[:MOST_ASKED]:
            if known.name not in self._asked:
                self._asked.add(known.name)
                key = job_key(user, known.name)
                job = self._sender.call(functools.partial(self.client.job, key))
                note_exits(self.client, [job])
                self._set(known.name, job)
        return list(found)

    def _set(self, name: str, job: JobInfo) -> None:
        if name in self._asked and job.exit_code is None:
            return  # it has ended, and its details are known already
        duration = round(job.duration, 1) if job.duration is not None else None
        self.jobs[name] = dataclasses.replace(
            self.jobs[name], state=job.state, duration=duration, exit_code=job.exit_code
        )

    def _submit(self, most: int | None) -> Iterator[list[SweepJob]]:
        missing = deque(name for name, job in self.jobs.items() if not job.state)
        running = sum(bool(job.state) and not job.final for job in self.rows)
        room, shown = math.inf if most is None else most - running, time.monotonic()
        while missing and room > 0:
            name = missing.popleft()
            with self._explain_outage():
                self._submit_one(name, not missing)
            room -= 1
            if time.monotonic() - shown > self.refresh_seconds:
                shown = time.monotonic()
                yield self.rows

    def _submit_one(self, name: str, is_last: bool) -> None:
        """Submit one job; the archive of sources is uploaded once for all jobs."""
        made = self.sweep.submission(name, is_last)
        with submission.upload_files(self.client, made, self._has_sent):
            self._sender.submit(made, self._claim)
        self._has_sent = True
        self._record.add(name, self.sweep.points[name])
        records.save_record(self.client, made.text, made.origin, made.secrets)
        self.jobs[name] = dataclasses.replace(self.jobs[name], state="WAITING")
        for tag in self.sweep.request.tags if self.client.capabilities.tags else ():
            key = job_key(self.client.user, name)
            self._sender.call(functools.partial(self.client.add_tag, key, tag))

    def _say_pause(self, seconds: float) -> None:
        progress = f"({self.submitted} of {len(self.jobs)} are submitted)"
        self.say(f"the cluster asks for a pause of {seconds:.0f} s {progress}")

    def _claim(self, name: str) -> None:
        """Raise unless the existing job belongs to this sweep."""
        key = job_key(self.client.user, name)
        mark = read_sweep_mark(self._sender.call(functools.partial(self.client.job_document, key)))
        if mark.get("name") != self.sweep.name:
            where = f"cluster {self.client.cluster.alias!r}"
            raise Conflict(
                f"a job named {name!r} exists on {where}; choose another {option('job_name')}", 409
            )

    @contextlib.contextmanager
    def _explain_outage(self) -> Iterator[None]:
        """If the cluster does not answer, add the progress to the error, and how to continue."""
        try:
            yield
        except Unreachable as err:
            progress = describe_progress(self.sweep.name, self.rows)
            raise Unreachable(f"{err}; {progress}; run the same command again to submit the rest") from err
