"""What all pages of a job share: its heading with buttons, its tabs, and commands to copy."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from openpai_tasks import sdk
from openpai_tasks.errors import Denied
from openpai_tasks.portal.request import PortalRequest
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.settings.config import load_settings


def find_job(request: PortalRequest) -> JobInfo:
    """Return the job that the address names."""
    return sdk.jobs.find(request.client, request.params["key"])


def job_page(
    request: PortalRequest, template: str, tab: str, job: JobInfo, status: int = 200, **values: Any
) -> Response:
    """Return a page of a job, with the tab that is open."""
    return request.page(template, status, tab=tab, **heading_values(request, job), **values)


def check_files(request: PortalRequest, user: str) -> None:
    """Refuse other users' files to a browser that signed in with a password.

    This process reads storages with the rights of the portal's owner, which that user may not have.
    """
    if request.session.only and user != request.client.user:
        raise Denied(
            f"you are signed in as {request.client.user!r}: files of {user!r} are not shown here", 403
        )


def heading_values(request: PortalRequest, job: JobInfo) -> dict[str, Any]:
    """Return what the heading of a job's pages needs."""
    return {
        "job": job,
        "key": request.params["key"],
        "commands": _commands(request, job),
        "has_ssh": not job.final and not request.session.only and request.client.capabilities.ssh,
    }


def _commands(request: PortalRequest, job: JobInfo) -> list[tuple[str, str]]:
    """Return command lines to copy, after what they do."""
    elsewhere = request.alias != load_settings().cluster_alias
    words = ("-a", request.alias) if elsewhere else ()

    def line(label: str, task: str, *more: str) -> tuple[str, str]:
        return label, sdk.jobs.command_for(request.client, task, job, *more, *words)

    found = [line("Follow the output", "job.logs", "--follow"), line("Explain its state", "job.why")]
    if job.final:
        return [*found, line("Copy its outputs", "job.outputs", "--to", "outputs")]
    shell = [line("Open a shell in it", "container.ssh")] if request.client.capabilities.ssh else []
    return [*found, *shell, line("Stop it", "job.stop")]
