"""Long logs: their last lines, and lines by number, without reading more than needed."""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left

from openpai_tasks.backends.base import TaskLog
from openpai_tasks.errors import NotFound
from openpai_tasks.lazy_dataclass import dataclass

BLOCK = 1 << 20
"""Bytes between two places whose line number is remembered."""
REQUEST = 8 * BLOCK
"""Bytes that are read at once to count lines."""
MOST_BYTES = 4 << 20
"""Bytes of the lines that are returned at once."""
END = 1 << 18
"""Bytes at the end of a log that are read first, and mostly have the last lines."""
LONGEST = 64 << 10
"""Bytes of a line that are returned."""


@dataclass(frozen=True)
class LinesPart:
    """Some lines of a log in a row; ``offset`` is where each of them begins."""

    first: int  # number of the first one, from 0
    lines: tuple[bytes, ...]
    offsets: tuple[int, ...]


class NumberedLog:
    """A log whose lines are read by number; the lines before each block are counted once."""

    def __init__(self, log: TaskLog) -> None:
        self._log = log
        self._before = array("Q", [0])  # lines that end before each block
        self._lock = threading.Lock()

    def size(self) -> int:
        """Return the size in bytes; raise NotFound for a log that can only be read from its beginning."""
        size = self._log.size()
        if size is None:
            raise NotFound("the cluster does not serve parts of this log", 404)
        return size

    def count(self, stop: int) -> int:
        """Return how many lines end before the offset ``stop``."""
        block = stop // BLOCK
        with self._lock:
            while len(self._before) <= block and self._count_more(stop):
                pass
        block = min(block, len(self._before) - 1)
        rest = self._log.read_range(block * BLOCK, stop) if stop > block * BLOCK else b""
        return self._before[block] + rest.count(b"\n")

    def _count_more(self, stop: int) -> bool:
        """Count the lines of further blocks; return whether there was a whole one."""
        begin = (len(self._before) - 1) * BLOCK
        data = self._log.read_range(begin, min(begin + REQUEST, stop // BLOCK * BLOCK))
        for at in range(0, len(data) - BLOCK + 1, BLOCK):
            self._before.append(self._before[-1] + data.count(b"\n", at, at + BLOCK))
        return len(data) >= BLOCK

    def total(self) -> int:
        """Return the number of lines; one without an end counts."""
        size = self.size()
        is_open = size > 0 and self._log.read_range(size - 1, size) != b"\n"
        return self.count(size) + is_open

    def read(self, first: int, count: int) -> LinesPart:
        """Return up to ``count`` lines from a number on; fewer if they are long."""
        begin = self._begin_of(first)
        if begin is None:
            return LinesPart(first, (), ())
        data = self._read_lines(begin, count)
        lines = data.split(b"\n")
        if not lines[-1]:
            lines.pop()
        offsets = array("Q")
        for line in lines[:count]:
            offsets.append(begin)
            begin += len(line) + 1
        return LinesPart(first, tuple(shorten(line) for line in lines[:count]), tuple(offsets))

    def _read_lines(self, begin: int, count: int) -> bytes:
        """Read whole lines, until there are so many or a limit is reached; of a very long line, a part."""
        data = b""
        while len(data) < MOST_BYTES and data.count(b"\n") < count:
            piece = self._log.read_range(begin + len(data), begin + len(data) + BLOCK // 4)
            data += piece
            if not piece:
                return data
        return data[: data.rfind(b"\n") + 1] or data

    def _begin_of(self, line: int) -> int | None:
        """Return the offset of a line's first byte; None if the log has fewer lines."""
        if line == 0:
            return 0
        size = self.size()
        with self._lock:
            while self._before[-1] < line and self._count_more(size):
                pass
        block = bisect_left(self._before, line) - 1
        data = self._log.read_range(block * BLOCK, (block + 1) * BLOCK)
        parts = data.split(b"\n", line - self._before[block])
        if len(parts) <= line - self._before[block]:
            return None
        return block * BLOCK + len(data) - len(parts[-1])


def shorten(line: bytes) -> bytes:
    """Cut a long line; of a progress bar, the latest state is kept."""
    if len(line) <= LONGEST:
        return line
    return line[-LONGEST:].partition(b"\r")[2] if b"\r" in line[-LONGEST:-1] else line[:LONGEST]


def read_last_lines(log: TaskLog, count: int, most: int | None = None) -> tuple[int, bytes] | None:
    """Return the last lines, at most ``most`` bytes, and where they begin; None if one request is too few."""
    length = END if most is None else min(END, most)
    found = log.read_end(length)
    if found is None:
        return None
    start, data = found
    end = max(0, len(data) - 1)  # the end of the last line does not begin another one
    if count == 0:
        begin = len(data)
    elif data.count(b"\n", 0, end) >= count:
        begin = len(data[:end].rsplit(b"\n", count)[0]) + 1
    elif start == 0:
        begin = 0
    elif length == most:
        begin = data.find(b"\n", 0, LONGEST) + 1
    else:
        return None
    return start + begin, data[begin:]


def find_last_lines(log: TaskLog, count: int, most: int | None = None) -> int | None:
    """Return where the last lines begin, at most ``most`` bytes; None if this cannot be found by parts."""
    size = log.size()
    if size is None or count == 0:
        return size
    begin, length, left = size, END, count
    least = 0 if most is None else max(0, size - most)
    while begin > least:
        stop, begin = begin, max(least, begin - length)
        data = log.read_range(begin, stop)
        end = len(data) - (stop == size)  # the end of the last line does not begin another one
        found = data.count(b"\n", 0, end)
        if found >= left:
            return begin + len(data[:end].rsplit(b"\n", left)[0]) + 1
        left -= found
        length = min(2 * length, REQUEST)
    if begin == 0:
        return 0
    return begin + log.read_range(begin, begin + LONGEST).find(b"\n") + 1
