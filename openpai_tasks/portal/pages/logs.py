"""A job's output: followed live, side by side or merged, by line, searched, as a file, and as log records."""

from __future__ import annotations

import codecs
import dataclasses
from collections import deque
from collections.abc import Iterator
from typing import Any

from starlette.responses import JSONResponse, Response, StreamingResponse

from openpai_tasks import sdk
from openpai_tasks.errors import ConfigError, PaiError
from openpai_tasks.portal.live import Event, Steps, redraw
from openpai_tasks.portal.pages.job import check_files, find_job, heading_values, job_page
from openpai_tasks.portal.request import PortalRequest, whole_number
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.sdk.logs.long_logs import NumberedLog
from openpai_tasks.sdk.logs.output import Chunk, LogChoice, LogStart
from openpai_tasks.sdk.logs.structured import LEVELS
from openpai_tasks.sdk.logs.times import UNKNOWN, OutputTimes

TAIL_LINES, TAIL_BYTES = 10_000, 16 << 20
"""The last lines of each task that a page gets at first; it asks for others by number."""
MOST_LINES = 2000
"""Lines that a page gets by number at once."""
MOST_FOUND = 1000
"""Lines that a search finds before it stops."""
PROGRESS = 8 << 20
"""Bytes after which a search reports its progress."""
MOST_LOGS = 64
"""Logs of a session whose lines stay counted."""
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
    which = dataclasses.replace(_choice(request), timed=True)
    texts = LogTexts()
    heading = Heading(request)
    steps = sdk.logs.output_steps(
        request.client,
        request.params["key"],
        which,
        which.attempt is None,
        TAIL_LINES,
        heading.look,
        most_bytes=TAIL_BYTES,
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

    def __init__(self) -> None:
        self._decoders: dict[str, codecs.IncrementalDecoder] = {}
        self._held: list[tuple[str, str, int | None, bool]] = []
        self._size = 0
        self._is_begun = False

    def feed(self, chunk: Chunk) -> Iterator[Event]:
        if chunk.start:
            yield from self._begin(chunk.task, chunk.start)
        if chunk.data:
            self._hold(chunk, self._decoders[chunk.task].decode(chunk.data))
        if chunk.pause or self._size >= TOGETHER:
            yield from self.flush()

    def _begin(self, task: str, start: LogStart) -> Iterator[Event]:
        if self._held:
            yield from self.flush()
        self._decoders[task] = codecs.getincrementaldecoder("utf-8")("replace")
        yield Event("start", {"task": task, "offset": start.offset, "line": start.line})

    def _hold(self, chunk: Chunk, text: str) -> None:
        self._size += len(text)
        what = (chunk.written.time, chunk.written.is_error)
        if self._held and len(self._held[-1][1]) + len(text) <= PIECE:
            task, held, *before = self._held[-1]
            if (task, *before) == (chunk.task, *what):
                self._held[-1] = (task, held + text, *what)
                return
        self._held += [(chunk.task, text[at : at + PIECE], *what) for at in range(0, len(text), PIECE)]

    def flush(self) -> Iterator[Event]:
        if self._held or not self._is_begun:  # a page learns that there is no output yet, too
            self._is_begun = True
            yield Event("log", self._held)
        self._held, self._size = [], 0


def lines(request: PortalRequest) -> Response:
    """Return lines of one task's log by number."""
    first, count = (whole_number(request.query.get(name, "")) for name in ("first", "count"))
    if first is None or count is None:
        raise ConfigError("expected the numbers `first` and `count`")
    log, times = _numbered_log(request)
    found = log.read(first, min(count, MOST_LINES))
    known = times.at(found.offsets) if times else [UNKNOWN] * len(found.lines)
    rows = [
        (line.decode("utf-8", "replace"), written.time, written.is_error)
        for line, written in zip(found.lines, known, strict=True)
    ]
    return JSONResponse({"first": found.first, "lines": rows})


def count(request: PortalRequest) -> Response:
    """Return how many lines of one task's log end before an offset."""
    offset = whole_number(request.query.get("offset", ""))
    if offset is None:
        raise ConfigError("expected a number `offset`")
    found, _ = _numbered_log(request)
    return JSONResponse({"line": found.count(min(offset, found.size()))})


def _numbered_log(request: PortalRequest) -> tuple[NumberedLog, OutputTimes | None]:
    """Return the log of the task that the query names, and its times; what was counted before is kept."""
    which = _choice(request)
    job = sdk.jobs.at_attempt(request.client, find_job(request), which.attempt)
    tasks = sdk.logs.select_tasks(job, which)
    if len(tasks) != 1:
        raise ConfigError(f"choose one of the {len(tasks)} tasks")
    known, task = request.session.logs, tasks[0]
    key = (request.alias, job.key, job.attempt, task.label, task.attempt, which.stream)
    if key not in known:
        while len(known) >= MOST_LOGS:
            known.pop(next(iter(known)), None)
        known[key] = NumberedLog(request.client.open_log(job, task, which.stream))
    return known[key], sdk.logs.open_times(request.client, job, task, which.stream)


def find(request: PortalRequest) -> Steps:
    """Send the lines of the whole output that contain a text, while it is searched."""
    words, skip = request.query.get("q", ""), whole_number(request.query.get("skip", "")) or 0
    if not words:
        raise ConfigError("expected a text to search for")
    chunks = sdk.logs.output_steps(request.client, request.params["key"], _choice(request))
    seen = reported = 0
    for step in sdk.logs.search_lines(chunks, words):
        rows = [(one.task, one.number, one.text) for one in step.found]
        fresh = rows[max(0, skip - seen) : max(0, skip + MOST_FOUND - seen)]
        seen += len(rows)
        if fresh or step.searched >= reported + PROGRESS:
            reported = step.searched
            yield Event("found", {"lines": fresh, "searched": step.searched})
        if seen > skip + MOST_FOUND:
            yield Event("more", "")
            return


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
