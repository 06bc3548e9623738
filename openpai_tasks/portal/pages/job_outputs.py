"""The files that a job wrote: listed, shown and downloaded."""

from __future__ import annotations

from starlette.responses import Response

from openpai_tasks import sdk
from openpai_tasks.errors import NotFound, PaiError
from openpai_tasks.portal import previews
from openpai_tasks.portal.pages.job_frame import check_files, find_job, job_page
from openpai_tasks.portal.request import PortalRequest
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.sdk.jobs.outputs import Outputs
from openpai_tasks.settings.config import load_settings
from openpai_tasks.storage.location import Location

MOST_FILES = 1000
"""Files that the page lists."""


def page(request: PortalRequest) -> Response:
    job = find_job(request)
    try:
        found = _outputs(request, job).without_runtime_files
    except PaiError as err:
        return job_page(request, "outputs.html", "outputs", job, problem=str(err), found=None, files=())
    files = found.rows[:MOST_FILES]
    return job_page(request, "outputs.html", "outputs", job, problem="", found=found, files=files)


def file(request: PortalRequest) -> Response:
    """Show one file, send it to be saved, or send what the frame of its preview shows."""
    job = find_job(request)
    found = _outputs(request, job)
    name = request.params["rest"]
    entry = found.files.get(name)  # no path is opened that the listing does not have
    if entry is None:
        raise NotFound(f"the job has written no file {name!r}", 404)
    place = Location(found.folder.store, entry.path, name)
    shown = previews.show(place, name.rpartition("/")[2], entry.size, request.query.get("view"))
    if isinstance(shown, Response):
        return shown
    return job_page(
        request, "output.html", "outputs", job, name=name, entry=entry, shown=shown, size=entry.size
    )


def _outputs(request: PortalRequest, job: JobInfo) -> Outputs:
    check_files(request, job.user)
    return sdk.jobs.find_outputs(request.client, request.params["key"], sdk.files.mounts(load_settings()))
