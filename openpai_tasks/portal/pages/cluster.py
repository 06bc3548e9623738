"""One cluster: its virtual clusters, its queue and what jobs wait for, its machines, and how busy it was."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from starlette.responses import Response

from openpai_tasks import sdk
from openpai_tasks.backends.base import Amount, Backend, ClusterNode, ClusterSample
from openpai_tasks.portal.live import Steps, redraw
from openpai_tasks.portal.plots import Plot, line_plot
from openpai_tasks.portal.request import PortalRequest
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.protocol.states import WAITING
from openpai_tasks.render import Chart, Series
from openpai_tasks.sdk.clusters.resources import Resources
from openpai_tasks.settings.config import load_settings

LIVE_SECONDS = 5.0
HISTORY_SECONDS = 60.0
"""Pause between two looks at what changes less."""
SPANS = {"last hour": 3600, "last day": 24 * 3600}
"""Times that are drawn, in seconds."""
POINTS = 240
MOST_QUEUED, MOST_SHOWN, MOST_ENDED, MOST_EXPLAINED = 1000, 100, 5000, 10


@dataclass(frozen=True)
class History:
    """What changes slowly: the use of the cluster, the machines, and what jobs wait for, by key."""

    nodes: tuple[ClusterNode, ...]
    samples: Mapping[int, Sequence[ClusterSample]] = field(default_factory=dict)  # by span, if it keeps them
    ended: Sequence[JobInfo] = ()
    time: float = field(default_factory=time.monotonic)
    plots: list[Plot] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Bar:
    """One resource of a virtual cluster."""

    label: str
    used: Amount
    usable: Amount
    total: Amount

    @property
    def percent(self) -> float:
        return min(100.0, 100.0 * (self.used or 0) / self.usable) if self.usable else 0.0


def page(request: PortalRequest) -> Response:
    client = request.client
    about = sdk.clusters.describe_client(client, load_settings().http_timeout, client.say)
    return request.page("cluster.html", about=about, **_values(client, _history(client)))


def live(request: PortalRequest) -> Steps:
    """Send the page again while it is open."""
    history: History | None = None

    def draw() -> tuple[dict[str, str], bool]:
        nonlocal history
        if history is None or time.monotonic() - history.time > HISTORY_SECONDS:
            history = _history(request.client)
        values = _values(request.client, history)
        return {"cluster": request.fragment("cluster_parts.html", **values)}, False

    return redraw(draw, LIVE_SECONDS)


def _history(client: Backend) -> History:
    """Ask for the use of the cluster, or for the jobs from which it follows."""
    if client.capabilities.usage_history:
        samples = {seconds: client.cluster_usage(seconds, POINTS) for seconds in SPANS.values()}
        return History(client.nodes(), samples)
    since = int(time.time() - SPANS["last day"]) * 1000
    return History(client.nodes(), ended=sdk.clusters.list_recent(client, since, MOST_ENDED))


def _values(client: Backend, history: History) -> dict[str, Any]:
    resources = sdk.clusters.cluster_resources(client)
    queue = sdk.clusters.list_queue(client, MOST_QUEUED)
    has_gpus = any(row.gpus_total for row in resources)
    if not history.plots:  # drawn once, as all of it would move with the time
        history.plots.extend(_draw(history, queue, has_gpus))
    return {
        "resources": [(row, _bars(row, has_gpus)) for row in resources],
        "waiting": Counter(job.virtual_cluster or "default" for job in queue if job.state == WAITING),
        "running": Counter(job.virtual_cluster or "default" for job in queue if job.state != WAITING),
        "queue": queue[:MOST_SHOWN],
        "reasons": _explain(client, history, queue),
        "left_out": max(0, len(queue) - MOST_SHOWN),
        "is_queue_cut": len(queue) >= MOST_QUEUED,
        "nodes": history.nodes,
        "plots": history.plots,
        "is_day_cut": len(history.ended) >= MOST_ENDED,
    }


def _bars(row: Resources, has_gpus: bool) -> list[Bar]:
    gpus = [Bar("GPUs", row.gpus_used, row.gpus_usable, row.gpus_total)] if has_gpus else []
    return [
        *gpus,
        Bar("CPUs", row.vcores_used, row.vcores_usable, row.vcores_total),
        Bar("Memory", _bytes(row.memory_mb_used), _bytes(row.memory_mb_usable), _bytes(row.memory_mb_total)),
    ]


def _bytes(megabytes: Amount) -> Amount:
    return None if megabytes is None else int(megabytes * (1 << 20))


def _explain(client: Backend, history: History, queue: Sequence[JobInfo]) -> Mapping[str, str]:
    """Return what the first waiting jobs wait for; each is asked for once in a while.

    A new job is asked for again until the cluster has looked at it.
    """
    first = [job for job in queue if job.state == WAITING][:MOST_EXPLAINED]
    newer_than = (time.time() - HISTORY_SECONDS) * 1000
    for job in first:
        reason = history.reasons.get(job.key)
        is_open = reason in sdk.diagnosis.UNEXPLAINED and (job.submitted or 0) > newer_than
        if reason is None or is_open:
            history.reasons[job.key] = sdk.diagnosis.wait_reason(client, job)
    return history.reasons


def _draw(history: History, queue: Sequence[JobInfo], has_gpus: bool) -> Iterator[Plot]:
    if history.samples:
        charts = _sampled(history, has_gpus)
    else:
        charts = _from_jobs([*history.ended, *queue], has_gpus)
    return filter(None, map(line_plot, charts))


def _sampled(history: History, has_gpus: bool) -> Iterator[Chart]:
    """Yield charts of what the cluster has recorded."""
    titles = {"gpu": "GPUs in use", "cpu": "CPUs in use", "waiting": "Tasks waiting"}
    for span, seconds in SPANS.items():
        for name, title in titles.items():
            points = list(_points(history.samples[seconds], name, 3 * seconds / POINTS))
            is_wanted = has_gpus if name == "gpu" else name == "cpu" or any(value > 0 for _, value in points)
            if is_wanted and len(points) > 1:
                yield Chart(f"{title} in the {span}", [Series("", points)], x="time", from_zero=True)


def _points(samples: Sequence[ClusterSample], name: str, longest: float) -> Iterator[tuple[float, float]]:
    """Yield the values by seconds from now; a longer gap interrupts the line."""
    now, last, read = time.time(), -math.inf, attrgetter(name)
    for sample in samples:
        at = round(sample.time / 1000 - now)
        if last + max(longest, 120) < at and math.isfinite(last):
            yield last + 1, math.nan
        yield at, read(sample)
        last = at


def _from_jobs(jobs: Sequence[JobInfo], has_gpus: bool) -> Iterator[Chart]:
    """Yield charts of the GPUs of the jobs that ran, or of their tasks if the cluster has no GPUs."""
    end = int(time.time() * 1000)
    for span, seconds in SPANS.items():
        parts = sdk.clusters.jobs_over_time(
            jobs,
            end - 1000 * seconds,
            end,
            POINTS,
            lambda job: float((job.gpus if has_gpus else job.task_count) or 0),
        )
        points = [(round((at + 1) * seconds / POINTS) - seconds, value) for at, value in enumerate(parts)]
        title = f"{'GPUs in use' if has_gpus else 'Tasks running'} in the {span}"
        yield Chart(title, [Series("", points)], x="time", from_zero=True)
