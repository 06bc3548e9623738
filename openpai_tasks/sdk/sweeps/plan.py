"""Plan a sweep: one job for each point."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from openpai_tasks import protocol
from openpai_tasks.errors import InvalidOption, JobFailed
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol import JobRequest
from openpai_tasks.protocol.fields import mapping
from openpai_tasks.protocol.states import FINAL
from openpai_tasks.sdk.jobs import submission
from openpai_tasks.sdk.jobs.provenance import STAMP
from openpai_tasks.sdk.jobs.submission import JobFiles, Submission
from openpai_tasks.sdk.sweeps import grid
from openpai_tasks.sdk.sweeps.grid import Point
from openpai_tasks.text.hints import option
from openpai_tasks.text.plurals import counted

MARK = "openpaiSweep"
"""Key in a job's extras with its sweep and its point."""


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

    def submission(self, name: str) -> Submission:
        """Build one job, with its values in commands or template parameters, and as variables."""
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
            extras={**request.extras, MARK: {"name": self.name, "point": point}},
            base=grid.fill_parameters(dict(request.base), point) if request.base else None,
        )
        origin = dataclasses.replace(self.files.origin, command=request.command)
        files = dataclasses.replace(self.files, origin=origin)
        text = protocol.dump(submission.build_document(request, files))
        return Submission(name, text, files.archive, files.home, origin, secrets=tuple(request.secrets))


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
    shared = dataclasses.replace(request, name="x", archive="", secrets={}, extras={}, is_memory_asked=True)
    made = submission.build_document(shared, files)
    made.get("extras", {}).pop(STAMP, None)
    known = [made, files.origin.source_hash, sorted(request.secrets)]
    return hashlib.sha256(json.dumps(known, sort_keys=True, default=str).encode()).hexdigest()


def read_sweep_mark(document: Any) -> dict[str, Any]:
    """Read the sweep and point from a job's document; empty if it has none."""
    return mapping(mapping(mapping(document).get("extras")).get(MARK))


def describe_progress(name: str, rows: Sequence[SweepJob]) -> str:
    """Describe the sweep's progress in one line."""
    known = Counter(job.state or "not submitted" for job in rows)
    counts = ", ".join(f"{count} {state}" for state, count in sorted(known.items()))
    return f"sweep {name}: {counted(len(rows), 'job')}, {counts}"


def check_sweep(name: str, rows: Sequence[SweepJob]) -> None:
    """Raise if any ended job has not succeeded."""
    failed = [job.name for job in rows if job.final and job.state != "SUCCEEDED"]
    if failed:
        names = ", ".join(failed[:3]) + (f" and {len(failed) - 3} more" if len(failed) > 3 else "")
        raise JobFailed(
            f"{len(failed)} of {counted(len(rows), 'job')} of sweep {name!r} did not succeed: {names}", 1
        )
