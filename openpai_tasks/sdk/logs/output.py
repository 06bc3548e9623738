"""A job's output, as it is or as it grows."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass

from openpai_tasks.backends.base import Backend, TaskLog
from openpai_tasks.errors import ApiError, ConfigError, NotFound, Unreachable
from openpai_tasks.plain_text import PlainBytes
from openpai_tasks.protocol.models import JobInfo, TaskInfo
from openpai_tasks.protocol.states import role_key
from openpai_tasks.sdk.jobs import lookup
from openpai_tasks.sdk.jobs.polling import Pauses
from openpai_tasks.sdk.logs.labels import Labels
from openpai_tasks.sdk.logs.troubles import LogTroubles

LONGEST_LINE = 16 << 20
"""As much of a line's end is kept where whole lines are needed."""

MOST_ATTEMPTS = 50
"""So many of a job's last attempts are read by who follows it, whatever number a server tells."""

LAST_SECONDS = 5.0
"""For logs that could not be read before, after the end of the job."""


@dataclass(frozen=True)
class LogChoice:
    """Whose output, and which of its streams: stdout, stderr or all in order."""

    role: str | None = None
    index: int | None = None
    stream: str = "all"
    attempt: int | None = None  # of the job, from 0; the latest if not given


@dataclass(frozen=True)
class Chunk:
    task: str  # "" when only one task is read
    data: bytes


PAUSE = Chunk("", b"")
"""Nothing more comes for a while."""

Place = tuple[int, str, int, str]
"""Which log: the job's attempt, the task, its own attempt, and where the server says it is."""

Look = Callable[[JobInfo], object]


def choose_stream(stdout: bool, stderr: bool) -> str:
    """Which log the two flags choose."""
    if stdout == stderr:
        return "all"
    return "stdout" if stdout else "stderr"


def read_output(
    client: Backend,
    name: str,
    which: LogChoice,
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
    if follow and which.attempt is not None:
        raise ConfigError("--attempt shows what one attempt has written: leave out --follow")
    if follow:
        chunks = Follower(client, which, lines, look).until_over(name)
    else:
        chunks = read(client, name, which)
        chunks = chunks if lines is None else last_lines(chunks, lines)
    return labelled(filtered(chunks) if plain else chunks)


def read(client: Backend, name: str, which: LogChoice) -> Iterator[Chunk]:
    """The output until now."""
    job = _in_attempt(client, lookup.find(client, name), which.attempt)
    tasks = _chosen(job, which)
    problem: ApiError | None = None
    for task in tasks:
        try:
            for data in client.open_log(job, task, which.stream).read():
                yield Chunk(_label(task, tasks), data)
        except ApiError as err:  # the logs of the other tasks may be there
            problem = problem or err
    if problem:
        raise problem


def _in_attempt(client: Backend, job: JobInfo, attempt: int | None) -> JobInfo:
    if attempt in (None, job.attempt):
        return job
    if not 0 <= attempt < job.attempt:
        has = "only attempt 0" if not job.attempt else f"attempts 0 to {job.attempt}"
        raise ConfigError(f"job {job.name!r} has {has}, got --attempt {attempt}")
    return dataclasses.replace(client.job_attempt(job.key, attempt), attempt=attempt)


class Follower:
    """Reads what a job's tasks write, piece by piece; a retry's output follows that of the try before.

    ``look`` is given the job each time it was asked for, before what the latest try has written since. The
    job matters more than its output: a log that cannot be read is a warning, and is tried again.
    """

    def __init__(
        self, client: Backend, which: LogChoice, lines: int | None = None, look: Look | None = None
    ) -> None:
        self._client, self._which, self._lines, self._look = client, which, lines, look
        self._readers: dict[Place, TaskLog] = {}
        self._tailed = set[Place]()  # of what they have written, only the last lines are wanted
        self._ended: dict[int, JobInfo | None] = {}  # attempts that are over and not read to their end
        self._troubles = LogTroubles(client.say)

    def until_over(self, name: str) -> Iterator[Chunk]:
        """The output as it grows, until the job is over."""
        pauses = Pauses(self._client)
        seen = None
        while True:
            # asked first: what is final now has written everything
            job = pauses.ask(lambda: lookup.find(self._client, name))
            self._note_ended(seen, job)
            moved = False
            for chunk in self._round(job, is_first=seen is None):
                moved = True
                yield chunk
            if job.final:
                break
            seen = job
            yield PAUSE
            pauses.wait(moved)
        yield from self._rest(job)

    def _note_ended(self, seen: JobInfo | None, job: JobInfo) -> None:
        """Remember the attempts that ended since the last look, the last one seen among them."""
        begin = 0 if self._lines is None else job.attempt  # the last lines are those of the latest try
        first = begin if seen is None else seen.attempt
        begun = max(first, job.attempt - MOST_ATTEMPTS)
        self._ended |= {attempt: None for attempt in range(begun, job.attempt) if attempt not in self._ended}
        for attempt in sorted(self._ended)[:-MOST_ATTEMPTS]:
            del self._ended[attempt]
        if begun > first:
            more = f"`pai job.logs {job.name} --attempt {first}` shows the first of it"
            self._client.say(f"the output of {begun - first} attempts is left out; {more}")

    def _round(self, job: JobInfo, is_first: bool = False, is_last: bool = False) -> Iterator[Chunk]:
        """What is new, of the attempts that are over and then of the latest one."""
        self._troubles.begin_round()
        for attempt in sorted(self._ended):
            past = self._ended[attempt] = self._ended[attempt] or self._past(job, attempt)
            is_read = (yield from self._new(past)) if past else attempt not in self._troubles
            if is_read:
                del self._ended[attempt]
        if self._look and not is_last:
            self._look(job)
        yield from self._new(job, is_tailed=is_first and self._lines is not None)

    def _past(self, job: JobInfo, attempt: int) -> JobInfo | None:
        """The job as it was in an attempt; None if the cluster does not tell it, or not now."""
        if not self._troubles.is_due(attempt):
            return None
        self._troubles.clear(attempt)
        try:
            found = self._client.job_attempt(job.key, attempt)
        except NotFound:  # older servers know only the latest try
            return None
        except (ApiError, Unreachable) as err:
            self._troubles.note(attempt, f"attempt {attempt} of job {job.name!r}", err)
            return None
        return dataclasses.replace(found, attempt=attempt)

    def _new(self, job: JobInfo, is_tailed: bool = False) -> Generator[Chunk, None, bool]:
        """What came since the last look; returns whether that is all there is now."""
        tasks = _chosen(job, self._which)
        is_all = True
        for task in tasks:
            place = (job.attempt, task.label, task.attempt, task.log)
            if place not in self._readers:
                self._readers[place] = self._client.open_log(job, task, self._which.stream, retries=False)
                self._tailed |= {place} if is_tailed else set()
            if self._troubles.is_due(place):
                yield from self._read(place, task, _label(task, tasks))
            is_all = is_all and place not in self._troubles
            if place in self._troubles and self._troubles.is_round_over:
                return False
        return is_all

    def _read(self, place: Place, task: TaskInfo, label: str) -> Iterator[Chunk]:
        """What is new in one log; of one that is tailed, its last lines."""
        count = self._lines if place in self._tailed else None
        reader = self._readers[place]
        chunks = (Chunk(label, data) for data in reader.read())
        try:
            yield from chunks if count is None else last_lines(chunks, count)
        except (ApiError, Unreachable) as err:
            self._troubles.note(place, f"the output of {task.label}", err)
            if count is not None:
                reader.rewind()  # nothing of it was shown
        else:
            self._troubles.clear(place)
            self._tailed.discard(place)

    def _rest(self, job: JobInfo) -> Iterator[Chunk]:
        """What could not be read before, if that is possible soon after the end of the job."""
        pauses = Pauses(self._client, LAST_SECONDS)
        self._troubles.retry_all()
        while self._troubles and not pauses.over:
            yield from self._round(job, is_last=True)
            pauses.wait()
        if self._troubles:
            more = f"`pai job.logs {job.name}` shows it when it can be read"
            self._client.say(f"warning: some output of job {job.name!r} is missing here; {more}")
        if absent := [task.label for task in _chosen(job, self._which) if self._is_absent(job, task)]:
            self._client.say(f"warning: the cluster has no output of {', '.join(absent[:8])}")

    def _is_absent(self, job: JobInfo, task: TaskInfo) -> bool:
        reader = self._readers.get((job.attempt, task.label, task.attempt, task.log))
        return bool(task.launched and reader and reader.is_absent)


def _chosen(job: JobInfo, which: LogChoice) -> list[TaskInfo]:
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
