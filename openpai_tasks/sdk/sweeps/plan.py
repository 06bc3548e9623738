"""Many jobs as one thing: what a sweep is, and what each of its jobs is made of."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from openpai_tasks import protocol
from openpai_tasks.errors import ConfigError, JobFailed
from openpai_tasks.sdk.jobs import submission
from openpai_tasks.sdk.jobs.provenance import STAMP
from openpai_tasks.sdk.jobs.submission import Draft, Submission
from openpai_tasks.sdk.sweeps import grid as points
from openpai_tasks.sdk.sweeps.grid import Point

MARK = "openpaiSweep"
"""The key of a job's extras that names its sweep and its point."""


@dataclass(frozen=True)
class SweepJob:
    """One job of a sweep as it stands; its state is empty until it is submitted."""

    name: str
    point: Point
    state: str = ""
    duration: float | None = None
    exit: int | None = None

    @property
    def final(self) -> bool:
        return self.state in ("SUCCEEDED", "FAILED", "STOPPED")


@dataclass(frozen=True)
class Sweep:
    """What is to be run: a draft with holes, and a point for each job."""

    name: str
    draft: Draft
    points: dict[str, Point]  # by the name of the job
    changes: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    identity: str = ""

    def submission(self, name: str) -> Submission:
        """One job: its values in its commands (or a template's parameters), and as variables."""
        point, spec = self.points[name], self.draft.spec
        roles = tuple(
            dataclasses.replace(role, command=points.fill(role.command, point)) for role in spec.roles
        )
        spec = dataclasses.replace(
            spec,
            name=name,
            roles=roles,
            command=points.fill(spec.command, point),
            environment={**spec.environment, **point},
            extras={**spec.extras, MARK: {"name": self.name, "point": point}},
        )
        origin = dataclasses.replace(self.draft.origin, command=spec.command)
        base = points.fill_parameters(self.draft.base, point) if self.draft.base else None
        made = dataclasses.replace(self.draft, spec=spec, origin=origin, base=base)
        text = protocol.dump(made.document(self.changes))
        return Submission(name, text, made.archive, made.home, origin)


def plan_sweep(
    draft: Draft,
    found: Sequence[Point],
    given_name: str | None,
    changes: Sequence[str] = (),
    tags: Sequence[str] = (),
) -> Sweep:
    """The sweep with a name for each job; without a name of its own, one that the same command gets again."""
    identity = _identity(draft, changes)
    name = draft.spec.name
    if not given_name:
        name = f"{submission.told_by(draft.spec.command)[:60]}-{identity[:6]}"
        draft = dataclasses.replace(draft, spec=dataclasses.replace(draft.spec, name=name))
    jobs = dict(zip(points.names(name, found), found, strict=True))
    sweep = Sweep(name, draft, jobs, tuple(changes), tuple(tags), identity)
    first = next(iter(jobs))
    if protocol.validate(sweep.submission(first).text).name != first:  # the others have the same shape
        raise ConfigError("the jobs of a sweep have names of their own: give --job-name, not -u name")
    return sweep


def _identity(draft: Draft, changes: Sequence[str]) -> str:
    """A hash of all that the jobs have in common; more points may be added to a sweep, nothing else."""
    spec = dataclasses.replace(draft.spec, name="x", archive="", secrets={}, extras={})
    made = dataclasses.replace(draft, spec=spec).document(changes)
    made.get("extras", {}).pop(STAMP, None)
    told = [made, draft.origin.source_hash, sorted(draft.spec.secrets)]
    return hashlib.sha256(json.dumps(told, sort_keys=True, default=str).encode()).hexdigest()


def mark_of(document: Any) -> dict[str, Any]:
    """Which sweep and point a job says it is of."""
    extras = document.get("extras") if isinstance(document, dict) else None
    mark = extras.get(MARK) if isinstance(extras, dict) else None
    return mark if isinstance(mark, dict) else {}


def describe_progress(name: str, rows: Sequence[SweepJob]) -> str:
    """A sweep in one line."""
    states = Counter(job.state or "not submitted" for job in rows)
    told = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    return f"sweep {name}: {len(rows)} jobs, {told}"


def check_sweep(name: str, rows: Sequence[SweepJob]) -> None:
    """Raise unless every job that is over has succeeded."""
    failed = [job.name for job in rows if job.final and job.state != "SUCCEEDED"]
    if failed:
        told = ", ".join(failed[:3]) + (f" and {len(failed) - 3} more" if len(failed) > 3 else "")
        raise JobFailed(f"{len(failed)} of {len(rows)} jobs of sweep {name!r} did not succeed: {told}", 1)
