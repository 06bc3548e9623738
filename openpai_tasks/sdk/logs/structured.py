"""The log records of a job's program: JSON lines of all tasks and attempts, merged by time."""

from __future__ import annotations

import heapq
import json
import math
import re
from collections import deque
from collections.abc import Iterator
from typing import Any

from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import InvalidOption
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol.json_text import parse_object
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.protocol.problems import closest
from openpai_tasks.sdk.files.job_folders import Mounts
from openpai_tasks.sdk.jobs import lookup
from openpai_tasks.sdk.jobs.polling import Pauses
from openpai_tasks.sdk.logs import output
from openpai_tasks.sdk.logs.json_lines import (
    JobLines,
    LineOrigin,
    LineSource,
    number,
    piece_size,
)
from openpai_tasks.text.durations import parse_since
from openpai_tasks.text.hints import command
from openpai_tasks.text.plurals import counted

LEVELS = {"DEBUG": 10, "INFO": 20, "WARNING": 30, "WARN": 30, "ERROR": 40, "CRITICAL": 50, "FATAL": 50}
LATEST = 253402128000.0  # late in the year 9999, the last that a calendar shows
LONGEST_SEARCHED = 4000  # characters of a line


@dataclass(frozen=True)
class StructuredLine:
    """A log record, or another line, which has only its text, as ``message``."""

    time: float | None  # seconds since 1970
    level: str
    logger: str
    message: str
    origin: LineOrigin
    exception: str = ""
    fields: dict[str, Any] | None = None
    """All that the program wrote; None for a line that is not a record."""

    @property
    def task(self) -> str:
        """The task, with its attempt if it is not the first."""
        attempt = f"#{self.origin.attempt}" if self.origin.attempt else ""
        return f"{self.origin.role}-{self.origin.index}{attempt}"

    @property
    def all_fields(self) -> dict[str, Any]:
        """What the program wrote, with the task and its attempt."""
        origin = {"role": self.origin.role, "index": self.origin.index, "attempt": self.origin.attempt}
        return {**(self.fields or {}), **origin}


@dataclass(frozen=True)
class RecordFilter:
    """Which records to show: from a level on, since a time, with a text."""

    level: int | None = None
    since: float = -math.inf
    pattern: re.Pattern[str] | None = None

    def matches(self, line: StructuredLine, moment: float) -> bool:
        """Return whether to show the line; ``moment`` is its place in time."""
        # an unknown level is always shown, other lines than records never
        rank = -math.inf if line.fields is None else LEVELS.get(line.level.upper(), math.inf)
        if self.level is not None and rank < self.level:
            return False
        if moment < self.since or self.pattern is None:
            return moment >= self.since
        # line by line, and not in a whole long line: a job could make any pattern take hours
        lines = line.message.splitlines() + line.exception.splitlines()
        return any(self.pattern.search(one[:LONGEST_SEARCHED]) for one in lines or [""])


def parse_filter(level: str | None = None, since: str | None = None, grep: str | None = None) -> RecordFilter:
    """Parse the flags: a level's name, a duration or a time of ISO 8601, a regular expression."""
    if level is not None and level.upper() not in LEVELS:
        known = f"(known: {', '.join(LEVELS)}){closest(level.upper(), LEVELS)}"
        raise InvalidOption("level", f": no level named {level!r} {known}")
    try:
        pattern = re.compile(grep) if grep is not None else None
    except re.error as err:
        raise InvalidOption("grep", f": {grep!r} is not a regular expression: {err}") from err
    wanted = None if level is None else LEVELS[level.upper()]
    return RecordFilter(wanted, -math.inf if since is None else parse_since(since), pattern)


def read_structured(
    client: Backend,
    name: str | JobInfo,
    which: output.LogChoice | None = None,
    follow: bool = False,
    lines: int | None = None,
    on_job: output.OnJob | None = None,
    chosen: RecordFilter | None = None,
    mounts: Mounts = (),
    is_strict: bool = False,
) -> Iterator[StructuredLine]:
    """Yield the log records of all tasks and attempts by time, so far or until the job ends.

    Other lines keep their place among those of their task; with ``is_strict`` they are only counted. While a
    job is followed, new records are merged each time that they are read.
    """
    which = which or output.LogChoice()
    output.check_choice(which, follow, lines)
    merger = RecordMerger(client, name, which, chosen or RecordFilter(), mounts, is_strict)
    rounds = merger.until_over(on_job) if follow else iter([merger.read()])
    for records in rounds:
        yield from records if lines is None else deque(records, lines)
        lines = None  # what is new after the first round is shown completely
    merger.report()


class RecordMerger:
    """Reads the lines of a job's tasks and merges them; memory does not grow with their number."""

    def __init__(
        self,
        client: Backend,
        name: str | JobInfo,
        which: output.LogChoice,
        chosen: RecordFilter,
        mounts: Mounts,
        is_strict: bool,
    ) -> None:
        self._client, self._chosen, self._is_strict = client, chosen, is_strict
        self._lines = JobLines(client, name, "logs", mounts, which)
        self._name = lookup.typed_name(client, self._lines.job)
        lookup.check_attempt(self._lines.job, which.attempt)
        output.select_tasks(self._lines.job, which)
        self._moments: dict[LineOrigin, float] = {}
        self._left_out = 0

    def read(self, job: JobInfo | None = None) -> Iterator[StructuredLine]:
        """Yield the new records; those of one task stay in the order in which they were written.

        With the ``job`` as of now, a log that cannot be read is tried again in the next round.
        """
        now = job or self._lines.job
        sources = self._lines.sources(now, is_early=job is not None and not job.final)
        piece = piece_size(len(sources))
        streams = (self._records(source, piece, now.final) for source in sources)
        for moment, line in heapq.merge(*streams, key=lambda item: item[0]):
            if line.fields is None and (self._is_strict or self._chosen.level is not None):
                self._left_out += 1
            elif self._chosen.matches(line, moment):
                yield line
        problem = next((source.problem for source in sources if source.problem), None)
        if problem and (job is None or job.final):
            raise problem

    def until_over(self, on_job: output.OnJob | None) -> Iterator[Iterator[StructuredLine]]:
        """Yield the new records again and again, until the job ends."""
        pauses = Pauses(self._client)
        while True:
            # before the files: a final job has written everything
            job = pauses.ask(lambda: lookup.find(self._client, self._name))
            if on_job:
                on_job(job)
            yield self.read(job)
            if job.final or job.kept_until:
                return
            pauses.wait()

    def report(self) -> None:
        """Say if there were no records, or how many other lines were left out."""
        shows = f"`{command('job.logs', self._name)}` shows all output"
        if not self._moments:
            self._client.say(f"no log records found; {shows}")
        elif self._left_out:
            self._client.say(
                f"left out {counted(self._left_out, 'line')} of output without a log record; {shows}"
            )

    def _records(
        self, source: LineSource, piece: int, is_last: bool
    ) -> Iterator[tuple[float, StructuredLine]]:
        """Yield the records of a source with their moments, which never go back."""
        moment = self._moments.get(source.origin, -math.inf)
        for data in source.new(piece, is_last):
            line = parse_line(data, source.origin)
            if line is None:
                continue
            moment = moment if line.time is None else max(moment, line.time)
            self._moments[source.origin] = moment
            yield moment, line


def parse_line(data: bytes, origin: LineOrigin) -> StructuredLine | None:
    """Return the record in a line, or its text; None for an empty line, and for a metric."""
    fields = parse_object(data)
    if fields is None or "message" not in fields:
        if not data.strip() or (fields and {"name", "value", "time"} <= fields.keys()):
            return None
        return StructuredLine(None, "", "", data.decode("utf-8", "backslashreplace"), origin)
    origin = origin.updated(fields)
    moment = number(fields.get("time"))
    return StructuredLine(
        moment if moment is not None and 0 <= moment < LATEST else None,
        _text(fields.get("level")),
        _text(fields.get("logger")),
        _text(fields["message"]),
        origin,
        _text(fields.get("exception")),
        fields,
    )


def _text(value: Any) -> str:
    """Return a field as text, whatever its type."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)
