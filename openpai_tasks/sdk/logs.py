"""A job's output, as it is or as it grows."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from openpai_tasks.client import Client
from openpai_tasks.errors import ApiError, ConfigError, NotFound
from openpai_tasks.plain_text import PlainBytes
from openpai_tasks.protocol.log_addresses import addresses
from openpai_tasks.protocol.models import JobInfo, TaskInfo
from openpai_tasks.protocol.states import role_key
from openpai_tasks.sdk import jobs
from openpai_tasks.sdk.labels import Labels
from openpai_tasks.sdk.polling import Pauses

LONGEST_LINE = 16 << 20
"""As much of a line's end is kept where whole lines are needed."""


@dataclass(frozen=True)
class Which:
    """Whose output, and which of its streams: stdout, stderr or all in order."""

    role: str | None = None
    index: int | None = None
    stream: str = "all"


@dataclass(frozen=True)
class Chunk:
    task: str  # "" when only one task is read
    data: bytes


PAUSE = Chunk("", b"")
"""Nothing more comes for a while."""

Look = Callable[[JobInfo], object]


class Reader:
    """One task's log, read from where the last reading ended."""

    def __init__(self, client: Client, job: JobInfo, task: TaskInfo, stream: str) -> None:
        self._client, self._stream = client, stream
        self._where = (job.key, job.attempt, task.role, task.index, task.attempt)
        self._known = addresses(task.log)  # of servers that don't want to be asked
        self._uris: dict[str, str] = {}
        self._offsets: dict[str, int] = {}

    def read(self) -> Iterator[bytes]:
        """What is new."""
        self._uris = self._uris or self._find()
        try:
            yield from self._grown()
        except ApiError:
            if self._known:
                raise
            self._uris = self._find()  # an address is good for two minutes only
            yield from self._grown()

    def _grown(self) -> Iterator[bytes]:
        for name, uri in self._uris.items():
            with contextlib.suppress(*[NotFound] if self._known else []):  # which is just not written yet
                for data in self._client.read_log(uri, self._offsets.get(name, 0)):
                    self._offsets[name] = self._offsets.get(name, 0) + len(data)
                    yield data

    def _find(self) -> dict[str, str]:
        """The addresses of the logs that make up the stream; none while there is no log."""
        try:
            found = self._known or self._client.log_locations(*self._where)
        except NotFound:
            return {}
        one_by_one = self._stream == "all" and "all" not in found
        streams = ["stdout", "stderr"] if one_by_one else [self._stream]
        names = [name for stream in streams for name in (f"{stream}.1", stream) if name in found]
        for name in names:
            if name.endswith(".1") and name not in self._offsets:  # what we read was put away as this
                self._offsets[name] = self._offsets.pop(name.removesuffix(".1"), 0)
        return {name: found[name] for name in names}


def stream(stdout: bool, stderr: bool) -> str:
    """Which log the two flags choose."""
    if stdout == stderr:
        return "all"
    return "stdout" if stdout else "stderr"


def output(
    client: Client,
    name: str,
    which: Which,
    follow: bool = False,
    lines: int | None = None,
    look: Look | None = None,
    plain: bool = False,
) -> Iterator[bytes]:
    """What to show of a job's output: all of it or the last lines, until now or until it is over.

    It is as the tasks wrote it unless ``plain``, which leaves out what would steer a terminal.
    """
    if lines is not None and lines < 0:
        raise ConfigError(f"the number of lines cannot be negative: {lines}")
    if follow:
        chunks = Follower(client, which, lines, look).until_over(name)
    else:
        chunks = read(client, name, which)
        chunks = chunks if lines is None else last_lines(chunks, lines)
    return labelled(filtered(chunks) if plain else chunks)


def read(client: Client, name: str, which: Which) -> Iterator[Chunk]:
    """The output until now."""
    job = jobs.find(client, name)
    tasks = _chosen(job, which)
    for task in tasks:
        for data in Reader(client, job, task, which.stream).read():
            yield Chunk(_label(task, tasks), data)


class Follower:
    """Reads what a job's tasks write, piece by piece; a retry's output follows that of the try before.

    ``look`` is given the job each time it was asked for, before what the latest try has written since.
    """

    def __init__(
        self, client: Client, which: Which, lines: int | None = None, look: Look | None = None
    ) -> None:
        self._client, self._which, self._lines, self._look = client, which, lines, look
        self._readers: dict[tuple[int, str, int, str], Reader] = {}

    def until_over(self, name: str) -> Iterator[Chunk]:
        """The output as it grows, until the job is over."""
        pauses = Pauses(self._client)
        seen = None
        while True:
            job = jobs.find(self._client, name)  # asked first: what is final now has written everything
            moved = False
            for tried in (*self._between(seen, job), job):
                if self._look and tried is job:
                    self._look(job)
                for chunk in self._new(tried):
                    moved = True
                    yield chunk
            seen = job
            if job.final:
                return
            yield PAUSE
            pauses.wait(moved)

    def _between(self, seen: JobInfo | None, job: JobInfo) -> Iterator[JobInfo]:
        """The tries that ended since the last look, the last one seen among them: each has its own output."""
        begin = 0 if self._lines is None else job.attempt  # the last lines are those of the latest try
        first = begin if seen is None else seen.attempt
        with contextlib.suppress(NotFound):  # older servers know only the latest try
            for attempt in range(first, job.attempt):
                yield self._client.job_attempt(job.key, attempt)

    def _new(self, job: JobInfo) -> Iterator[Chunk]:
        """What came since the last look; of what a task wrote before the first look, the last lines."""
        tasks = _chosen(job, self._which)
        for task in tasks:
            place = (job.attempt, task.label, task.attempt, task.log)
            reader = self._readers.setdefault(place, Reader(self._client, job, task, self._which.stream))
            chunks = (Chunk(_label(task, tasks), data) for data in reader.read())
            yield from chunks if self._lines is None else last_lines(chunks, self._lines)
        self._lines = None


def _chosen(job: JobInfo, which: Which) -> list[TaskInfo]:
    """The tasks asked for; a job that waits has none yet."""
    roles = {task.role for task in job.tasks}
    role = which.role if which.role is None or which.role in roles else role_key(which.role)
    if job.tasks and role and role not in roles:
        raise ConfigError(f"job {job.name!r} has no role {which.role!r} (it has: {', '.join(sorted(roles))})")
    of_role = [task for task in job.tasks if role in (None, task.role)]
    chosen = [task for task in of_role if which.index in (None, task.index)]
    if of_role and not chosen:
        raise ConfigError(f"job {job.name!r} has no task {which.index} (it has 0 to {len(of_role) - 1})")
    return chosen


def _label(task: TaskInfo, tasks: list[TaskInfo]) -> str:
    return task.label if len(tasks) > 1 else ""


class Lines:
    """Whole lines of several tasks' output, each task's own; of a very long one only the end."""

    def __init__(self) -> None:
        self._rest: dict[str, bytearray] = {}

    def feed(self, chunk: Chunk) -> Iterator[Chunk]:
        """The lines that are complete now."""
        rest = self._rest.setdefault(chunk.task, bytearray())
        *whole, last = chunk.data.split(b"\n")
        if whole:
            whole[0] = _line_end(rest) + whole[0]
            rest.clear()
        rest += last
        if len(rest) > 2 * LONGEST_LINE:
            rest[:] = _line_end(rest)
        return (Chunk(chunk.task, line + b"\n") for line in whole)

    def end(self) -> Iterator[Chunk]:
        """What came without an end of line."""
        return (Chunk(task, _line_end(rest) + b"\n") for task, rest in self._rest.items() if rest)


def _line_end(rest: bytearray) -> bytes:
    return bytes(memoryview(rest)[-LONGEST_LINE:])


def last_lines(chunks: Iterable[Chunk], count: int) -> Iterator[Chunk]:
    """The last ``count`` lines of each task's output."""
    lines, kept = Lines(), dict[str, deque[bytes]]()
    for chunk in chunks:
        for line in lines.feed(chunk):
            kept.setdefault(line.task, deque(maxlen=count)).append(line.data)
    for line in lines.end():
        kept.setdefault(line.task, deque(maxlen=count)).append(line.data)
    return (Chunk(task, data) for task, tail in kept.items() for data in tail)


def filtered(chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    """The same without what would steer a terminal."""
    filters: dict[str, PlainBytes] = {}
    for chunk in chunks:
        data = filters.setdefault(chunk.task, PlainBytes()).feed(chunk.data)
        if data or chunk == PAUSE:
            yield Chunk(chunk.task, data)
    yield from (Chunk(task, one.feed(b"", final=True)) for task, one in filters.items())


def labelled(chunks: Iterable[Chunk]) -> Iterator[bytes]:
    """The bytes to show: as they come for one task, line by line behind its label for several."""
    labels = Labels()
    for chunk in chunks:
        data = labels.feed(chunk.task, chunk.data) if chunk.task else chunk.data or labels.pause()
        if data:
            yield data
    last = labels.end()
    if last:
        yield last
