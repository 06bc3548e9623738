"""One cluster: its virtual clusters, its queue, its machines, and how busy it was."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from openpai_tasks import sdk
from openpai_tasks.backends.base import Amount, Backend, ClusterNode
from openpai_tasks.portal.live import Steps, redraw
from openpai_tasks.portal.request import PortalRequest
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.protocol.states import WAITING
from openpai_tasks.sdk.clusters.resources import Resources
from openpai_tasks.settings.config import load_settings

LIVE_SECONDS = 5.0
HISTORY_SECONDS = 60.0
"""Pause between two looks at the ended jobs and the machines, which change less."""
DAY = 24 * 3600 * 1000
PARTS = 96
MOST_QUEUED, MOST_SHOWN, MOST_ENDED = 1000, 100, 5000
MOST_SAMPLES, MOST_SERIES = 720, 100
LEAST_PAUSE = 2.0  # seconds between two samples
WIDTH, HEIGHT = 1000, 160  # of a plot


@dataclass(frozen=True)
class History:
    """What changes slowly: the jobs that ended in the last day, and the machines."""

    ended: Sequence[JobInfo]
    nodes: tuple[ClusterNode, ...]
    time: float


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


class UsageSamples:
    """The last samples of several series, each with its time in ms."""

    def __init__(self) -> None:
        self._known: dict[object, deque[tuple[int, float]]] = {}
        self._lock = threading.Lock()

    def add(self, series: object, value: float) -> Sequence[tuple[int, float]]:
        """Add a value now, unless another page has just done so; return all samples of the series."""
        now = int(time.time() * 1000)
        with self._lock:
            if series not in self._known and len(self._known) >= MOST_SERIES:
                del self._known[next(iter(self._known))]
            found = self._known.setdefault(series, deque(maxlen=MOST_SAMPLES))
            if not found or now - found[-1][0] >= LEAST_PAUSE * 1000 or found[-1][1] != value:
                found.append((now, value))
            return tuple(found)


@dataclass(frozen=True)
class UsageLine:
    """A line to draw in a box of WIDTH by HEIGHT, from ``start`` to ``end`` (ms) and 0 to ``top``."""

    points: str
    start: int
    end: int
    top: float
    values: tuple[float, ...]
    width: int = WIDTH
    height: int = HEIGHT

    @property
    def last(self) -> float:
        return self.values[-1]

    @property
    def average(self) -> float:
        return sum(self.values) / len(self.values)


SAMPLES = UsageSamples()


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
    since = int(time.time() * 1000) - DAY
    ended = sdk.clusters.list_recent(client, since, MOST_ENDED)
    return History(ended, client.nodes(), time.monotonic())


def _values(client: Backend, history: History) -> dict[str, Any]:
    resources = sdk.clusters.cluster_resources(client)
    queue = sdk.clusters.list_queue(client, MOST_QUEUED)
    has_gpus = any(row.gpus_total for row in resources)
    return {
        "resources": [(row, _bars(row, has_gpus)) for row in resources],
        "waiting": Counter(job.virtual_cluster or "default" for job in queue if job.state == WAITING),
        "running": Counter(job.virtual_cluster or "default" for job in queue if job.state != WAITING),
        "queue": queue[:MOST_SHOWN],
        "left_out": max(0, len(queue) - MOST_SHOWN),
        "is_queue_cut": len(queue) >= MOST_QUEUED,
        "nodes": history.nodes,
        "unit": "GPUs" if has_gpus else "CPUs",
        "now": _sampled(client, resources, has_gpus),
        "day": _last_day([*history.ended, *queue], resources, has_gpus),
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


def _sampled(client: Backend, resources: Sequence[Resources], has_gpus: bool) -> UsageLine | None:
    """Take a sample of what is in use, and return the line of all samples."""
    used = sum((row.gpus_used if has_gpus else row.vcores_used) or 0 for row in resources)
    usable = sum((row.gpus_usable if has_gpus else row.vcores_usable) or 0 for row in resources)
    series = (client.cluster.alias, client.cluster.uri, client.user, has_gpus)
    return draw_line(SAMPLES.add(series, used), usable)


def _last_day(jobs: Sequence[JobInfo], resources: Sequence[Resources], has_gpus: bool) -> UsageLine:
    """Return the GPUs of the jobs that ran in the last day, or their tasks if the cluster has no GPUs."""
    end = int(time.time() * 1000)
    start = end - DAY
    parts = sdk.clusters.jobs_over_time(
        jobs, start, end, PARTS, lambda job: float((job.gpus if has_gpus else job.task_count) or 0)
    )
    samples = [(start + (end - start) * number // (PARTS - 1), value) for number, value in enumerate(parts)]
    top = sum(row.gpus_usable or 0 for row in resources) if has_gpus else 0
    line = draw_line(samples, top)
    assert line is not None
    return line


def draw_line(samples: Sequence[tuple[int, float]], top: float) -> UsageLine | None:
    """Return the line through samples; None if there are too few."""
    if len(samples) < 2:
        return None
    start, end = samples[0][0], samples[-1][0]
    top = max(top, 1.0, *(value for _, value in samples))
    across, upwards = WIDTH / max(end - start, 1), HEIGHT / top
    dots = " ".join(f"{(at - start) * across:.0f},{HEIGHT - value * upwards:.1f}" for at, value in samples)
    return UsageLine(dots, start, end, top, tuple(value for _, value in samples))
