"""The load of a cluster: its queue, and what ran in the last hours, from the list of jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from openpai_tasks.backends.base import Backend
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.protocol.states import FINAL, RUNNING, STOPPING, WAITING

AT_ONCE = 500
UNFINISHED = ",".join(sorted((RUNNING, STOPPING, WAITING)))


def list_queue(client: Backend, limit: int) -> list[JobInfo]:
    """Return the unfinished jobs of all users, oldest first."""
    return client.jobs(state=UNFINISHED, order="submissionTime,ASC", limit=limit)


def list_recent(client: Backend, since: int, limit: int) -> list[JobInfo]:
    """Return the jobs of all users that ended since a moment (ms), latest first, and at most so many."""
    found: list[JobInfo] = []
    while len(found) < limit:
        size = min(AT_ONCE, limit - len(found))
        rows = client.jobs(
            state=",".join(sorted(FINAL)), order="completionTime,DESC", offset=len(found), limit=size
        )
        recent = [job for job in rows if job.completed is not None and job.completed >= since]
        found += recent
        if len(recent) < size:
            break
    return found


def jobs_over_time(
    jobs: Iterable[JobInfo], start: int, end: int, points: int, amount: Callable[[JobInfo], float]
) -> list[float]:
    """Return the average amount of running jobs in each of so many equal parts of a time span (ms)."""
    step = (end - start) / points
    totals = [0.0] * points
    for job in jobs:
        until = job.completed if job.final else end
        if job.launched is None or until is None:
            continue
        begun, ended = max(job.launched, start), min(until, end)
        weight = amount(job) if ended > begun else 0.0
        if not weight:
            continue
        for part in range(int((begun - start) / step), min(points, int((ended - start) / step) + 1)):
            inside = min(ended, start + (part + 1) * step) - max(begun, start + part * step)
            totals[part] += weight * max(0.0, inside) / step
    return totals
