"""Read a job's output, once or while it grows."""

from __future__ import annotations

import dataclasses
import functools
import re
import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping

from openpai_tasks.backends.base import Backend, TaskLog, require
from openpai_tasks.errors import ApiError, ConfigError, InvalidOption, NotFound, PaiError, Unreachable
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.net.retry import RetryPolicy
from openpai_tasks.protocol.models import JobInfo, TaskInfo
from openpai_tasks.protocol.states import role_key
from openpai_tasks.sdk.jobs import lookup
from openpai_tasks.sdk.jobs.polling import Pauses
from openpai_tasks.sdk.logs.long_logs import find_last_lines, read_last_lines
from openpai_tasks.sdk.logs.times import UNKNOWN, OutputTimes, Written, format_time, open_times
from openpai_tasks.text.hints import option
from openpai_tasks.text.plain import PlainBytes, one_line
from openpai_tasks.text.plurals import counted

LONGEST_LINE = 16 << 20
"""Bytes kept of the end of a line where whole lines are needed."""

AT_ONCE = 16  # tasks whose logs are looked for side by side
MOST_ATTEMPTS = 50
"""Latest attempts of a job to follow, whatever number the server reports."""

LAST_SECONDS = 5.0
"""Time after the job's end to read logs that failed before."""
POLICY = RetryPolicy(tries=sys.maxsize, least_pause=0.5, longest_pause=30.0)
LONGEST_ROUND = 5.0
"""Seconds that failing reads may take before the job itself is polled again."""

LONGEST_PART = 1 << 16
"""Bytes of an unfinished line to hold back; longer lines are passed on in pieces."""
COLOURS = (36, 33, 35, 32, 34, 96, 93, 95, 92, 94)  # of labels, in turn

_SEGMENT = re.compile(rb"([^\r\n]*)([\r\n])")


@dataclass(frozen=True)
class LogChoice:
    """The tasks and the stream to read: stdout, stderr or all in order."""

    role: str | None = None
    index: int | None = None
    stream: str = "all"
    attempt: int | None = None  # of the job, from 0; by default the latest
    timed: bool = False  # whether to find out when it was written


@dataclass(frozen=True)
class LogStart:
    """Where the first chunk of a log begins; None for what is not known."""

    offset: int | None
    line: int | None  # lines before it


@dataclass(frozen=True)
class Chunk:
    """A piece of a task's output, or a pause."""

    task: str  # "" when only one task is read
    data: bytes
    pause: float = 0.0  # seconds until the next request
    start: LogStart | None = None  # if it is the first one of a log
    written: Written = UNKNOWN

    @property
    def text(self) -> str:
        """A line as text, without its newline; those of several tasks get labels."""
        text = self.data.decode("utf-8", "replace").removesuffix("\n").removesuffix("\r")
        return f"[{one_line(self.task)}] {text}" if self.task else text


LogKey = tuple[int, str, int, str]
"""A log: the job's attempt, the task, the task's attempt, and the server's log address."""

OnJob = Callable[[JobInfo], object]


def choose_stream(stdout: bool, stderr: bool) -> str:
    """Return the stream that the two flags choose."""
    if stdout == stderr:
        return "all"
    return "stdout" if stdout else "stderr"


def check_choice(which: LogChoice, follow: bool, lines: int | None) -> None:
    """Raise for flags that cannot be combined, and for a negative number of lines."""
    if lines is not None and lines < 0:
        raise ConfigError(f"the number of lines must not be negative, got {lines}")
    if follow and which.attempt is not None:
        raise InvalidOption("attempt", f"cannot be combined with {option('follow')}")


def read_output(
    client: Backend,
    name: str | JobInfo,
    which: LogChoice,
    follow: bool = False,
    lines: int | None = None,
    on_job: OnJob | None = None,
    plain: bool = False,
) -> Iterator[bytes]:
    """Yield a job's output or its last lines, so far or until it ends.

    ``plain`` removes terminal control characters; otherwise the bytes are as the tasks wrote them.
    """
    return add_labels(sleep_between(output_steps(client, name, which, follow, lines, on_job, plain)))


def output_steps(
    client: Backend,
    name: str | JobInfo,
    which: LogChoice,
    follow: bool = False,
    lines: int | None = None,
    on_job: OnJob | None = None,
    plain: bool = False,
    most_bytes: int | None = None,
) -> Iterator[Chunk]:
    """Yield a job's output like ``read_output``, but leave the pauses between requests to the caller.

    ``most_bytes`` limits the last lines of each task.
    """
    check_choice(which, follow, lines)
    if which.stream != "all":
        require(client, "separate_streams")
    if follow:
        chunks = Follower(client, which, lines, on_job, most_bytes).steps(name)
    else:
        chunks = read_chunks(client, name, which, lines, most_bytes)
    return strip_control_characters(chunks) if plain else chunks


def sleep_between(chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    """Sleep for each pause among the chunks."""
    for chunk in chunks:
        yield chunk
        if chunk.pause:
            time.sleep(chunk.pause)


def read_chunks(
    client: Backend,
    name: str | JobInfo,
    which: LogChoice,
    lines: int | None = None,
    most_bytes: int | None = None,
) -> Iterator[Chunk]:
    """Yield the output so far, or its last lines."""
    job = lookup.at_attempt(client, lookup.find(client, name), which.attempt)
    return read_job_chunks(client, job, which, lines, most_bytes)


def read_job_chunks(
    client: Backend, job: JobInfo, which: LogChoice, lines: int | None = None, most_bytes: int | None = None
) -> Iterator[Chunk]:
    """Yield the output so far, or its last lines, of the attempt that ``job`` describes."""
    tasks = select_tasks(job, which)
    problem: ApiError | None = None
    for first in range(0, len(tasks), AT_ONCE):
        some = tasks[first : first + AT_ONCE]
        with client.ahead(*(location_call(client, job, task) for task in some)):
            for task in some:
                try:
                    log = client.open_log(job, task, which.stream)
                    times = open_times(client, job, task, which.stream) if which.timed else None
                    yield from TaskOutput(log, lines, most_bytes, times).read(_label(task, tasks))
                except ApiError as err:  # other tasks' logs may still be readable
                    problem = problem or err
    if problem:
        raise problem


def location_call(client: Backend, job: JobInfo, task: TaskInfo) -> functools.partial[Mapping[str, str]]:
    """Return the call that finds the logs of a task."""
    where = (job.key, job.attempt, task.role, task.index, task.attempt)
    return functools.partial(client.log_locations, *where)


class TaskOutput:
    """The output of one task; each read continues where the last one ended, the first at the last lines."""

    def __init__(
        self,
        log: TaskLog,
        lines: int | None = None,
        most_bytes: int | None = None,
        times: OutputTimes | None = None,
    ) -> None:
        self.log, self._times = log, times
        self._lines, self._most_bytes = lines, most_bytes
        self._start: LogStart | None = LogStart(0, 0)
        self._offset: int | None = 0

    def read(self, label: str) -> Iterator[Chunk]:
        """Yield the new output."""
        for data in self._new():
            if self._start:
                self._offset = self._start.offset
            for written, part in self._split(data):
                yield Chunk(label, part, start=self._start, written=written)
                self._start = None

    def _split(self, data: bytes) -> Iterable[tuple[Written, bytes]]:
        """Return parts that were written at different times, if that is known."""
        if self._times is None or self._offset is None:
            return [(UNKNOWN, data)]
        begin, self._offset = self._offset, self._offset + len(data)
        try:
            return list(self._times.split(begin, data))
        except (ApiError, Unreachable):  # the output itself matters more
            return [(UNKNOWN, data)]

    def _new(self) -> Iterator[bytes]:
        if self._lines is None:
            return self.log.read()
        if end := read_last_lines(self.log, self._lines, self._most_bytes):
            begin, data = end
            self._seek(begin, begin + len(data))
            return filter(None, [data])
        start = find_last_lines(self.log, self._lines, self._most_bytes)
        if start is None:
            return self._read_last_lines(self._lines)
        self._seek(start, start)
        return self.log.read()

    def _seek(self, begin: int, offset: int) -> None:
        """Let what is shown begin at one offset, and the next read at another."""
        self.log.seek(offset)
        self._start = LogStart(begin, None if begin else 0)
        self._lines = None

    def _read_last_lines(self, count: int) -> Iterator[bytes]:
        """Yield the last lines of a log that has to be read from its beginning."""
        kept, number = deque[bytes](maxlen=count), 0
        try:
            for line in split_lines(Chunk("", data) for data in self.log.read()):
                kept.append(line.data)
                number += 1
        except (ApiError, Unreachable):
            self.log.rewind()  # nothing was shown yet
            raise
        self._lines = None
        self._start = LogStart(0 if number == len(kept) else None, number - len(kept))
        return iter(kept)


class Follower:
    """Reads the output of a job's tasks as it grows, attempt by attempt.

    ``on_job`` is called with the job after each request, before the latest attempt's new output. For a log
    that cannot be read, it warns and tries again: following the job matters more than its output.
    """

    def __init__(
        self,
        client: Backend,
        which: LogChoice,
        lines: int | None = None,
        on_job: OnJob | None = None,
        most_bytes: int | None = None,
    ) -> None:
        self._client, self._which, self._on_job = client, which, on_job
        self._lines, self._most_bytes = lines, most_bytes
        self._outputs: dict[LogKey, TaskOutput] = {}
        self._ended: dict[int, JobInfo | None] = {}  # past attempts that are not fully read
        self._failures = FailedReads(client.say)

    def steps(self, name: str | JobInfo) -> Iterator[Chunk]:
        """Yield the output as it grows; between requests, the caller sleeps for ``Chunk.pause`` seconds."""
        pauses = Pauses(self._client)
        seen = None
        while True:
            # before the logs: a final job has written everything
            job = pauses.ask(functools.partial(lookup.find, self._client, name))
            name = name.key if isinstance(name, JobInfo) else name
            self._note_ended(seen, job)
            moved = False
            for chunk in self._round(job, is_first=seen is None):
                moved = True
                yield chunk
            if job.final or job.kept_until:
                break
            seen = job
            yield Chunk("", b"", pauses.next(moved))
        yield from self._rest(job)

    def _note_ended(self, seen: JobInfo | None, job: JobInfo) -> None:
        """Remember the attempts that ended since the last look."""
        begin = 0 if self._lines is None else job.attempt  # the last lines are the latest attempt's
        first = begin if seen is None else seen.attempt
        begun = max(first, job.attempt - MOST_ATTEMPTS)
        self._ended |= {attempt: None for attempt in range(begun, job.attempt) if attempt not in self._ended}
        for attempt in sorted(self._ended)[:-MOST_ATTEMPTS]:
            del self._ended[attempt]
        if begun > first:
            more = f"see the first with `{self._command(job, '--attempt', str(first))}`"
            self._client.say(f"skipping the output of {counted(begun - first, 'attempt')}; {more}")

    def _round(self, job: JobInfo, is_first: bool = False, is_last: bool = False) -> Iterator[Chunk]:
        """Yield new output, of past attempts and then of the latest."""
        self._failures.begin_round()
        for attempt in sorted(self._ended):
            past = self._ended[attempt] = self._ended[attempt] or self._past(job, attempt)
            is_read = (yield from self._new(past)) if past else attempt not in self._failures
            if is_read:
                del self._ended[attempt]
        if self._on_job and not is_last:
            self._on_job(job)
        yield from self._new(job, is_tailed=is_first and self._lines is not None)

    def _past(self, job: JobInfo, attempt: int) -> JobInfo | None:
        """Return the job as of an attempt; None if the cluster cannot report it, or not now."""
        if not self._failures.is_due(attempt):
            return None
        self._failures.discard(attempt)
        try:
            found = self._client.job_attempt(job.key, attempt)
        except NotFound:  # older servers know only the latest attempt
            return None
        except (ApiError, Unreachable) as err:
            self._failures.add(attempt, f"attempt {attempt} of job {job.name!r}", err)
            return None
        return dataclasses.replace(found, attempt=attempt)

    def _new(self, job: JobInfo, is_tailed: bool = False) -> Generator[Chunk, None, bool]:
        """Yield output since the last look; return whether everything could be read."""
        tasks = select_tasks(job, self._which)
        is_all = True
        for task in tasks:
            place = (job.attempt, task.label, task.attempt, task.log)
            if place not in self._outputs:
                log = self._client.open_log(job, task, self._which.stream, retries=False)
                times = open_times(self._client, job, task, self._which.stream) if self._which.timed else None
                lines = self._lines if is_tailed else None
                self._outputs[place] = TaskOutput(log, lines, self._most_bytes, times)
            if self._failures.is_due(place):
                yield from self._read(place, task, _label(task, tasks))
            is_all = is_all and place not in self._failures
            if place in self._failures and self._failures.is_round_over:
                return False
        return is_all

    def _read(self, place: LogKey, task: TaskInfo, label: str) -> Iterator[Chunk]:
        """Yield new output of one log."""
        try:
            yield from self._outputs[place].read(label)
        except (ApiError, Unreachable) as err:
            self._failures.add(place, f"the output of {task.label}", err)
        else:
            self._failures.discard(place)

    def _command(self, job: JobInfo, *words: str) -> str:
        return lookup.command_for(self._client, "job.logs", job, *words)

    def _rest(self, job: JobInfo) -> Iterator[Chunk]:
        """Yield output that could not be read before, if that succeeds soon after the job's end."""
        pauses = Pauses(self._client, LAST_SECONDS)
        self._failures.retry_all()
        while self._failures and not pauses.over:
            yield from self._round(job, is_last=True)
            yield Chunk("", b"", pauses.next())
        if self._failures:
            more = f"try again later with `{self._command(job)}`"
            self._client.say(f"warning: some output of job {job.name!r} could not be read; {more}")
        absent = []
        for task in select_tasks(job, self._which):
            output = self._outputs.get((job.attempt, task.label, task.attempt, task.log))
            if task.launched and output and output.log.is_absent:
                absent.append(task.label)
        if absent:
            self._client.say(f"warning: the cluster has no logs of {', '.join(absent[:8])}")


def select_tasks(job: JobInfo, which: LogChoice) -> list[TaskInfo]:
    """Return the selected tasks; a waiting job has none yet."""
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


class LineSplitter:
    """Splits each task's output into whole lines; only the end of a very long line is kept."""

    def __init__(self) -> None:
        self._rest: dict[str, bytearray] = {}

    def feed(self, chunk: Chunk) -> Iterator[Chunk]:
        """Take a chunk and yield the lines that are complete now."""
        rest = self._rest.setdefault(chunk.task, bytearray())
        *whole, last = chunk.data.split(b"\n")
        if whole:
            whole[0] = _last_bytes(rest) + whole[0]
            rest.clear()
        rest += last
        if len(rest) > 2 * LONGEST_LINE:
            rest[:] = _last_bytes(rest)
        return (Chunk(chunk.task, line + b"\n") for line in whole)

    def end(self) -> Iterator[Chunk]:
        """Yield the unfinished lines."""
        return (Chunk(task, _last_bytes(rest) + b"\n") for task, rest in self._rest.items() if rest)


def _last_bytes(rest: bytearray) -> bytes:
    return bytes(memoryview(rest)[-LONGEST_LINE:])


def split_lines(chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    """Yield the lines of each task's output as they are complete, and the unfinished ones at the end."""
    splitter = LineSplitter()
    for chunk in chunks:
        yield from splitter.feed(chunk)
    yield from splitter.end()


def strip_control_characters(chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    """Remove terminal control characters from chunks."""
    filters: dict[str, PlainBytes] = {}
    for chunk in chunks:
        data = filters.setdefault(chunk.task, PlainBytes()).feed(chunk.data)
        if data or chunk.pause:
            yield dataclasses.replace(chunk, data=data)
    yield from (Chunk(task, one.feed(b"", final=True)) for task, one in filters.items())


def add_times(chunks: Iterable[Chunk], say: Callable[[str], object]) -> Iterator[Chunk]:
    """Put the time at which it was written before each line; report output without times."""
    unfinished = set[str]()
    are_known = None
    for chunk in chunks:
        if not chunk.data:
            yield chunk
            continue
        if are_known is None and chunk.written.time is None:
            say("warning: no times were recorded for this output")
        are_known = are_known or chunk.written.time is not None
        data = _add_time(chunk, chunk.task in unfinished) if are_known else chunk.data
        (unfinished.discard if chunk.data.endswith((b"\n", b"\r")) else unfinished.add)(chunk.task)
        yield dataclasses.replace(chunk, data=data)


def _add_time(chunk: Chunk, is_unfinished: bool) -> bytes:
    time = f"{format_time(chunk.written.time)} ".encode()
    data = chunk.data.replace(b"\r\n", b"\n")
    more = data[:-1].replace(b"\n", b"\n" + time).replace(b"\r", b"\r" + time)
    return (b"" if is_unfinished else time) + more + data[-1:]


def add_labels(chunks: Iterable[Chunk], coloured: bool = False) -> Iterator[bytes]:
    """Yield the bytes to show: unchanged for one task, in labelled lines for several."""
    labels = Labels(coloured)
    for chunk in chunks:
        data = labels.feed(chunk.task, chunk.data) if chunk.task else chunk.data or labels.pause()
        if data:
            yield data
    last = labels.end()
    if last:
        yield last


class Labels:
    """Puts labels before lines.

    Text that ends with a carriage return is written at once, so that progress bars redraw; when another task
    writes, the unfinished line is ended first.
    """

    def __init__(self, coloured: bool = False) -> None:
        self._coloured = coloured
        self._labels: dict[str, bytes] = {}
        self._waiting: dict[str, bytearray] = {}
        self._bars = set[str]()  # tasks whose last line ended with a carriage return
        self._cut = set[str]()  # tasks whose line was ended for another task
        self._writer = ""  # task of the unfinished line
        self._is_returned = False  # whether the cursor is at its start

    def feed(self, task: str, data: bytes) -> bytes:
        """Take a task's output and return what can be written now."""
        waiting = self._waiting.setdefault(task, bytearray())
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        written = b""
        if end:
            written = self._segments(task, bytes(waiting) + data[:end])
            waiting.clear()
            (self._bars.add if data[end - 1 : end] == b"\r" else self._bars.discard)(task)
        waiting += data[end:]
        if len(waiting) >= LONGEST_PART:
            written += self._write(task, bytes(waiting))
            waiting.clear()
        return written

    def pause(self) -> bytes:
        """Return unfinished progress bars, to be shown during a pause."""
        return self._rest(self._bars)

    def end(self) -> bytes:
        """Return all unfinished lines and a final newline."""
        last = self._rest(self._waiting)
        return last + (b"\n" if self._writer else b"")

    def _rest(self, tasks: Iterable[str]) -> bytes:
        found = [(task, self._waiting[task]) for task in self._waiting if task in tasks]
        written = b"".join(self._write(task, bytes(waiting)) for task, waiting in found if waiting)
        for _, waiting in found:
            waiting.clear()
        return written

    def _segments(self, task: str, data: bytes) -> bytes:
        """Label finished lines; after the first one this is a plain replacement."""
        data, written, at = data.replace(b"\r\n", b"\n"), b"", 0
        while not written and at < len(data):
            found = _SEGMENT.match(data, at)
            assert found
            written, at = self._write(task, *found.groups()), found.end()
        if at == len(data):
            return written
        label, last = self._label(task), data[-1:]
        self._writer, self._is_returned = (task, True) if last == b"\r" else ("", False)
        more = data[at:-1].replace(b"\n", b"\n" + label).replace(b"\r", b"\r" + label)
        return written + label + more + last

    def _write(self, task: str, text: bytes, end: bytes = b"") -> bytes:
        """Return one line, or a part of it, with its label where needed."""
        is_same_task = self._writer == task
        was_cut = task in self._cut
        self._cut.discard(task)
        if not text and not is_same_task and (was_cut or end == b"\r"):
            return b""  # its line is already ended, or there is nothing to redraw
        before = b"\n" if self._writer and not is_same_task else b""
        if before:
            self._cut.add(self._writer)
        has_label = not is_same_task or (self._is_returned and bool(text))
        self._writer = "" if end == b"\n" else task
        self._is_returned = end == b"\r"
        return before + (self._label(task) if has_label else b"") + text + end

    def _label(self, task: str) -> bytes:
        if task not in self._labels:
            label, number = f"[{one_line(task)}]", COLOURS[len(self._labels) % len(COLOURS)]
            shown = f"\x1b[{number}m{label}\x1b[0m" if self._coloured else label
            self._labels[task] = f"{shown} ".encode()
        return self._labels[task]


def merge_jobs(steps: Mapping[str, Iterator[Chunk]]) -> Iterator[Chunk]:
    """Yield the output of all jobs as it arrives, labelled with their names; each job keeps its pauses.

    An error of one job is raised when the others have been read.
    """
    due = dict.fromkeys(steps, 0.0)
    problem: ApiError | None = None
    while due:
        name = min(due, key=lambda one: due[one])
        if (pause := due.pop(name) - time.monotonic()) > 0:
            yield Chunk("", b"", pause)
        try:
            for chunk in steps[name]:
                if chunk.data:
                    yield dataclasses.replace(chunk, task=f"{name}/{chunk.task}" if chunk.task else name)
                if chunk.pause:
                    due[name] = time.monotonic() + chunk.pause
                    break
        except ApiError as err:
            problem = problem or err
    if problem:
        raise problem


def read_lines(
    client: Backend,
    name: str,
    which: LogChoice,
    follow: bool = False,
    lines: int | None = None,
    plain: bool = False,
) -> Iterator[str]:
    """Yield the lines of a job's output, so far or until it ends."""
    steps = output_steps(client, name, which, follow, lines, None, plain)
    steps = add_times(steps, client.say) if which.timed else steps
    for line in split_lines(sleep_between(steps)):
        yield line.text


class FailedReads:
    """Logs that could not be read, and when to try again."""

    def __init__(self, say: Callable[[str], object]) -> None:
        self._say = say
        self._causes = set[str]()
        self._failed: dict[Hashable, tuple[int, float]] = {}  # tries so far, and when the next is due
        self._round = time.monotonic()

    def __bool__(self) -> bool:
        return bool(self._failed)

    def __contains__(self, log: Hashable) -> bool:
        return log in self._failed

    def begin_round(self) -> None:
        self._round = time.monotonic()

    @property
    def is_round_over(self) -> bool:
        return time.monotonic() - self._round > LONGEST_ROUND

    def is_due(self, log: Hashable) -> bool:
        return log not in self._failed or self._failed[log][1] <= time.monotonic()

    def retry_all(self) -> None:
        """Make all logs due now."""
        self._failed = dict.fromkeys(self._failed, (0, 0.0))

    def add(self, log: Hashable, description: str, err: PaiError) -> None:
        """Schedule another try; warn if the cause is new."""
        number = self._failed.get(log, (0, 0.0))[0]
        self._failed[log] = number + 1, time.monotonic() + (POLICY.pause(number) or 0.0)
        cause = str(err)
        if cause not in self._causes:
            self._causes.add(cause)
            self._say(f"warning: cannot read {description}: {cause}; still following the job")

    def discard(self, log: Hashable) -> None:
        self._failed.pop(log, None)
