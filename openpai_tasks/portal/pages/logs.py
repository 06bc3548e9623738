"""A job's output: followed live, side by side or merged, and as a file."""

from __future__ import annotations

import codecs
from collections.abc import Iterator

from starlette.responses import Response, StreamingResponse

from openpai_tasks import sdk
from openpai_tasks.portal import live as news
from openpai_tasks.portal.live import LiveEvent
from openpai_tasks.portal.request import PortalRequest
from openpai_tasks.sdk.logs.output import Chunk, LogChoice

TAIL_LINES = 10_000
"""Lines of each task that a page shows at first; the file has all of them."""


def page(request: PortalRequest) -> Response:
    job = sdk.jobs.find(request.client, request.params["key"])
    return request.page("logs.html", job=job, key=request.params["key"], tab="logs", which=_choice(request))


def live(request: PortalRequest) -> Response:
    """Send the output as it grows, as `job.logs --follow` does."""
    lines = None if request.query.get("lines") == "all" else TAIL_LINES
    follow = not _choice(request).attempt
    steps = sdk.logs.output_steps(request.client, request.params["key"], _choice(request), follow, lines)
    return news.stream(_texts(steps))


def _texts(steps: Iterator[Chunk]) -> Iterator[LiveEvent | float]:
    decoders: dict[str, codecs.IncrementalDecoder] = {}
    for chunk in steps:
        if chunk.data:
            decoder = decoders.setdefault(chunk.task, codecs.getincrementaldecoder("utf-8")("replace"))
            yield LiveEvent("log", [chunk.task, decoder.decode(chunk.data)])
        if chunk.pause:
            yield chunk.pause


def download(request: PortalRequest) -> Response:
    """Return the whole output as a text file."""
    job = sdk.jobs.find(request.client, request.params["key"])
    found = sdk.logs.read_output(request.client, job.key, _choice(request))
    return StreamingResponse(
        found,
        media_type="text/plain",
        headers={"content-disposition": "attachment", "content-security-policy": "sandbox"},
    )


def _choice(request: PortalRequest) -> LogChoice:
    given = request.query
    index, attempt = given.get("index", ""), given.get("attempt", "")
    return LogChoice(
        role=given.get("role") or None,
        index=int(index) if index.isdigit() else None,
        stream=given["stream"] if given.get("stream") in ("stdout", "stderr") else "all",
        attempt=int(attempt) if attempt.isdigit() else None,
    )
