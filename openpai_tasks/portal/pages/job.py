"""The first page of a job: its state and why, its tasks, attempts and events."""

from __future__ import annotations

import contextlib
import shlex
from dataclasses import dataclass
from functools import partial
from typing import Any

from starlette.responses import JSONResponse, Response

from openpai_tasks import sdk
from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import Denied, PaiError
from openpai_tasks.portal.live import Event, Steps
from openpai_tasks.portal.pages.job_frame import heading_values, job_page
from openpai_tasks.portal.request import PortalRequest, redirect, whole_number
from openpai_tasks.protocol.document.ports import listening_ports
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.sdk.diagnosis.explain import Explanation
from openpai_tasks.settings.config import load_settings

MOST_ATTEMPTS = 20
"""Latest attempts that the page links to."""


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
    sweep = sdk.sweeps.read_sweep_mark(_document(client, latest)).get("name")
    return job_page(request, "job.html", "overview", latest, sweep=str(sweep or ""), **values)


def live(request: PortalRequest) -> Steps:
    """Send the changing parts again whenever the job has changed."""
    for step in sdk.jobs.watch_steps(request.client, request.params["key"]):
        if isinstance(step, JobInfo):
            job = sdk.jobs.describe(request.client, request.params["key"])
            heading = heading_values(request, job)
            parts = {
                "job-heading": request.fragment("job_heading.html", **heading),
                "job": request.fragment("job_summary.html", **heading, **_values(request, job)),
            }
            yield Event("html", parts)
        else:
            yield step


def stop(request: PortalRequest) -> Response:
    sdk.jobs.stop(request.client, [request.params["key"]])
    return redirect("c", request.alias, "jobs", request.params["key"])


def ssh_command(request: PortalRequest) -> Response:
    """Return the plain ssh command for a container; it uses the keys of the portal's owner."""
    if request.session.only:
        raise Denied("only the owner of this portal has ssh keys here", 403)
    client, given = request.client, load_settings({"cluster_alias": request.alias})
    found = sdk.containers.reach(client, request.params["key"], given)
    index = whole_number(request.query.get("index", ""))
    container = sdk.containers.first_running(found, request.query.get("role") or None, index)
    target = sdk.containers.ssh_target(client, found, container, given)
    return JSONResponse({"text": shlex.join(sdk.ssh.ssh_command(target))})


def _values(request: PortalRequest, job: JobInfo) -> dict[str, Any]:
    client = request.client
    earlier = range(max(0, job.attempt - MOST_ATTEMPTS), job.attempt)
    return {
        "shown": job,
        "is_past": False,
        "why": _why(client, job),
        "attempts": earlier if client.capabilities.attempts else (),
        "timeline": timeline(job),
        "listening": partial(listening_ports, _document(client, job)),
    }


def _document(client: Backend, job: JobInfo) -> Any:
    """Return the job's document; None if it cannot be read."""
    with contextlib.suppress(PaiError):
        return client.job_document(job.key)
    return None


def _why(client: Backend, job: JobInfo) -> Explanation | None:
    """Return why a job waits or has failed; None for a job without trouble."""
    if job.state in ("RUNNING", "SUCCEEDED"):
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
