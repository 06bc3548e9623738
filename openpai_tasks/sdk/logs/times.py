"""When a task wrote each part of its output, and to which stream, as the runner of its cluster records it.

The log ``times`` has records of three numbers: the bytes of stdout and of stderr before the part, and the
time in milliseconds times two, plus one for stderr (``server/engines/runner/files.py``).
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from datetime import datetime

from openpai_tasks.backends.base import Backend, TaskLog
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol.models import JobInfo, TaskInfo

LOG = "times"
LATEST = 253402128000_000  # milliseconds, late in the year 9999
AT_ONCE = 4096
"""Records that are read at once."""
_RECORD = struct.Struct("<QQQ")


@dataclass(frozen=True)
class Written:
    """When something was written, in milliseconds since 1970 if that is known, and whether to stderr."""

    time: int | None = None
    is_error: bool = False


UNKNOWN = Written()


class OutputTimes:
    """The times of one task's log; quickest if it is read in order."""

    def __init__(self, log: TaskLog, stream: str) -> None:
        self._log, self._stream = log, stream
        self._offsets: list[int] = []
        self._written: list[Written] = []
        self._next = 0  # number of the first record that is not read
        self.is_absent = False

    def split(self, offset: int, data: bytes) -> Iterator[tuple[Written, bytes]]:
        """Yield the data, which begins at ``offset`` of the log, in parts that were written together."""
        if not self.is_absent:
            self._load(offset, offset + len(data))
        at, stop = offset, offset + len(data)
        index = bisect_right(self._offsets, offset) - 1
        while at < stop:
            following = self._offsets[index + 1] if index + 1 < len(self._offsets) else stop
            end = min(max(at, following), stop)
            if end > at:
                yield self._written[index] if index >= 0 else UNKNOWN, data[at - offset : end - offset]
            at, index = end, index + 1

    def at(self, offsets: Iterable[int]) -> Iterator[Written]:
        """Yield what is known about increasing offsets."""
        places = list(offsets)
        if places and not self.is_absent:
            self._load(places[0], places[-1] + 1)
        for place in places:
            index = bisect_right(self._offsets, place) - 1
            yield self._written[index] if index >= 0 else UNKNOWN

    def _load(self, offset: int, stop: int) -> None:
        """Read the records of a part of the log; those before it are dropped."""
        if not self._offsets or self._offsets[0] > offset:
            self._offsets, self._written, self._next = [], [], self._find(offset)
        while not self.is_absent and (not self._offsets or self._offsets[-1] < stop):
            begin, size = self._next * _RECORD.size, AT_ONCE * _RECORD.size
            data = self._log.read_range(begin, begin + size)
            count = len(data) // _RECORD.size
            passed = max(0, bisect_right(self._offsets, offset) - 1)
            del self._offsets[:passed], self._written[:passed]
            for record in _RECORD.iter_unpack(data[: count * _RECORD.size]):
                self._offsets.append(self._place(record))
                self._written.append(Written(min(record[2] >> 1, LATEST), bool(record[2] & 1)))
            self._next += count
            if count < AT_ONCE:
                return

    def _find(self, offset: int) -> int:
        """Return the number of a record at or before the offset, and not far from it."""
        size = self._log.size()
        self.is_absent = size is None
        low, high = 0, (size or 0) // _RECORD.size
        while high - low > AT_ONCE:
            middle = (low + high) // 2
            begin = middle * _RECORD.size
            data = self._log.read_range(begin, begin + _RECORD.size)
            is_before = len(data) == _RECORD.size and self._place(_RECORD.unpack(data)) <= offset
            low, high = (middle, high) if is_before else (low, middle)
        return low

    def _place(self, record: tuple[int, ...]) -> int:
        stdout, stderr, _ = record
        return {"stdout": stdout, "stderr": stderr}.get(self._stream, stdout + stderr)


def open_times(client: Backend, job: JobInfo, task: TaskInfo, stream: str) -> OutputTimes | None:
    """Open the times of a task's output; None if the cluster has only one log for each task."""
    if not client.capabilities.separate_streams:
        return None
    return OutputTimes(client.open_log(job, task, LOG, retries=False), stream)


def format_time(time: int | None) -> str:
    """Return the time as ISO 8601, in the zone of this machine; spaces if it is not known."""
    if time is None:
        return " " * 29
    return datetime.fromtimestamp(time / 1000).astimezone().isoformat(timespec="milliseconds")
