"""The JSON lines that a job's program wrote, read as they grow.

They are in files ``.pai/<kind>/<role>-<index>-<attempt>.jsonl`` of the job's output folder; if there are
none, in the logs of its tasks. A job is not trusted: lines may be torn, long or no JSON; links are not
followed.
"""

from __future__ import annotations

import dataclasses
import json
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeGuard, cast

from openpai_tasks.backends.base import Backend, TaskLog
from openpai_tasks.errors import ApiError, NotFound
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol.json_text import parse_object
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.protocol.states import role_key
from openpai_tasks.sdk.files.job_folders import Mounts
from openpai_tasks.sdk.jobs.outputs import RUNTIME_FOLDER, OutputPlace, output_folder
from openpai_tasks.sdk.logs.output import MOST_ATTEMPTS, LogChoice
from openpai_tasks.storage.location import Location
from openpai_tasks.storage.store import Entry, Store

LONGEST = 1 << 20
"""Bytes of a line; the rest of a longer one is dropped."""
TOGETHER = 32 << 20
"""Bytes that all files which are read at the same time take in memory."""
PIECES = (64 << 10, 1 << 20)
"""The smallest and the largest part of a file that is read at once."""

_DECODER = json.JSONDecoder(parse_constant=float)
_NAME = re.compile(r"(.+)-([0-9]{1,9})-([0-9]{1,9})\.jsonl")


@dataclass(frozen=True, order=True)
class LineOrigin:
    """The task that wrote a line, and its attempt."""

    attempt: int
    role: str
    index: int

    def is_chosen(self, which: LogChoice) -> bool:
        return (
            (which.role is None or role_key(which.role) == role_key(self.role))
            and which.index in (None, self.index)
            and which.attempt in (None, self.attempt)
        )

    def updated(self, fields: Mapping[str, Any]) -> LineOrigin:
        """Return the origin that a line names; what it does not name stays."""
        attempt, role, index = fields.get("attempt"), fields.get("role"), fields.get("index")
        attempt = attempt if _is_count(attempt) else self.attempt
        role = role if isinstance(role, str) and role else self.role
        index = index if _is_count(index) else self.index
        if (attempt, role, index) == (self.attempt, self.role, self.index):
            return self  # as nearly always
        return LineOrigin(attempt, role, index)


class JobLines:
    """All lines of one kind that a job's tasks have written."""

    def __init__(
        self,
        client: Backend,
        name: str | JobInfo,
        kind: str,
        mounts: Mounts = (),
        which: LogChoice | None = None,
        place: OutputPlace | None = None,
    ) -> None:
        self.job, self.folder = place or output_folder(client, name, mounts)
        self._client, self._kind, self._which = client, kind, which or LogChoice()
        self._files: dict[str, FileLines] = {}
        self._logs: dict[tuple[object, ...], LogLines] = {}
        self._attempts: dict[int, JobInfo | None] = {}

    def sources(self, job: JobInfo, is_early: bool = False) -> list[LineSource]:
        """Return the sources as of now, by attempt and task: files, or else the logs of ``job``.

        ``is_early``: a job with an output folder may still write files, so that its logs are not needed yet.
        """
        if self.folder:
            for entry in list_files(self.folder, self._kind):
                source = self._files.setdefault(entry.path, FileLines(self.folder.store, entry))
                source.size = entry.size
        found: Iterable[LineSource] = self._files.values()
        if not self._files and not (is_early and self.folder):
            self._open_logs(job)
            found = self._logs.values()
        chosen = [source for source in found if source.origin.is_chosen(self._which)]
        return sorted(chosen, key=lambda source: source.origin)

    def _open_logs(self, job: JobInfo) -> None:
        for attempt in range(max(0, job.attempt - MOST_ATTEMPTS), job.attempt):
            if attempt not in self._attempts and self._which.attempt in (None, attempt):
                try:
                    found = self._client.job_attempt(job.key, attempt)
                except NotFound:  # older servers know only the latest attempt
                    self._attempts[attempt] = None
                else:
                    self._attempts[attempt] = dataclasses.replace(found, attempt=attempt)
        for one in (*filter(None, self._attempts.values()), job):
            for task in one.tasks:
                key = (one.attempt, task.label, task.attempt, task.log)
                if key not in self._logs:
                    log = self._client.open_log(one, task, self._which.stream)
                    self._logs[key] = LogLines(log, LineOrigin(one.attempt, task.role, task.index))


def list_files(folder: Location, kind: str) -> Iterator[Entry]:
    """Yield the files of a kind in an output folder; a link in place of a file or folder is left out."""
    for name in (RUNTIME_FOLDER, kind):
        folder = folder.join(name)
        there = folder.store.stat(folder.path)
        if there is None or there.is_link or not there.is_folder:
            return
    for entry in folder.store.list(folder.path):
        if _NAME.fullmatch(entry.name) and not (entry.is_folder or entry.is_link or entry.is_special):
            yield entry


class LineSource:
    """The lines of one task; each call of ``new`` continues where the last one ended."""

    def __init__(self, origin: LineOrigin) -> None:
        self.origin = origin
        self.problem: ApiError | None = None  # why the last read ended early
        self._lines = ShortLines()

    def new(self, piece: int, is_last: bool) -> Iterator[bytes]:
        """Yield the lines that were finished since the last call; the unfinished one only if ``is_last``."""
        for lines in self.new_lists(piece):
            yield from lines
        if is_last:
            yield from self._lines.end()

    def new_lists(self, piece: int) -> Iterator[Iterable[bytes]]:
        """Yield the lines that were finished since the last call, those of each piece together."""
        return map(self._lines.feed, self._read(piece))

    def rewind(self) -> None:
        """Start again from the beginning."""
        self._lines = ShortLines()

    def _read(self, piece: int) -> Iterator[bytes]:
        raise NotImplementedError


class FileLines(LineSource):
    """The lines of a file on a storage; ``size`` is its size when the folder was listed."""

    def __init__(self, store: Store, entry: Entry) -> None:
        name = _NAME.fullmatch(entry.name)
        assert name
        super().__init__(LineOrigin(int(name[3]), name[1], int(name[2])))
        self.size = entry.size
        self.path = entry.path
        self._store, self._offset = store, 0

    @property
    def line_offset(self) -> int:
        """Where the first line begins that was not complete yet."""
        return self._offset - self._lines.pending

    def rewind(self, offset: int = 0) -> None:
        """Start again from the beginning of a line."""
        super().rewind()
        self._offset = offset

    def _read(self, piece: int) -> Iterator[bytes]:
        while self._offset < self.size:
            try:  # each part in one request, so that no connection waits for the other files
                data = b"".join(self._store.read(self.path, self._offset, piece))
            except NotFound:  # it was removed
                data = b""
            self._offset += len(data)
            yield data
            if len(data) < piece:
                break


class LogLines(LineSource):
    """The lines of a task's log."""

    def __init__(self, log: TaskLog, origin: LineOrigin) -> None:
        super().__init__(origin)
        self._log = log

    def rewind(self) -> None:
        super().rewind()
        self._log.rewind()

    def _read(self, piece: int) -> Iterator[bytes]:
        """Fetch the log first, to a temporary file if it is long: the server need not wait for other logs."""
        with tempfile.SpooledTemporaryFile(piece) as spool:
            self.problem = None
            try:
                for data in self._log.read():
                    spool.write(data)
            except ApiError as err:  # other logs may still be readable
                self.problem = err
            spool.seek(0)
            while data := spool.read(piece):
                yield data


class ShortLines:
    """Splits bytes into lines, without their ends; of a long line, only the beginning is kept."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self.pending = 0
        """Bytes of the line that is not complete, with those that are not kept."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        *whole, last = data.split(b"\n")
        self.pending = len(last) if whole else self.pending + len(last)
        if whole:
            whole[0] = bytes(self._rest + whole[0])
            self._rest.clear()
        self._rest += last[: LONGEST - len(self._rest)]
        return (line[:LONGEST].removesuffix(b"\r") for line in whole)

    def end(self) -> Iterator[bytes]:
        """Yield the unfinished line, if there is one."""
        rest = bytes(self._rest)
        self._rest.clear()
        return filter(None, [rest])


def piece_size(sources: int) -> int:
    """Return how many bytes of each source to read at once."""
    least, most = PIECES
    return max(least, min(most, TOGETHER // max(1, sources)))


def parse_objects(lines: Iterable[bytes]) -> list[dict[str, Any]]:
    """Parse the JSON objects among the lines, all at once, which is several times as fast as one by one.

    Values in them may be nested more deeply than those of ``parse_object``.
    """
    wanted = [line for line in map(bytes.strip, lines) if line[:1] == b"{" and line[-1:] == b"}"]
    text = b",\n".join(wanted).decode("utf-8", "replace")  # a string with a newline in it is not JSON
    if "\\u" not in text:  # which may be half of a character
        try:
            found = _DECODER.decode(f"[{text}]")
        except (ValueError, RecursionError):
            found = []
        if len(found) == len(wanted) and all(type(one) is dict for one in found):
            return cast("list[dict[str, Any]]", found)
    return [one for one in map(parse_object, wanted) if one is not None]


def number(value: Any) -> float | None:
    """Return a number of a parsed line, which may be infinite or NaN; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def _is_count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**9
