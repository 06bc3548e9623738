"""One cluster: its virtual clusters, its queue, its machines, and how busy it was."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from openpai_tasks import sdk
from openpai_tasks.backends.base import Amount, Backend, ClusterNode
from openpai_tasks.portal import usage
from openpai_tasks.portal.live import LiveEvent, LiveStream
from openpai_tasks.portal.request import PortalRequest
from openpai_tasks.portal.usage import UsageLine, UsageSamples
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

SAMPLES = UsageSamples()


@dataclass(frozen=True)
class ClusterHistory:
    """What changes slowly: the jobs that ended in the last day, and the machines."""

    ended: Sequence[JobInfo]
    nodes: tuple[ClusterNode, ...]
    time: float


@dataclass(frozen=True)
class UsageBar:
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


def live(request: PortalRequest) -> Response:
    """Send the page again while it is open."""
    return LiveStream(_parts(request))


def _parts(request: PortalRequest) -> Iterator[LiveEvent | float]:
    history: ClusterHistory | None = None
    shown = ""
    while True:
        started = time.monotonic()
        if history is None or started - history.time > HISTORY_SECONDS:
            history = _history(request.client)
        content = request.fragment("cluster_parts.html", **_values(request.client, history))
        if content != shown:
            yield LiveEvent("html", {"cluster": content})
            shown = content
        yield max(LIVE_SECONDS, 4 * (time.monotonic() - started))


def _history(client: Backend) -> ClusterHistory:
    since = int(time.time() * 1000) - DAY
    ended = sdk.clusters.list_recent(client, since, MOST_ENDED)
    return ClusterHistory(ended, client.nodes(), time.monotonic())


def _values(client: Backend, history: ClusterHistory) -> dict[str, Any]:
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


def _bars(row: Resources, has_gpus: bool) -> list[UsageBar]:
    gpus = [UsageBar("GPUs", row.gpus_used, row.gpus_usable, row.gpus_total)] if has_gpus else []
    return [
        *gpus,
        UsageBar("CPUs", row.vcores_used, row.vcores_usable, row.vcores_total),
        UsageBar(
            "Memory", _bytes(row.memory_mb_used), _bytes(row.memory_mb_usable), _bytes(row.memory_mb_total)
        ),
    ]


def _bytes(megabytes: Amount) -> Amount:
    return None if megabytes is None else int(megabytes * (1 << 20))


def _sampled(client: Backend, resources: Sequence[Resources], has_gpus: bool) -> UsageLine | None:
    """Take a sample of what is in use, and return the line of all samples."""
    used = sum((row.gpus_used if has_gpus else row.vcores_used) or 0 for row in resources)
    usable = sum((row.gpus_usable if has_gpus else row.vcores_usable) or 0 for row in resources)
    series = (client.cluster.alias, client.cluster.uri, client.user, has_gpus)
    return usage.draw(SAMPLES.add(series, used), usable)


def _last_day(jobs: Sequence[JobInfo], resources: Sequence[Resources], has_gpus: bool) -> UsageLine:
    """Return the GPUs of the jobs that ran in the last day, or their tasks if the cluster has no GPUs."""
    end = int(time.time() * 1000)
    start = end - DAY
    parts = sdk.clusters.jobs_over_time(
        jobs, start, end, PARTS, lambda job: float((job.gpus if has_gpus else job.task_count) or 0)
    )
    samples = [(start + (end - start) * number // (PARTS - 1), value) for number, value in enumerate(parts)]
    top = sum(row.gpus_usable or 0 for row in resources) if has_gpus else 0
    line = usage.draw(samples, top)
    assert line is not None
    return line
