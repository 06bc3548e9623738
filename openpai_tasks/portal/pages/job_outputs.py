"""The files that a job wrote: listed, shown and downloaded."""

from __future__ import annotations

from itertools import islice
from urllib.parse import quote

from starlette.responses import Response, StreamingResponse

from openpai_tasks import sdk
from openpai_tasks.errors import ConfigError, NotFound, PaiError
from openpai_tasks.portal import previews
from openpai_tasks.portal.pages.job_frame import check_files, job_page
from openpai_tasks.portal.request import PortalRequest
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.sdk.jobs.outputs import Outputs
from openpai_tasks.settings.project import load_settings
from openpai_tasks.storage.store import Entry

MOST_FILES = 1000
"""Files that the page lists."""


def page(request: PortalRequest) -> Response:
    job = sdk.jobs.find(request.client, request.params["key"])
    try:
        found = _outputs(request, job)
    except PaiError as err:
        return job_page(request, "outputs.html", "outputs", job, problem=str(err), found=None, files=())
    files = [row for row in islice(found.rows, MOST_FILES)]
    return job_page(request, "outputs.html", "outputs", job, problem="", found=found, files=files)


def preview(request: PortalRequest) -> Response:
    """Show one file."""
    job = sdk.jobs.find(request.client, request.params["key"])
    found, entry = _file(request, job)
    name = request.params["rest"]
    data = b""
    if length := previews.bytes_to_read(name, entry.size):
        data = b"".join(found.folder.store.read(entry.path, 0, length))
    shown = previews.make_preview(name, entry.size, data)
    return job_page(
        request, "output.html", "outputs", job, name=name, entry=entry, shown=shown, size=entry.size
    )


def content(request: PortalRequest) -> Response:
    """Return a file: as a picture for a page of ours, else to be saved; never as a page with any powers."""
    found, entry = _file(request)
    name = request.params["rest"]
    headers = {"content-security-policy": previews.FRAME_POLICY}
    kind = previews.PICTURES.get(previews.extension(name), "")
    if not kind or "download" in request.query:
        kind = "application/octet-stream"
        headers["content-disposition"] = f"attachment; filename*=UTF-8''{quote(name.rpartition('/')[2])}"
    headers["content-length"] = str(entry.size)
    return StreamingResponse(
        found.folder.store.read(entry.path, 0, entry.size), media_type=kind, headers=headers
    )


def frame(request: PortalRequest) -> Response:
    """Return a notebook or a page for a frame without scripts, requests and cookies."""
    found, entry = _file(request)
    name = request.params["rest"]
    if not previews.is_framed(name, entry.size):
        raise ConfigError(f"{name!r} is not shown as a page")
    data = b"".join(found.folder.store.read(entry.path, 0, entry.size))
    headers = {
        "content-security-policy": previews.FRAME_POLICY,
        "content-type": "text/html; charset=utf-8",
    }
    return Response(previews.frame_page(name, data), headers=headers)


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
