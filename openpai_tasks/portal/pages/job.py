"""The page of one job: its state and why, its tasks, and its events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from starlette.responses import Response

from openpai_tasks import sdk
from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import PaiError
from openpai_tasks.portal import live as news
from openpai_tasks.portal.live import LiveEvent
from openpai_tasks.portal.request import PortalRequest, go
from openpai_tasks.protocol import exit_codes
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.sdk.diagnosis.explain import Explanation


def page(request: PortalRequest) -> Response:
    job = sdk.jobs.describe(request.client, request.params["key"])
    return request.page("job.html", **_values(request, job))


def live(request: PortalRequest) -> Response:
    """Send the changing parts again whenever the job has changed."""
    return news.stream(_parts(request))


def _parts(request: PortalRequest) -> Iterator[LiveEvent | float]:
    for step in sdk.jobs.watch_steps(request.client, request.params["key"]):
        if isinstance(step, JobInfo):
            job = sdk.jobs.describe(request.client, request.params["key"])
            yield LiveEvent("html", {"job": request.fragment("job_summary.html", **_values(request, job))})
        else:
            yield step


def stop(request: PortalRequest) -> Response:
    sdk.jobs.stop(request.client, [request.params["key"]])
    return go("c", request.alias, "jobs", request.params["key"])


def _values(request: PortalRequest, job: JobInfo) -> dict[str, Any]:
    return {
        "job": job,
        "key": request.params["key"],
        "why": _why(request.client, job),
        "meaning": exit_meaning,
        "mine": request.client.user,
        "tab": "overview",
    }


def _why(client: Backend, job: JobInfo) -> Explanation | None:
    """Return why a job waits or has failed; None for a job without trouble."""
    if job.state in ("RUNNING", "SUCCEEDED"):
        return None
    try:
        return sdk.diagnosis.why(client, job.key)
    except PaiError:
        return None


def exit_meaning(code: int | None) -> str:
    """Return what an exit code means, in a few words."""
    if not code or not exit_codes.is_known(code):
        return ""
    return str(exit_codes.exit_spec(code).get("reason", ""))
