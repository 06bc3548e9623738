"""What jobs had and used in a span of time, summed by user, tag or sweep."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from openpai_tasks.protocol.routes import job_key
from openpai_tasks.protocol.states import FAILED
from openpai_tasks.server.state.database import Database

GROUPS = {
    "user": "",
    "tag": "SELECT job, tag FROM tags",
    "sweep": "SELECT key, share FROM jobs WHERE share != ''",
}
"""What jobs can be grouped by, and the query of their groups; the user is in the key."""
HOUR = 3_600_000  # ms

_ATTEMPTS = """SELECT attempts.job, id, attempts.state, attempts.created,
coalesce(attempts.launched, attempts.completed, :until) AS begun,
tasks.launched, coalesce(tasks.completed, :until), cpu,
CASE WHEN :places_late THEN gpu ELSE json_array_length(tasks.gpus) END, cpu_seconds, gpu_percent
FROM attempts LEFT JOIN tasks
ON tasks.job = attempts.job AND job_attempt = id AND tasks.launched IS NOT NULL
WHERE (attempts.completed >= :since OR attempts.completed IS NULL)"""
_OF_USER = " AND attempts.job >= :first AND attempts.job < :last"


@dataclass
class GroupUsage:
    """Hours of a group of jobs; those ``measured`` are of tasks whose use is known."""

    jobs: set[str] = field(default_factory=set)
    waited: float = 0.0
    gpu: float = 0.0
    gpu_measured: float = 0.0
    gpu_used: float = 0.0
    gpu_failed: float = 0.0
    cpu: float = 0.0
    cpu_measured: float = 0.0
    cpu_used: float = 0.0
    cpu_failed: float = 0.0
    series: list[list[float]] = field(default_factory=list)  # GPU-hours and CPU-hours of each part

    def as_json(self, name: str) -> dict[str, Any]:
        return {"name": name, **vars(self), "jobs": len(self.jobs)}


def read_report(
    database: Database, by: str, user: str, since: int, until: int, parts: int, places_late: bool = False
) -> list[dict[str, Any]]:
    """Return the hours of each group, from ``since`` to ``until``, and of each of some equal parts of it.

    An empty ``user`` means all users. A job with several tags counts for each of them. GPUs are those that a
    task got; an engine that places tasks late has given it what it asked for.
    """
    names: dict[str, list[str]] = {}
    for row in database.rows(GROUPS[by]) if GROUPS[by] else ():
        names.setdefault(row[0], []).append(row[1])
    groups: dict[str, GroupUsage] = {}
    waited: set[tuple[str, int]] = set()
    values: dict[str, Any] = {"since": since, "until": until, "places_late": places_late}
    if user:
        values |= {"first": job_key(user, ""), "last": f"{user}\x7f"}
    for job, attempt, state, created, begun, *task in database.rows(
        _ATTEMPTS + _OF_USER * bool(user), values
    ):
        found = names.get(job, [""]) if GROUPS[by] else [job.partition("~")[0]]
        for name in found:
            group = groups.setdefault(name, GroupUsage(series=[[0.0, 0.0] for _ in range(parts)]))
            group.jobs.add(job)
            if (job, attempt) not in waited:
                group.waited += _hours(created, begun, since, until)
            if task[0] is not None:
                _add_task(group, *task, has_failed=state == FAILED, since=since, until=until)
        waited.add((job, attempt))
    return [group.as_json(name) for name, group in sorted(groups.items())]


def _hours(begin: int, end: int, since: int, until: int) -> float:
    """Return the hours from ``begin`` to ``end`` that are between ``since`` and ``until``."""
    return max(0, min(end, until) - max(begin, since)) / HOUR


def _add_task(
    group: GroupUsage,
    begin: int,
    end: int,
    cpu: int,
    gpu: int,
    cpu_seconds: float | None,
    gpu_percent: float | None,
    *,
    has_failed: bool,
    since: int,
    until: int,
) -> None:
    hours = _hours(begin, end, since, until)
    gpu_hours, cpu_hours = gpu * hours, cpu * hours
    group.gpu += gpu_hours
    group.cpu += cpu_hours
    if has_failed:
        group.gpu_failed += gpu_hours
        group.cpu_failed += cpu_hours
    if gpu_percent is not None:
        group.gpu_measured += gpu_hours
        group.gpu_used += gpu_hours * gpu_percent / 100
    if cpu_seconds is not None and end > begin:
        group.cpu_measured += cpu_hours
        group.cpu_used += cpu_seconds / 3600 * hours / ((end - begin) / HOUR)
    parts = len(group.series)
    length = (until - since) / max(1, parts)
    first, last = int(max(0, begin - since) / length), int(max(0, min(end, until) - since) / length)
    for at in range(first, min(last + 1, parts)):
        part = _hours(begin, end, since + int(at * length), since + int((at + 1) * length))
        group.series[at][0] += gpu * part
        group.series[at][1] += cpu * part


def last_removed_end(database: Database) -> int | None:
    """Return when the last of the jobs that were removed had ended; None if there are none."""
    row = database.row("SELECT last_end FROM removed_jobs")
    return row[0] if row else None
