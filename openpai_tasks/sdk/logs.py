"""A job's output, as it is or as it grows."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from openpai_tasks.client import Client
from openpai_tasks.errors import ApiError, ConfigError, NotFound
from openpai_tasks.protocol.models import JobInfo, TaskInfo
from openpai_tasks.sdk import jobs
from openpai_tasks.sdk.polling import Pauses


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


class Reader:
    """One task's log, read from where the last reading ended."""

    def __init__(self, client: Client, job: JobInfo, task: TaskInfo, stream: str) -> None:
        self._client, self._stream = client, stream
        self._where = (job.key, job.attempt, task.role, task.index, task.attempt)
        self._offset = 0
        self._uri: str | None = None

    def read(self) -> Iterator[bytes]:
        """What is new."""
        if self._uri is None:
            self._uri = self._find()
        if self._uri is None:
            return
        try:
            for data in self._client.read_log(self._uri, self._offset):
                self._offset += len(data)
                yield data
        except ApiError:  # the address is good for two minutes only
            self._uri = self._find()
            if self._uri:
                for data in self._client.read_log(self._uri, self._offset):
                    self._offset += len(data)
                    yield data

    def _find(self) -> str | None:
        """The log's address, or None while there is no log."""
        try:
            return self._client.log_locations(*self._where).get(self._stream)
        except NotFound:
            return None


def stream(stdout: bool, stderr: bool) -> str:
    """Which log the two flags choose."""
    if stdout == stderr:
        return "all"
    return "stdout" if stdout else "stderr"


def output(
    client: Client, name: str, which: Which, follow: bool = False, lines: int | None = None
) -> Iterator[bytes]:
    """What to show of a job's output: all of it or the last lines, until now or until it is over."""
    if lines is not None and lines < 0:
        raise ConfigError(f"the number of lines cannot be negative: {lines}")
    if follow:
        return labelled(Follower(client, which, lines).until_over(name))
    chunks = read(client, name, which)
    return labelled(chunks if lines is None else last_lines(chunks, lines))


def read(client: Client, name: str, which: Which) -> Iterator[Chunk]:
    """The output until now."""
    job = jobs.find(client, name)
    tasks = _chosen(job, which)
    for task in tasks:
        for data in Reader(client, job, task, which.stream).read():
            yield Chunk(_label(task, tasks), data)


class Follower:
    """Reads what a job's tasks write, piece by piece; a retry's output follows that of the try before."""

    def __init__(self, client: Client, which: Which, lines: int | None) -> None:
        self._client, self._which, self._lines = client, which, lines
        self._readers: dict[tuple[int, str, int, int], Reader] = {}

    def until_over(self, name: str) -> Iterator[Chunk]:
        """The output as it grows, until the job is over."""
        pauses = Pauses(self._client)
        while True:
            job = jobs.find(self._client, name)  # asked first: what is final now has written everything
            moved = False
            for chunk in self._new(job):
                moved = True
                yield chunk
            if job.final:
                return
            pauses.wait(moved)

    def _new(self, job: JobInfo) -> Iterator[Chunk]:
        """What came since the last look; of what a task wrote before the first look, the last lines."""
        tasks = _chosen(job, self._which)
        for task in tasks:
            place = (job.attempt, task.role, task.index, task.attempt)
            first = place not in self._readers
            reader = self._readers.setdefault(place, Reader(self._client, job, task, self._which.stream))
            chunks = (Chunk(_label(task, tasks), data) for data in reader.read())
            yield from chunks if self._lines is None or not first else last_lines(chunks, self._lines)


def _chosen(job: JobInfo, which: Which) -> list[TaskInfo]:
    """The tasks asked for; a job that waits has none yet."""
    roles = {task.role for task in job.tasks}
    if job.tasks and which.role and which.role not in roles:
        raise ConfigError(f"job {job.name!r} has no role {which.role!r} (it has: {', '.join(sorted(roles))})")
    of_role = [task for task in job.tasks if which.role in (None, task.role)]
    chosen = [task for task in of_role if which.index in (None, task.index)]
    if of_role and not chosen:
        raise ConfigError(f"job {job.name!r} has no task {which.index} (it has 0 to {len(of_role) - 1})")
    return chosen


def _label(task: TaskInfo, tasks: list[TaskInfo]) -> str:
    return task.label if len(tasks) > 1 else ""


class Lines:
    """Whole lines of several tasks' output, each task's own."""

    def __init__(self) -> None:
        self._rest: dict[str, bytes] = {}

    def feed(self, chunk: Chunk) -> Iterator[Chunk]:
        """The lines that are complete now."""
        *whole, rest = (self._rest.get(chunk.task, b"") + chunk.data).split(b"\n")
        self._rest[chunk.task] = rest
        return (Chunk(chunk.task, line + b"\n") for line in whole)

    def end(self) -> Iterator[Chunk]:
        """What came without an end of line."""
        return (Chunk(task, rest + b"\n") for task, rest in self._rest.items() if rest)


def last_lines(chunks: Iterable[Chunk], count: int) -> Iterator[Chunk]:
    """The last ``count`` lines of each task's output."""
    lines, kept = Lines(), dict[str, deque[bytes]]()
    for chunk in chunks:
        for line in lines.feed(chunk):
            kept.setdefault(line.task, deque(maxlen=count)).append(line.data)
    for line in lines.end():
        kept.setdefault(line.task, deque(maxlen=count)).append(line.data)
    return (Chunk(task, data) for task, tail in kept.items() for data in tail)


def labelled(chunks: Iterable[Chunk]) -> Iterator[bytes]:
    """The bytes to show: as they come for one task, line by line behind its label for several."""
    lines = Lines()
    for chunk in chunks:
        if chunk.task:
            yield from map(_with_label, lines.feed(chunk))
        else:
            yield chunk.data
    yield from map(_with_label, lines.end())


def _with_label(line: Chunk) -> bytes:
    return b"[%s] %s" % (line.task.encode(), line.data)
