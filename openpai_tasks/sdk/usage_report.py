"""What jobs had and used: as the cluster has summed it, or from its list of jobs."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from openpai_tasks.backends.base import Backend, UsageReport, UsageRow, require
from openpai_tasks.errors import InvalidOption, NotFound
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.protocol.states import FAILED
from openpai_tasks.sdk.clusters.resources import jobs_over_time, list_queue, list_recent
from openpai_tasks.sdk.sweeps import records
from openpai_tasks.text.durations import LONGEST_DAYS, parse_since

GROUPS = ("user", "tag", "sweep")
MOST_JOBS = 10_000  # of clusters that only list them: some 20 requests
_LISTED = "this cluster reports neither CPUs nor their use; only the latest attempt of each job counts"
_CUT = f"more than {MOST_JOBS:,} jobs ended since then: the earliest are left out"
_SWEEPS = "only sweeps that were submitted from this folder are known"


def report_usage(
    client: Backend,
    by: str = "user",
    since: str = "30d",
    user: str | None = None,
    points: int = 0,
    folder: Path | None = None,
) -> UsageReport:
    """Return what jobs had and used, by user, tag or sweep, also in ``points`` equal parts of the time.

    ``user`` is as for the list of jobs; by default, administrators of our own server get everyone's.
    """
    require(client, "usage_report")
    if by not in GROUPS:
        raise InvalidOption("by", f": expected {', '.join(GROUPS)}, got {by!r}")
    if by == "tag":
        require(client, "tags")
    seconds = round(time.time() - parse_since(since))
    if not 0 < seconds <= LONGEST_DAYS * 86400:
        raise InvalidOption("since", f": expected a time in the last {LONGEST_DAYS} days, got {since!r}")
    if client.capabilities.usage_history:
        try:
            return _sorted(_with_notes(client.usage_report(by, seconds, user or "", points)))
        except NotFound:  # the server is older than this client
            pass
    return _sorted(_from_list(client, by, seconds, user or client.user, points, folder or Path.cwd()))


def _sorted(report: UsageReport) -> UsageReport:
    rows = sorted(report.rows, key=lambda row: (-(row.gpu_hours or 0), -(row.cpu_hours or 0), row.name))
    return dataclasses.replace(report, rows=tuple(rows))


def _with_notes(report: UsageReport) -> UsageReport:
    if report.removed is None or report.removed < report.since:
        return report
    day = time.strftime("%Y-%m-%d %H:%M", time.localtime(report.removed / 1000))
    note = f"jobs that were removed are not counted; the last of them ended at {day} (setting local.keep)"
    return dataclasses.replace(report, notes=(note,))


def _from_list(client: Backend, by: str, seconds: int, user: str, points: int, folder: Path) -> UsageReport:
    until = int(time.time() * 1000)
    since, whose = until - 1000 * seconds, None if user == "all" else user
    recent = list_recent(client, since, MOST_JOBS, whose)
    jobs = [*recent, *list_queue(client, MOST_JOBS, whose)]
    sweeps = records.recorded_jobs(folder, client.cluster.alias) if by == "sweep" else {}
    groups: dict[str, list[JobInfo]] = {}
    for job in jobs:
        names = {"user": (job.user,), "tag": job.tags or ("",)}.get(by) or (sweeps.get(job.name, ""),)
        for name in names:
            groups.setdefault(name, []).append(job)
    notes = [_LISTED]
    notes += [_CUT] if len(recent) >= MOST_JOBS else []
    notes += [_SWEEPS] if by == "sweep" else []
    rows = tuple(_row(name, group, since, until) for name, group in groups.items())
    series = {name: _gpu_hours(group, since, until, points) for name, group in groups.items()}
    return UsageReport(by, since, until, user, rows, series if points else {}, notes=tuple(notes))


def _gpu_hours(jobs: Iterable[JobInfo], since: int, until: int, parts: int = 1) -> list[float]:
    found = jobs_over_time(jobs, since, until, parts, lambda job: float(job.gpus or 0)) if parts else []
    return [gpus * (until - since) / 3_600_000 / parts for gpus in found]


def _row(name: str, jobs: Sequence[JobInfo], since: int, until: int) -> UsageRow:
    """Sum the GPU-hours and the waiting time of listed jobs."""
    known = [job for job in jobs if job.gpus is not None]
    [total] = _gpu_hours(known, since, until)
    [failed] = _gpu_hours([job for job in known if job.state == FAILED], since, until)
    waits = [
        max(0, min(job.launched or job.completed or until, until) - max(job.submitted, since))
        for job in jobs
        if job.submitted is not None
    ]
    return UsageRow(
        name,
        len(jobs),
        gpu_hours=round(total, 4) if known else None,
        waited=round(sum(waits) / 1000 / max(1, len(waits)), 1),
        failed=round(100 * failed / total, 1) if total else None,
    )
