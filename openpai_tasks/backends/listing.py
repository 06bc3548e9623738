"""Filters of the job list: adapted for servers that support them, or applied here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from openpai_tasks.protocol import states
from openpai_tasks.protocol.models import JobInfo

Query = Mapping[str, Any]

_FIELDS: dict[str, Callable[[JobInfo], Any]] = {
    "jobName": lambda job: job.name,
    "submissionTime": lambda job: job.submitted or 0,
    "username": lambda job: job.user,
    "vc": lambda job: job.virtual_cluster,
    "retries": lambda job: job.retries,
    "totalTaskNumber": lambda job: job.task_count or 0,
    "totalGpuNumber": lambda job: job.gpus or 0,
    "state": lambda job: job.state,
    "completionTime": lambda job: job.completed or 0,
}


def select(jobs: Iterable[JobInfo], query: Query) -> list[JobInfo]:
    """Return the jobs that a newer server would list for the query, in its order."""
    found = [job for job in jobs if _matches(job, query)]
    field, _, direction = str(query.get("order") or "submissionTime,DESC").partition(",")
    if field not in _FIELDS:
        field, direction = "submissionTime", "DESC"
    found.sort(key=_FIELDS[field], reverse=direction == "DESC")
    start = int(query.get("offset") or 0)
    return found[start:] if query.get("limit") is None else found[start : start + int(query["limit"])]


def for_server(query: Query) -> dict[str, Any]:
    """Replace states that servers do not know (RETRYING, for some STOPPING) by the states they use."""
    wanted = _words(query, "state")
    if not wanted & {states.RETRYING, states.STOPPING}:
        return dict(query)
    theirs = (wanted - {states.RETRYING}) | {states.RUNNING, states.WAITING}
    return {**query, "state": ",".join(sorted(theirs))}


def is_in_state(job: JobInfo, query: Query) -> bool:
    """Whether the job is in a state that was asked for."""
    wanted = _words(query, "state")
    return not wanted or job.state in wanted


def _matches(job: JobInfo, query: Query) -> bool:
    exact = {"username": job.user, "vc": job.virtual_cluster}
    if any(query.get(name) and value not in _words(query, name) for name, value in exact.items()):
        return False
    if not is_in_state(job, query):
        return False
    keyword = str(query.get("keyword") or "")
    if not any(keyword in text for text in (job.name, job.user, job.virtual_cluster)):
        return False
    tags, wanted = set(job.tags), _words(query, "tagsContain")
    return (not wanted or bool(tags & wanted)) and not tags & _words(query, "tagsNotContain")


def _words(query: Query, name: str) -> set[str]:
    """Split the comma-separated values of a filter."""
    return {word for word in str(query.get(name) or "").split(",") if word}
