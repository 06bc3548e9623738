"""Record what a task uses over time: processors, memory and GPUs, in a bounded file next to its logs.

A line of ``logs/usage`` has the beginning of a row (ms since 1970), its length in seconds, and the mean and
the maximum of each value, as ``NAME=MEAN:MAXIMUM``: ``cpu`` in cores, ``memory`` in bytes, and for each GPU
``gpu0`` in percent and ``gpu0.mb`` in MB. When there are ROWS rows, each two of them become one, and further
rows are twice as long. If nothing could be measured, a line that begins with NOTE says why.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Mapping

from . import files, processes
from .memory import MemoryGroup

FILE = "usage"  # in the folder of the logs
NOTE = "# "
BLIND = "no process of it was seen on this machine"
ROWS = 1440
FIRST_SECONDS = 2.0  # of a row, until there are too many
LONGEST_PAUSE = 10.0  # seconds between two samples
COST_SHARE = 2000  # a pause is at least this many times as long as a sample took
MOST_COUNTED = 4 << 30  # bytes of processes whose shared pages are counted, which takes about 50 ms
MOST_BYTES = 1 << 20  # of the file
MOST_GPUS = 64
GPU_SECONDS = 5
GPU_TRIES = 3  # without any output
GPU_QUERY = "--query-gpu=index,utilization.gpu,memory.used"
CONTAINER_COMMAND = ("/bin/sh", "/usr/local/pai/runtime/entry")
"""What the first process of a container runs; the uid of the task follows, by which it is found."""
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


class Row:
    """The mean and the maximum of values, by name, from ``time`` on (ms since 1970)."""

    def __init__(self, time: int, seconds: float, values: Mapping[str, tuple[float, float]]) -> None:
        self.time, self.seconds, self.values = time, seconds, values

    def __str__(self) -> str:
        pairs = (f" {name}={mean:.10g}:{most:.10g}" for name, (mean, most) in self.values.items())
        return f"{self.time} {self.seconds:.3f}{''.join(pairs)}"


def parse_rows(text: str) -> list[Row]:
    """Return the rows in a file, which the task may have changed: other lines are left out."""
    found = []
    for line in text.split("\n"):
        with contextlib.suppress(ValueError):
            when, seconds, *pairs = line.split()
            values = dict(map(_parse_pair, pairs[: 2 + 2 * MOST_GPUS]))
            numbers = [float(seconds), *(number for pair in values.values() for number in pair)]
            if all(0 <= number < 1e18 for number in numbers) and len(when) < 16 and 0 < numbers[0] < 1e12:
                found.append(Row(int(when), numbers[0], values))
    return found


def parse_note(text: str) -> str:
    """Return why there are no rows in a file; empty if it does not say."""
    lines = (line for line in text.split("\n") if line.startswith(NOTE))
    return next(lines, "").removeprefix(NOTE)


def _parse_pair(word: str) -> tuple[str, tuple[float, float]]:
    name, numbers = word.split("=")
    mean, most = numbers.split(":")
    return name, (float(mean), float(most))


def merge(rows: list[Row]) -> Row:
    """Return one row for several, in order; a value may be missing in some of them."""
    values = {}
    for name in {name: 0 for row in rows for name in row.values}:
        known = [(row.seconds, *row.values[name]) for row in rows if name in row.values]
        mean = sum(seconds * mean for seconds, mean, _ in known) / sum(seconds for seconds, *_ in known)
        values[name] = (round(mean, 3), max(most for *_, most in known))
    return Row(rows[0].time, sum(row.seconds for row in rows), values)


def thin_out(rows: list[Row], most: int) -> list[Row]:
    """Merge neighbours such that at most this many rows are left."""
    size = -(-len(rows) // max(1, most))
    return [merge(rows[at : at + size]) for at in range(0, len(rows), size)] if size > 1 else rows


class UsageRecorder:
    """Takes samples, and writes rows; nothing happens before ``begin``."""

    def __init__(
        self,
        path: str = f"logs/{FILE}",
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], int] = files.milliseconds,
        cost: Callable[[], float] = time.process_time,
    ) -> None:
        """``wall`` returns the time in ms since 1970, ``cost`` the seconds that this process has used."""
        self.path, self.clock, self.wall, self.cost = path, clock, wall, cost
        self.due: float | None = None  # when to take the next sample
        self.row_seconds = FIRST_SECONDS
        self.rows = 0
        self.is_blind = False  # a sample had no values
        self.samples: list[Row] = []  # of the next row
        self.cost_before = 0.0  # seconds that the sample before the last took

    def begin(self, measure: Callable[[float], dict[str, float]]) -> None:
        """Begin to call ``measure`` with the seconds since the last sample; it returns values by name."""
        self.measure, self.last, self.began = measure, self.clock(), self.wall()
        self.due = self.last + self.row_seconds

    def advance(self) -> None:
        """Take a sample if it is time to, and write a row once there are enough."""
        if self.due is None or (now := self.clock()) < self.due:
            return
        before, seconds = self.cost(), now - self.last
        values = self.measure(seconds)
        self.is_blind = not values
        self.samples.append(Row(self.began, seconds, {name: (one, one) for name, one in values.items()}))
        self.last, self.began = now, self.wall()
        if sum(row.seconds for row in self.samples) >= 0.95 * self.row_seconds:
            self.finish()
        self.due = now + self._pause(self.cost() - before)

    def _pause(self, cost: float) -> float:
        """Return the seconds until the next sample; one slow sample alone does not count."""
        usual, self.cost_before = min(cost, self.cost_before), cost
        return max(min(self.row_seconds, LONGEST_PAUSE), COST_SHARE * usual)

    def end(self) -> None:
        """Write the rest, or that no process of the task was seen."""
        self.finish()
        if self.is_blind and not self.rows:
            with contextlib.suppress(OSError):
                files.write_whole(self.path, f"{NOTE}{BLIND}\n")

    def finish(self) -> None:
        """Write the samples that are in no row yet."""
        row = merge(self.samples) if self.samples else None
        self.samples = []
        if row and row.values:
            with contextlib.suppress(OSError):  # the disk is full, or the task has removed the folder
                self._write(row)

    def _write(self, row: Row) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        handle = os.open(self.path, flags, 0o600)
        try:
            files.write_all(handle, f"{row}\n".encode())
        finally:
            os.close(handle)
        self.rows += 1
        if self.rows >= ROWS:
            self._halve()

    def _halve(self) -> None:
        """Merge each two rows; the file is read again rather than kept in memory."""
        self.row_seconds *= 2
        with open(self.path, "rb") as file:
            rows = parse_rows(file.read(MOST_BYTES).decode("ascii", "replace"))
        rows = thin_out(rows, ROWS // 2)
        files.write_whole(self.path, "".join(f"{row}\n" for row in rows))
        self.rows = len(rows)


class TaskMeter:
    """Measures the processes of a task, which are children of this process, and its GPUs."""

    def __init__(
        self,
        reaped: Callable[[], float],
        skipped: Callable[[], set[int]],
        group: MemoryGroup | OtherGroups | None,
    ) -> None:
        """``reaped`` returns the CPU seconds of ended children; ``skipped`` are children of other use."""
        self.reaped, self.skipped, self.group = reaped, skipped, group
        self.gpus: GpuReader | None = None
        self.used = 0.0  # CPU seconds at the last sample
        self.own_part = 1.0  # of the memory of all processes, if what they share counts once
        self.count_at = 0.0  # when to count that again

    def is_own(self, pid: int) -> bool:
        """Whether an ended child was the process that reads the GPUs."""
        if self.gpus is None or pid != self.gpus.pid:
            return False
        self.gpus.pid = 0
        return True

    def read(self, seconds: float) -> dict[str, float]:
        """Return the values since the last sample."""
        found = self._processes(seconds)
        return {**found, **self.gpus.read()} if self.gpus else found

    def _processes(self, seconds: float) -> dict[str, float]:
        cpu, memory = read_group(self.group) if self.group else (None, None)
        if cpu is None or memory is None:
            pids = descendants(self._first())
            times, resident = read_processes(pids)
            if not resident:  # they have ended, or this system does not show them
                return {}
            cpu = self.reaped() + times if cpu is None else cpu
            memory = self._without_shared(pids, resident) if memory is None else memory
        cores, self.used = max(0.0, cpu - self.used) / seconds, max(cpu, self.used)
        return {"cpu": round(cores, 3), "memory": memory}

    def _first(self) -> list[int]:
        """Return the processes of the task whose parents are not in it."""
        skipped = self.skipped() | ({self.gpus.pid} if self.gpus else set())
        return [pid for pid in processes.children() if pid not in skipped]

    def _without_shared(self, pids: list[int], resident: int) -> int:
        """Return the memory of processes; what they share is counted now and then, as that takes long."""
        if len(pids) == 1:
            return resident
        if time.monotonic() >= self.count_at and 0 < resident <= MOST_COUNTED:
            before = time.process_time()
            self.own_part = min(1.0, sum(map(_share, pids)) / resident)
            self.count_at = time.monotonic() + COST_SHARE * (time.process_time() - before)
        return int(resident * self.own_part)


class ContainerMeter(TaskMeter):
    """Measures the container of a task, whose processes may belong to a daemon, and its GPUs."""

    def __init__(self, uid: bytes) -> None:
        super().__init__(lambda: 0.0, set, None)
        self.command = "".join(f"{word}\0" for word in (*CONTAINER_COMMAND, os.fsdecode(uid)))
        self.pid = 0  # of the container's first process, once it is found

    def _processes(self, seconds: float) -> dict[str, float]:
        if not self.pid:
            self.pid = min(filter(self._is_first, processes.processes()), default=0)
            self.group = OtherGroups(self.pid) if self.pid else None
        return super()._processes(seconds) if self.pid else {}

    def _first(self) -> list[int]:
        return [self.pid]

    def _is_first(self, pid: int) -> bool:
        with contextlib.suppress(OSError):
            return _read(f"/proc/{pid}/cmdline") == self.command
        return False


class OtherGroups:
    """The control groups of a process that this process is not in, of versions 1 and 2."""

    def __init__(self, pid: int) -> None:
        self.folders: list[str] = []
        with contextlib.suppress(OSError):
            own, other = group_paths("self"), group_paths(str(pid))
            self.folders = [
                f"{point}{other[name]}"
                for name, point in group_mounts()
                if name in other and other[name] != own.get(name)
            ]

    def read(self, name: str) -> str:
        for folder in self.folders:
            with contextlib.suppress(FileNotFoundError):
                return _read(f"{folder}/{name}")
        raise FileNotFoundError(name)


def group_paths(pid: str) -> dict[str, str]:
    """Return the control groups of a process by controller; that of version 2 has an empty name."""
    lines = (line.split(":", 2) for line in _read(f"/proc/{pid}/cgroup").split("\n") if line)
    return {name: path for _, names, path in lines for name in names.split(",")}


def group_mounts(mounts: str = "/proc/self/mountinfo") -> list[tuple[str, str]]:
    """Return where the hierarchies of control groups are mounted, by controller."""
    found = []
    with open(mounts, errors="surrogateescape", newline="\n") as file:
        for line in file:
            head, _, tail = line.rstrip("\n").partition(" - ")
            kind, _, options = tail.split(" ", 2)
            if kind in ("cgroup", "cgroup2"):
                names = options.split(",") if kind == "cgroup" else [""]
                found += [(name, head.split(" ")[4]) for name in names]
    return found


def read_group(group: MemoryGroup | OtherGroups) -> tuple[float | None, int | None]:
    """Return CPU seconds and bytes of memory, without caches, of a control group; None if unknown."""
    cpu = memory = None
    with contextlib.suppress(OSError, ValueError, KeyError):
        cpu = int(_counters(group, "cpu.stat")["usage_usec"]) / 1e6
    if cpu is None:
        with contextlib.suppress(OSError, ValueError):
            cpu = int(group.read("cpuacct.usage")) / 1e9
    for name, cache in (
        ("memory.current", "inactive_file"),
        ("memory.usage_in_bytes", "total_inactive_file"),
    ):
        with contextlib.suppress(OSError, ValueError, KeyError):
            memory = max(0, int(group.read(name)) - int(_counters(group, "memory.stat")[cache]))
    return cpu, memory


def _counters(group: MemoryGroup | OtherGroups, name: str) -> dict[str, str]:
    return dict(line.split() for line in group.read(name).splitlines())


def descendants(first: list[int]) -> list[int]:
    """Return processes and their descendants."""
    found, left = [], list(first)
    while left:
        pid = left.pop()
        found.append(pid)
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{pid}/task"):
                left += map(int, _read(f"/proc/{pid}/task/{thread}/children").split())
    return found


def read_processes(pids: list[int]) -> tuple[float, int]:
    """Return the CPU seconds of processes, with those of their ended children, and their resident bytes."""
    ticks = pages = 0
    for pid in pids:
        with contextlib.suppress(OSError, IndexError, ValueError):
            words = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
            ticks += sum(map(int, words[11:15]))
            pages += int(words[21])
    return ticks / TICKS, pages * PAGE


def _share(pid: int) -> int:
    """Return the bytes of a process, with its part of those that it shares."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        return int(_read(f"/proc/{pid}/smaps_rollup").split("\nPss:", 1)[1].split(None, 1)[0]) << 10
    return read_processes([pid])[1]


def _read(path: str) -> str:
    """Return the text of a file of the kernel; ``open`` would take twice as long."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(handle, 1 << 16).decode("ascii", "replace")
    finally:
        os.close(handle)


class GpuReader:
    """Runs nvidia-smi next to the task, which starts slowly but then reports every few seconds."""

    def __init__(self, devices: str, variables: Mapping[bytes, bytes]) -> None:
        self.devices, self.variables = devices, variables
        self.pid, self.pipe = 0, -1
        self.tries = GPU_TRIES
        self.rest = b""

    def read(self) -> dict[str, float]:
        """Return the means of what was reported since the last call; start the program if it has ended."""
        if self.pipe < 0:
            self._start()
            return {}
        try:
            data = os.read(self.pipe, 1 << 16)
        except BlockingIOError:
            return {}
        if not data:
            os.close(self.pipe)
            self.pipe = -1
        *lines, self.rest = (self.rest + data).split(b"\n")
        found = average_gpus(lines)
        self.tries = GPU_TRIES if found else self.tries
        return found

    def _start(self) -> None:
        program = find_program("nvidia-smi", os.fsdecode(self.variables.get(b"PATH", b"")))
        if not program or not self.tries:
            return
        self.tries -= 1
        self.pipe, end = os.pipe()
        os.set_blocking(self.pipe, False)
        nothing = os.open(os.devnull, os.O_WRONLY)
        words = [program, "-i", self.devices, GPU_QUERY, "--format=csv,noheader,nounits"]
        words += ["-l", str(GPU_SECONDS)]
        self.pid = processes.start_process(words, self.variables, ".", end, nothing)
        os.close(end)
        os.close(nothing)


def average_gpus(lines: list[bytes]) -> dict[str, float]:
    """Return the means of nvidia-smi's lines: index, percent and MB; other lines are error messages."""
    values: dict[str, list[float]] = {}
    for line in lines:
        words = line.decode("ascii", "replace").replace(" ", "").split(",")
        if len(words) == 3 and words[0].isdecimal() and len(words[0]) < 5 and int(words[0]) < MOST_GPUS:
            for name, word in zip((f"gpu{words[0]}", f"gpu{words[0]}.mb"), words[1:], strict=True):
                if word.isdecimal() and len(word) < 10:  # some GPUs do not report it
                    values.setdefault(name, []).append(float(word))
    return {name: math.fsum(found) / len(found) for name, found in values.items()}


def find_program(name: str, path: str) -> str:
    """Return the path of a program; empty if there is none."""
    candidates = (os.path.join(folder, name) for folder in path.split(":") if folder)
    return next((one for one in candidates if os.access(one, os.X_OK) and os.path.isfile(one)), "")
