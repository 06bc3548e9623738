"""The overview of a job: what ran, how it goes, its last output, plots, files, tasks and events.

The page has what the cluster knows about the job; the parts that are read from logs and storages follow
through its live feed. What has ended is read once.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from starlette.responses import Response

from openpai_tasks import sdk
from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import PaiError
from openpai_tasks.portal.live import Event, Steps
from openpai_tasks.portal.pages.job import (
    find_job,
    find_outputs,
    find_own_record,
    heading_values,
    job_page,
    metric_plots,
    metric_reader,
    metrics_address,
)
from openpai_tasks.portal.pages.usage import UsagePart, usage_values
from openpai_tasks.portal.request import PortalRequest, whole_number
from openpai_tasks.protocol import states
from openpai_tasks.protocol.document.ports import listening_ports
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.sdk.diagnosis.explain import LINES, Explanation
from openpai_tasks.sdk.jobs.metrics import Metric, MetricReader, select_telling
from openpai_tasks.sdk.jobs.provenance import read_stamp
from openpai_tasks.sdk.logs.output import Chunk, LineSplitter, LogChoice

MOST_ATTEMPTS = 20
"""Latest attempts that the page links to."""
MOST_PLOTS = 4
MOST_FILES = 10
LOG_SECONDS, METRIC_SECONDS, FILE_SECONDS = 0.5, 2.0, 30.0
"""The shortest times between two looks at parts of a running job."""


@dataclass(frozen=True)
class TimelineEntry:
    """Something that happened to the job; ``time`` is in milliseconds."""

    time: int | None
    reason: str
    message: str = ""
    count: int = 1
    is_warning: bool = False


def page(request: PortalRequest) -> Response:
    client = request.client
    latest = sdk.jobs.describe(client, request.params["key"])
    attempt = whole_number(request.query.get("attempt", ""))
    values = _values(request, latest)
    if attempt is not None and attempt != latest.attempt:
        values |= {"shown": sdk.jobs.at_attempt(client, latest, attempt), "is_past": True}
    values |= usage_values(client, values["shown"])
    return job_page(request, "job.html", "overview", latest, seen=_digest(latest), **values)


def live(request: PortalRequest) -> Steps:
    """Send the parts that the page does not have yet, and those that have changed."""
    parts = LiveParts(request)
    job = find_job(request)
    if job.state == states.FAILED:  # its explanation has its last output
        parts.look(job)
    else:
        key, which = request.params["key"], LogChoice(index=0)
        for chunk in sdk.logs.output_steps(request.client, key, which, True, LINES, parts.look, plain=True):
            parts.feed(chunk)
            if chunk.pause:
                yield from parts.news()
                yield chunk.pause
    yield from parts.news()


class LiveParts:
    """The parts of an open page, each sent when it differs from what the browser has."""

    def __init__(self, request: PortalRequest) -> None:
        self._request = request
        self._shown = "" if request.query.get("from") == "start" else request.query.get("seen", "")
        self._job: JobInfo | None = None
        self._log, self._splitter = deque[str](maxlen=LINES), LineSplitter()
        self._is_log_new = True
        self._reader: MetricReader | None = None
        self._points = 0
        self._due = dict.fromkeys(("log", "metrics", "files"), 0.0)
        self._ended: set[str] = set()
        self._usage = UsagePart(request)

    def look(self, job: JobInfo) -> None:
        self._job = job

    def feed(self, chunk: Chunk) -> None:
        lines = [line.text.rpartition("\r")[2] for line in self._splitter.feed(chunk)]
        self._log.extend(lines)
        self._is_log_new = self._is_log_new or bool(lines)

    def news(self) -> Iterator[Event]:
        job = self._job
        if job is None:
            return
        if _digest(job) != self._shown:
            self._shown = _digest(job)
            yield Event("html", self._summary(job))
        if job.final:
            for line in self._splitter.end():
                self._log.append(line.text)
                self._is_log_new = True
        if job.state != states.FAILED and self._is_log_new and self._is_due("log", LOG_SECONDS):
            self._is_log_new = False
            yield Event("html", {"job-log": self._draw("job_log.html", job, log=list(self._log), log_of="")})
        if job.launched:
            yield from self._file_parts(job)
        yield from self._usage.news(job)

    def _is_due(self, part: str, seconds: float) -> bool:
        """Whether to look at a part again: after its pause, and once when the job has ended."""
        if self._job and self._job.final:
            is_first = part not in self._ended
            self._ended.add(part)
            return is_first
        now = time.monotonic()
        if now < self._due[part]:
            return False
        self._due[part] = now + seconds
        return True

    def _summary(self, job: JobInfo) -> dict[str, str]:
        described = sdk.jobs.describe(self._request.client, job)
        values = heading_values(self._request, job) | _values(self._request, described)
        parts = {
            "job-heading": "job_heading.html",
            "job": "job_summary.html",
            "job-tasks": "job_tasks.html",
        }
        parts |= {"job-log": "job_log.html"} if job.state == states.FAILED else {}
        return {part: self._request.fragment(template, **values) for part, template in parts.items()}

    def _file_parts(self, job: JobInfo) -> Iterator[Event]:
        """Yield the parts that are read from the job's storage; one that cannot be read is left out."""
        with contextlib.suppress(PaiError):
            if self._is_due("files", FILE_SECONDS):
                found = find_outputs(self._request, job).without_runtime_files
                values = {"found": found, "files": found.rows[:MOST_FILES]}
                yield Event("html", {"job-outputs": self._draw("job_outputs.html", job, **values)})
        with contextlib.suppress(PaiError):
            if self._is_due("metrics", METRIC_SECONDS):
                self._reader = self._reader or metric_reader(self._request)
                metrics = self._reader.read(job)
                points = sum(metric.count for metric in metrics)
                if points != self._points:
                    self._points = points
                    values = _plots(self._request, metrics)
                    yield Event("html", {"job-plots": self._draw("job_plots.html", job, **values)})

    def _draw(self, template: str, job: JobInfo, **values: Any) -> str:
        return self._request.fragment(template, job=job, key=self._request.params["key"], **values)


def _plots(request: PortalRequest, metrics: list[Metric]) -> dict[str, Any]:
    """Return the plots of the metrics that say most, and the number of all."""
    names = [metric.name for metric in select_telling(metrics, MOST_PLOTS)]
    chosen = sorted((one for one in metrics if one.name in names), key=lambda one: names.index(one.name))
    source = metrics_address(request)
    return {
        "plots": metric_plots(chosen, metrics, source),
        "metric_count": len({metric.name for metric in metrics}),
    }


def _digest(job: JobInfo) -> str:
    """Return a digest of what the page shows of a job, so that it is not sent again."""
    known = repr(replace(job, events=()))
    return hashlib.sha256(known.encode("utf-8", "replace")).hexdigest()[:16]


def _values(request: PortalRequest, job: JobInfo) -> dict[str, Any]:
    client = request.client
    document = _document(client, job)
    earlier = range(max(0, job.attempt - MOST_ATTEMPTS), job.attempt)
    why = _why(client, job)
    return {
        "shown": job,
        "is_past": False,
        "why": why,
        "log": why.log if why else None,  # the live feed sends it
        "log_of": why.log_of if why else "",
        "attempts": earlier if client.capabilities.attempts else (),
        "timeline": timeline(job),
        "listening": partial(listening_ports, document),
        "roles": sdk.jobs.describe_roles(document),
        "stamp": read_stamp(document),
        "record": find_own_record(request, job),
        "sweep": str(sdk.sweeps.read_sweep_mark(document).get("name") or ""),
    }


def _document(client: Backend, job: JobInfo) -> dict[str, Any]:
    """Return the job's document; empty if it cannot be read."""
    with contextlib.suppress(PaiError):
        found = client.job_document(job.key)
        return found if isinstance(found, dict) else {}
    return {}


def _why(client: Backend, job: JobInfo) -> Explanation | None:
    """Return why a job waits or has failed; None for a job without trouble."""
    if job.state in (states.RUNNING, states.SUCCEEDED) and not job.kept_until:
        return None
    try:
        return sdk.diagnosis.explain_job(client, job)
    except PaiError:
        return None


def timeline(job: JobInfo) -> list[TimelineEntry]:
    """Return what happened, oldest first; clusters without events still know when the job began and ended."""
    found = [TimelineEntry(job.submitted, "Submitted")] if job.submitted else []
    if not job.events:
        found += [TimelineEntry(job.launched, "Started")] if job.launched else []
        found += [TimelineEntry(job.completed, "Ended", job.message)] if job.completed else []
    found += [
        TimelineEntry(event.time, event.reason, event.message, event.count, event.type == "Warning")
        for event in reversed(job.events)
    ]
    return sorted(found, key=lambda entry: (entry.time is None, entry.time or 0))
