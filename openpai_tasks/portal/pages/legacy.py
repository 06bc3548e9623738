"""The first page, and the addresses of OpenPAI's own portal, which other tools link to."""

from __future__ import annotations

from starlette.responses import Response

from openpai_tasks.errors import ConfigError
from openpai_tasks.portal.request import PortalRequest, redirect
from openpai_tasks.settings.config import load_settings


def selected(request: PortalRequest) -> str:
    """Return the alias of the cluster to show: as the query says, the only one, or the selected one."""
    return request.query.get("cluster") or request.session.only or load_settings().cluster_alias


def first_page(request: PortalRequest) -> Response:
    return redirect("c", request.params.get("alias") or selected(request), "jobs")


def job_detail(request: PortalRequest) -> Response:
    """``/job-detail.html?username=USER&jobName=NAME``."""
    user, name = request.query.get("username", ""), request.query.get("jobName", "")
    if not name:
        raise ConfigError("this address names no job: expected ?username=USER&jobName=NAME")
    return redirect("c", selected(request), "jobs", f"{user}~{name}" if user else name)


def submit(request: PortalRequest) -> Response:
    return redirect("c", selected(request), "submit")
