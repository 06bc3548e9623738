"""The table of jobs: its columns, the rows of sweeps, and values that the jobs have measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from openpai_tasks import sdk
from openpai_tasks.backends.base import Backend
from openpai_tasks.protocol import states
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.sdk.jobs.metrics import is_lower_better
from openpai_tasks.storage.store import Mounts

MOST_OPENED = 100
"""Jobs of an opened sweep that the list shows; the page of the sweep has all."""
MOST_MEASURED = 200
"""Jobs of which values are read for a page."""
METRIC = "metric:"
"""What precedes the name of a metric that the list is sorted by."""

Values = Mapping[str, Mapping[str, Any]]
"""What jobs have measured, by the key of the job and the name of the value."""


@dataclass(frozen=True)
class Column:
    """A column of the list; ``order`` is the name by which clusters sort, if they can."""

    label: str
    value: Callable[[JobInfo], Any]
    order: str = ""
    style: str = ""
    is_usual: bool = True
    is_largest_first: bool = False
    default: object = None
    """The value that says nothing if all jobs have it."""


COLUMNS = {
    "state": Column("State", lambda job: job.state, "state"),
    "user": Column("User", lambda job: job.user, "username"),
    "vc": Column("Virtual cluster", lambda job: job.virtual_cluster, "vc", default="default"),
    "submitted": Column(
        "Submitted", lambda job: job.submitted, "submissionTime", "moment", is_largest_first=True
    ),
    "duration": Column("Duration", lambda job: job.duration, style="moment", is_largest_first=True),
    "gpus": Column("GPUs", lambda job: job.gpus, "totalGpuNumber", "number", is_largest_first=True),
    "tasks": Column(
        "Tasks", lambda job: job.task_count, "totalTaskNumber", "number", False, is_largest_first=True
    ),
    "retries": Column("Retries", lambda job: job.retries, "retries", "number", is_largest_first=True),
    "exit": Column("Exit code", lambda job: job.exit_code, style="number", is_usual=False),
    "completed": Column(
        "Ended", lambda job: job.completed, "completionTime", "moment", False, is_largest_first=True
    ),
    "cause": Column("Cause", lambda job: job.cause, style="cause"),
    "tags": Column("Tags", lambda job: job.tags),
    "priority": Column("Priority", lambda job: job.priority, "jobPriority", is_usual=False),
}
USUAL = tuple(name for name, column in COLUMNS.items() if column.is_usual)


@dataclass(frozen=True)
class Row:
    """A job, or a sweep with the jobs of it that are listed."""

    jobs: list[JobInfo]
    sweep: str = ""
    is_open: bool = False

    @property
    def job(self) -> JobInfo:
        return self.jobs[0]

    @property
    def shown(self) -> Sequence[JobInfo]:
        """The jobs that have a row."""
        return self.jobs if not self.sweep else self.jobs[:MOST_OPENED] if self.is_open else ()

    @property
    def counts(self) -> list[tuple[str, int]]:
        found = Counter(job.state for job in self.jobs)
        return [(state, found[state]) for state in states.ALL if found[state]]


def group(jobs: Sequence[JobInfo], sweeps: Mapping[str, str], opened: str, limit: int) -> list[Row]:
    """Return up to ``limit`` rows; the jobs of a sweep share one. ``sweeps`` is by the name of a job."""
    rows: dict[str, Row] = {}
    for job in jobs:
        sweep = sweeps.get(job.name, "")
        key = f"sweep {sweep}" if sweep else f"job {job.key}"
        if key not in rows and len(rows) == limit:
            break
        rows.setdefault(key, Row([], sweep, sweep == opened)).jobs.append(job)
    return [row if len(row.jobs) > 1 else Row(row.jobs) for row in rows.values()]


def visible_columns(rows: Sequence[Row], chosen: Sequence[str], user: str) -> list[str]:
    """Return the chosen columns without those that say nothing about any of the jobs."""
    jobs = [job for row in rows for job in row.jobs]

    def says_something(name: str) -> bool:
        column = COLUMNS[name]
        nothing = (None, "", 0, (), user if name == "user" else column.default)
        return name in ("state", "exit") or any(column.value(job) not in nothing for job in jobs)

    return [name for name in COLUMNS if name in chosen and says_something(name)]


def sort_rows(rows: list[Row], column: str, is_descending: bool, values: Values) -> list[Row]:
    """Sort rows of single jobs by a column that clusters cannot sort by; those without a value are last."""

    def value(row: Row) -> Any:
        if column.startswith(METRIC):
            return values.get(row.job.key, {}).get(column.removeprefix(METRIC))
        return COLUMNS[column].value(row.job)

    known = [row for row in rows if value(row) is not None]
    numbers = [row for row in known if isinstance(value(row), (int, float))]
    numbers.sort(key=value, reverse=is_descending)
    texts = [row for row in known if not isinstance(value(row), (int, float))]
    texts.sort(key=lambda row: str(value(row)), reverse=is_descending)
    return [*numbers, *texts, *(row for row in rows if value(row) is None)]


def measure(
    client: Backend, rows: Sequence[Row], names: Sequence[str], mounts: Mounts, own_only: bool
) -> dict[str, dict[str, Any]]:
    """Read the named results and metrics of the jobs that have started, at most so many."""
    jobs = [
        job
        for row in rows
        for job in row.jobs
        if job.state != states.WAITING and (not own_only or job.user == client.user)
    ][:MOST_MEASURED]
    if not names or not jobs:
        return {}
    read = sdk.sweeps.read_values(client, jobs, names, mounts)
    return {job.key: values for job, values in zip(jobs, read, strict=True)}


def best_value(values: Values, row: Row, name: str) -> float | None:
    """Return the best value in a sweep; None unless all of its jobs were read."""
    if not all(job.key in values for job in row.jobs if job.state != states.WAITING):
        return None
    known = [values.get(job.key, {}).get(name) for job in row.jobs]
    numbers = [value for value in known if isinstance(value, (int, float))]
    return (min if is_lower_better(name) else max)(numbers, default=None)
