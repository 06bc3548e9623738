"""Compare jobs: their parameters, resources, commands and results, and which value is the best."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import ConfigError, NotFound, PaiError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol.document import scripts
from openpai_tasks.protocol.document.build import BRACKET
from openpai_tasks.protocol.document.folding import own_commands
from openpai_tasks.protocol.fields import mapping, rows, text, texts
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.sdk.files.job_folders import Mounts
from openpai_tasks.sdk.jobs import lookup
from openpai_tasks.sdk.jobs.documents import job_document
from openpai_tasks.sdk.jobs.metrics import Metric, MetricReader, is_lower_better
from openpai_tasks.sdk.sweeps import results
from openpai_tasks.sdk.sweeps.results import JobResult, as_number
from openpai_tasks.sdk.sweeps.sweep import read_sweep_mark

FEWEST, MOST = 2, 50
AT_ONCE = 8
LAST, BEST = ".last", ".best"
"""What follows the name of a metric."""


@dataclass(frozen=True)
class ComparedJob:
    """What can differ between jobs; ``metrics`` has the last and the best value of each metric."""

    name: str
    state: str
    duration: float | None
    parameters: dict[str, Any]
    image: str
    resources: dict[str, Any]
    command: str
    metrics: dict[str, Any]
    result: dict[str, Any]


@dataclass(frozen=True)
class ComparedRow:
    """One value of each job, in the order of the jobs; ``best`` are the numbers of the best ones."""

    name: str
    values: tuple[Any, ...]
    best: frozenset[int] = frozenset()

    @property
    def differs(self) -> bool:
        return any(value != self.values[0] for value in self.values)


@dataclass(frozen=True)
class Comparison:
    """Jobs side by side, their metrics with all points, and the sweep that they all belong to, if any."""

    jobs: tuple[ComparedJob, ...]
    metrics: tuple[Metric, ...]
    sweep: str = ""

    @functools.cached_property
    def rows(self) -> list[ComparedRow]:
        """A row for each value that a job has."""
        found = [ComparedRow(name, self._values(name)) for name in ("state", "duration")]
        found += self._group("parameters")
        found += [ComparedRow("image", self._values("image")), *self._group("resources")]
        found += [ComparedRow("command", self._values("command"))]
        return found + [_with_best(row) for name in ("metrics", "result") for row in self._group(name)]

    @property
    def differing(self) -> list[ComparedRow]:
        """The rows whose values differ; the commands of one sweep differ only by the parameters."""
        return [row for row in self.rows if row.differs and not (row.name == "command" and self.sweep)]

    def _values(self, field: str) -> tuple[Any, ...]:
        return tuple(getattr(job, field) for job in self.jobs)

    def _group(self, field: str) -> list[ComparedRow]:
        groups = self._values(field)
        names = dict.fromkeys(name for group in groups for name in group)
        return [ComparedRow(name, tuple(group.get(name) for group in groups)) for name in names]


def compare(client: Backend, names: Sequence[str], folder: Path, mounts: Mounts = ()) -> Comparison:
    """Compare jobs and sweeps by name or pattern; ``folder`` has the records of sweeps."""
    chosen = results.find_members(client, names, folder)
    if not FEWEST <= len(chosen) <= MOST:
        raise ConfigError(f"name {FEWEST} to {MOST} jobs to compare, not {len(chosen)}")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        gathered = pool.submit(results.gather_results, client, list(chosen), folder, mounts)
        read = list(pool.map(lambda name: _read(client, name, mounts), chosen))
        jobs = tuple(map(_compared, gathered.result(), read))
    sweeps = {text(read_sweep_mark(one.document).get("name")) for one in read}
    points = tuple(metric for one in read for metric in one.metrics)
    return Comparison(jobs, points, sweeps.pop() if len(sweeps) == 1 else "")


@dataclass(frozen=True)
class _Read:
    """What a cluster knows about a job; without a document or metrics if it cannot be read."""

    job: JobInfo | None
    document: dict[str, Any]
    metrics: list[Metric]


def _read(client: Backend, name: str, mounts: Mounts) -> _Read:
    try:
        job, document = job_document(client, name)
    except NotFound:
        return _Read(None, {}, [])
    except PaiError:
        job, document = lookup.find(client, name), {}
    try:
        return _Read(job, document, MetricReader(client, name, mounts, is_thinned=True).read(job))
    except PaiError:
        return _Read(job, document, [])


def _compared(found: JobResult, read: _Read) -> ComparedJob:
    roles = mapping(read.document.get("taskRoles"))
    metrics = dict(_metric_values(read.metrics))
    last = {name.removesuffix(LAST): value for name, value in metrics.items() if name.endswith(LAST)}
    images = {
        item.get("name"): item.get("uri")
        for item in rows(read.document.get("prerequisites"))
        if item.get("type") == "dockerimage"
    }
    used = dict.fromkeys(text(images.get(role.get("dockerImage"))) for role in roles.values())
    return ComparedJob(
        name=found.name,
        state=found.state,
        duration=read.job.duration if read.job else None,
        parameters={**_parameters(read.document), **found.point},
        image=", ".join(filter(None, used)),
        resources=dict(_resources(roles)),
        command="\n".join(own_commands(read.document).values()),
        metrics=metrics,
        result={name: value for name, value in found.result.items() if last.get(name) != value},
    )


def _parameters(document: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of the document, and the variables that the job was submitted with."""
    found = {
        name: as_number(value)
        for name, value in mapping(document.get("parameters")).items()
        if name != BRACKET and not isinstance(value, (dict, list))
    }
    for deployment in rows(document.get("deployments")):
        for role in mapping(deployment.get("taskRoles")).values():
            for step in texts(mapping(role).get("preCommands")):
                found |= {name: as_number(value) for name, value in scripts.read_export(step).items()}
    return found


def _resources(roles: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the number of tasks and the resources of each; of several roles with the role's name."""
    for name, role in roles.items():
        given = mapping(mapping(role).get("resourcePerInstance"))
        amounts = {"tasks": mapping(role).get("instances", 1), **given}
        for resource, amount in amounts.items():
            if not isinstance(amount, (dict, list)):
                yield (f"{name}.{resource}" if len(roles) > 1 else resource), amount


def _metric_values(metrics: Sequence[Metric]) -> Iterator[tuple[str, float | None]]:
    """Yield the last and the best value of each metric; of several tasks, the first one's."""
    seen = set()
    for metric in metrics:
        if metric.name not in seen:
            seen.add(metric.name)
            yield metric.name + LAST, metric.last
            yield metric.name + BEST, metric.min if is_lower_better(metric.name) else metric.max


def _with_best(row: ComparedRow) -> ComparedRow:
    """Mark the best of the numbers of a row, unless all are the same."""
    numbers = {at: value for at, value in enumerate(row.values) if is_finite(value)}
    if len(set(numbers.values())) < 2:
        return row
    best = min(numbers.values()) if is_lower_better(row.name) else max(numbers.values())
    return dataclasses.replace(row, best=frozenset(at for at, one in numbers.items() if one == best))


def read_values(
    client: Backend, jobs: Sequence[JobInfo], names: Sequence[str], mounts: Mounts = ()
) -> list[dict[str, Any]]:
    """Return the named results and last values of metrics of each job, as far as it has them."""
    found = results.read_results(client, jobs, mounts)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(lambda job, one: _values(client, job, one, names, mounts), jobs, found))


def _values(
    client: Backend, job: JobInfo, found: JobResult, names: Sequence[str], mounts: Mounts
) -> dict[str, Any]:
    known = {**found.point, **found.result}
    if not all(name in known for name in names):
        with contextlib.suppress(PaiError):
            known = {
                metric.name: metric.last
                for metric in MetricReader(client, job.key, mounts, is_thinned=True).read()
            } | known
    return {name: known[name] for name in names if name in known}


def is_finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
