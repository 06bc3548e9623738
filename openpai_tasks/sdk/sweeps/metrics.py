"""The metrics of several jobs, or of a sweep."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import NotFound
from openpai_tasks.sdk.files.job_folders import Mounts
from openpai_tasks.sdk.jobs import lookup
from openpai_tasks.sdk.jobs.metrics import Metric, MetricReader
from openpai_tasks.sdk.jobs.polling import Pauses
from openpai_tasks.sdk.sweeps.results import AT_ONCE, find_members


def gather_metrics(client: Backend, names: Sequence[str], folder: Path, mounts: Mounts = ()) -> list[Metric]:
    """Gather the metrics of jobs and sweeps by name or pattern, in the order of the jobs."""
    return next(follow_metrics(client, names, folder, mounts))


def follow_metrics(
    client: Backend, names: Sequence[str], folder: Path, mounts: Mounts = ()
) -> Iterator[list[Metric]]:
    """Yield the metrics at first and whenever there are more, until all jobs have ended."""
    jobs = list(find_members(client, names, folder))
    pauses = Pauses(client)
    shown: int | None = None
    with ThreadPoolExecutor(AT_ONCE) as pool:
        readers = [reader for reader in pool.map(lambda name: _open(client, name, mounts), jobs) if reader]
        now = [reader.job for reader in readers]
        while True:
            found = [metric for one in pool.map(MetricReader.read, readers, now) for metric in one]
            points = sum(metric.count for metric in found)
            if points != shown:
                yield found
            if all(job.final for job in now):
                return
            pauses.wait(points != shown)
            shown = points
            now = [pauses.ask(functools.partial(client.job, job.key)) for job in now]


def _open(client: Backend, name: str, mounts: Mounts) -> MetricReader | None:
    """Return a reader of the job's metrics; None if a job of a sweep was not submitted, or is gone."""
    try:
        lookup.find(client, name)
    except NotFound as err:
        client.say(f"left out: {err}")
        return None
    return MetricReader(client, name, mounts)
