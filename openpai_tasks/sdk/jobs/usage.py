"""What the tasks of a job used over time: processors, memory and GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from openpai_tasks.backends.base import Backend, TaskUsage, UsageLevel, UsageSample, require
from openpai_tasks.errors import ConfigError
from openpai_tasks.protocol.models import JobInfo, TaskInfo
from openpai_tasks.sdk.jobs import lookup

MOST_TASKS = 100
MOST_POINTS = 1500
"""As many as a task has."""


def read_usage(
    client: Backend,
    name: str,
    role: str | None = None,
    index: int | None = None,
    points: int = MOST_POINTS,
    job: JobInfo | None = None,
    most: int = MOST_TASKS,
) -> list[TaskUsage]:
    """Return what the latest attempt of each of the first tasks used; ``job`` is the job at an attempt."""
    require(client, "usage_history")
    found = job or lookup.find(client, name)
    return [client.task_usage(found, task, points) for task in _choose(found, role, index)[:most]]


def _choose(job: JobInfo, role: str | None, index: int | None) -> list[TaskInfo]:
    chosen = [task for task in job.tasks if role in (None, task.role) and index in (None, task.index)]
    if not chosen and (role is not None or index is not None):
        known = ", ".join(task.label for task in job.tasks[:8]) or "none"
        raise ConfigError(f"job {job.name!r} has no such task (it has: {known})")
    return chosen


def usage_rows(found: Iterable[TaskUsage]) -> list[dict[str, Any]]:
    """Return all samples, a row for each, for programs; all rows have the same fields."""
    tasks = list(found)
    gpus = {gpu.index for task in tasks for sample in task.samples for gpu in sample.gpus}
    return [
        {"task": task.label, **dict(_fields(sample, sorted(gpus)))}
        for task in tasks
        for sample in task.samples
    ]


def _fields(sample: UsageSample, gpus: Iterable[int]) -> Iterator[tuple[str, float | None]]:
    yield from (("time", sample.time), ("seconds", sample.seconds))
    yield from _pair("cpu", sample.cpu)
    yield from _pair("memory", sample.memory)
    known = {gpu.index: gpu for gpu in sample.gpus}
    for index in gpus:
        gpu = known.get(index)
        yield from _pair(f"gpu{index}_percent", gpu.percent if gpu else None)
        yield from _pair(f"gpu{index}_memory_mb", gpu.memory_mb if gpu else None)


def _pair(name: str, level: UsageLevel | None) -> Iterator[tuple[str, float | None]]:
    yield name, level.mean if level else None
    yield f"{name}_max", level.maximum if level else None
