"""The files that a job wrote: listed, shown and downloaded."""

from __future__ import annotations

from itertools import islice

from starlette.responses import Response

from openpai_tasks import sdk
from openpai_tasks.errors import NotFound, PaiError
from openpai_tasks.portal import previews
from openpai_tasks.portal.pages.job_frame import check_files, job_page
from openpai_tasks.portal.request import PortalRequest
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.sdk.jobs.outputs import Outputs
from openpai_tasks.settings.config import load_settings
from openpai_tasks.storage.store import Entry

MOST_FILES = 1000
"""Files that the page lists."""


def page(request: PortalRequest) -> Response:
    job = sdk.jobs.find(request.client, request.params["key"])
    try:
        found = _outputs(request, job).of_program
    except PaiError as err:
        return job_page(request, "outputs.html", "outputs", job, problem=str(err), found=None, files=())
    files = [row for row in islice(found.rows, MOST_FILES)]
    return job_page(request, "outputs.html", "outputs", job, problem="", found=found, files=files)


def file(request: PortalRequest) -> Response:
    """Show one file, send it to be saved, or send what the frame of its preview shows."""
    job = sdk.jobs.find(request.client, request.params["key"])
    found, entry = _file(request, job)
    name, view = request.params["rest"], request.query.get("view")
    title = name.rpartition("/")[2]
    if view == "download":
        return previews.download(title, entry.size, found.folder.store.read(entry.path, 0, entry.size))

    def read(limit: int) -> bytes:
        return b"".join(found.folder.store.read(entry.path, 0, limit))

    if view == "raw":
        return previews.serve(title, entry.size, read)
    shown = previews.preview(title, entry.size, read)
    return job_page(
        request, "output.html", "outputs", job, name=name, entry=entry, shown=shown, size=entry.size
    )


def _outputs(request: PortalRequest, job: JobInfo | None = None) -> Outputs:
    job = job or sdk.jobs.find(request.client, request.params["key"])
    check_files(request, job.user)
    return sdk.jobs.find_outputs(request.client, request.params["key"], sdk.files.mounts(load_settings()))


def _file(request: PortalRequest, job: JobInfo | None = None) -> tuple[Outputs, Entry]:
    """Return a file that the listing of the output folder has: no other path is ever opened."""
    found = _outputs(request, job)
    entry = found.files.get(request.params["rest"])
    if entry is None:
        raise NotFound(f"the job has written no file {request.params['rest']!r}", 404)
    return found, entry
