"""A job's output: followed live, side by side or merged, as a file, and as log records."""

from __future__ import annotations

import codecs
from collections import Counter, deque
from collections.abc import Iterator
from typing import Any

from starlette.responses import Response, StreamingResponse

from openpai_tasks import sdk
from openpai_tasks.errors import PaiError
from openpai_tasks.portal.live import Event, Steps, redraw
from openpai_tasks.portal.pages.job import check_files, find_job, heading_values, job_page
from openpai_tasks.portal.request import PortalRequest, whole_number
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.sdk.logs.output import Chunk, LogChoice
from openpai_tasks.sdk.logs.structured import LEVELS

TAIL_LINES, MOST_LINES = 10_000, 100_000
"""Lines of each task that a page shows at first, and at most; the file has all of them."""
PIECE = 16 << 10
"""Characters of a piece of text: a script shows it without delaying a frame."""
TOGETHER = 128 << 10
"""Characters that are sent together."""
MOST_RECORDS = 1000


def page(request: PortalRequest) -> Response:
    job = find_job(request)
    which = _choice(request)
    shown = sdk.jobs.at_attempt(request.client, job, which.attempt)
    able = request.client.capabilities
    earlier = list(range(job.attempt))[-20:] if able.attempts else []
    what: dict[str, Any] = {"which": which, "tasks": shown.tasks, "attempts": earlier}
    return job_page(request, "logs.html", "logs", job, has_streams=able.separate_streams, **what)


def live(request: PortalRequest) -> Steps:
    """Send the output as it grows, as `job.logs --follow` does."""
    return request.session.feeds.follow(request.query.get("after", ""), lambda: _steps(request))


def _steps(request: PortalRequest) -> Steps:
    which = _choice(request)
    lines = MOST_LINES if request.query.get("lines") == "most" else TAIL_LINES
    texts = LogTexts(lines)
    heading = Heading(request)
    steps = sdk.logs.output_steps(
        request.client, request.params["key"], which, which.attempt is None, lines, heading.look
    )
    for chunk in steps:
        yield from heading.news()
        yield from texts.feed(chunk)
        if chunk.pause:
            yield chunk.pause
    yield from heading.news()
    yield from texts.flush()


class Heading:
    """Sends heading and tasks again when the job has changed, for which the follower asks anyway."""

    def __init__(self, request: PortalRequest) -> None:
        self._request = request
        self._shown: tuple[str, int] | None = None
        self._tasks: list[tuple[str, int, str]] | None = None
        self._job: JobInfo | None = None

    def look(self, job: JobInfo) -> None:
        self._job = job

    def news(self) -> Iterator[Event]:
        """Yield what differs from what was sent last."""
        if self._job is None:
            return
        tasks = [(task.role, task.index, task.label) for task in self._job.tasks]
        if tasks != self._tasks:
            self._tasks = tasks
            yield Event("tasks", tasks)
        if self._shown != (self._job.state, self._job.attempt):
            self._shown = (self._job.state, self._job.attempt)
            html = self._request.fragment("job_heading.html", **heading_values(self._request, self._job))
            yield Event("html", {"job-heading": html})


class LogTexts:
    """Decodes chunks of output, and sends many of them together."""

    def __init__(self, tail: int) -> None:
        self._decoders: dict[str, codecs.IncrementalDecoder] = {}
        self._held: list[tuple[str, str]] = []
        self._size = 0
        self._tail = tail
        self._lines: Counter[str] | None = Counter()
        self._is_begun = False

    def feed(self, chunk: Chunk) -> Iterator[Event]:
        if chunk.data:
            decoder = self._decoders.setdefault(chunk.task, codecs.getincrementaldecoder("utf-8")("replace"))
            self._hold(chunk.task, decoder.decode(chunk.data))
        if chunk.pause or self._size >= TOGETHER:
            yield from self.flush()
        if chunk.pause:
            self._lines = None

    def _hold(self, task: str, text: str) -> None:
        self._size += len(text)
        if self._lines is not None:
            self._lines[task] += text.count("\n")
        if self._held and self._held[-1][0] == task and len(self._held[-1][1]) + len(text) <= PIECE:
            self._held[-1] = (task, self._held[-1][1] + text)
            return
        self._held += [(task, text[at : at + PIECE]) for at in range(0, len(text), PIECE)]

    def flush(self) -> Iterator[Event]:
        if self._held or not self._is_begun:  # a page learns that there is no output yet, too
            self._is_begun = True
            yield Event("log", self._held)
        if self._lines and max(self._lines.values()) >= self._tail:
            self._lines = None
            yield Event("cut", self._tail)
        self._held, self._size = [], 0


def download(request: PortalRequest) -> Response:
    """Return the whole output as a text file."""
    job = find_job(request)
    found = sdk.logs.read_output(request.client, job.key, _choice(request))
    return StreamingResponse(
        found,
        media_type="text/plain",
        headers={"content-disposition": "attachment", "content-security-policy": "sandbox"},
    )


def records(request: PortalRequest) -> Response:
    """Show the log records that the job's program wrote, from a level on."""
    job = find_job(request)
    return job_page(request, "records.html", "logs", job, **_records(request, job))


def records_live(request: PortalRequest) -> Steps:
    """Send the records again whenever there are more, until the job ends."""

    def draw() -> tuple[dict[str, str], bool]:
        job = find_job(request)
        heading = request.fragment("job_heading.html", **heading_values(request, job))
        table = request.fragment("records_table.html", **_records(request, job))
        return {"job-heading": heading, "records": table}, job.final

    return redraw(draw)


def _records(request: PortalRequest, job: JobInfo) -> dict[str, Any]:
    client, given = request.client, request.query
    level, text = given.get("level", ""), given.get("q", "")
    values: dict[str, Any] = {"level": level, "text": text, "levels": list(dict.fromkeys(LEVELS))}
    try:
        check_files(request, job.user)
        chosen = sdk.logs.parse_filter(level or None, None, text or None)
        found = sdk.logs.read_structured(
            client, job.key, chosen=chosen, mounts=request.mounts, is_strict=True
        )
        values |= {"records": deque(found, MOST_RECORDS), "problem": "", "most": MOST_RECORDS}
    except PaiError as err:
        values |= {"records": (), "problem": str(err), "most": MOST_RECORDS}
    return values


def _choice(request: PortalRequest) -> LogChoice:
    given = request.query
    return LogChoice(
        role=given.get("role") or None,
        index=whole_number(given.get("index", "")),
        stream=given["stream"] if given.get("stream") in ("stdout", "stderr") else "all",
        attempt=whole_number(given.get("attempt", "")),
    )
