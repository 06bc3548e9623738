"""The log of a pod, copied to a file of this machine as it grows, exactly once.

Kubernetes keeps only the last part of a long log, and none of a deleted pod. Each line comes with its time,
but lines of the two streams may be out of order by a moment. The position file has the size of the copy, its
latest time, and how many of its lines are not older than the second before that. Rows of pod_usage.py in the
log go to another file.

An answer that ends may be incomplete, also within a line: when a node's kubelet ends, the API server ends the
answer as if that were all.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import AsyncGenerator, Iterable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import BinaryIO

from openpai_tasks.server.engines.kubernetes.api import KubeApi, KubeError, path, reading
from openpai_tasks.server.engines.kubernetes.pod_usage import MARK
from openpai_tasks.server.engines.process import write_file
from openpai_tasks.server.engines.runner.usage import MOST_BYTES

PIECE = 16384  # bytes after which a node splits a line
_TIME = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:\d\d) ")


class LogCopy:
    """The log of a container in a file, which is created with its first line."""

    def __init__(
        self,
        api: KubeApi,
        namespace: str,
        pod: str,
        container: str,
        file: Path,
        position: Path,
        usage_file: Path | None = None,
    ) -> None:
        self._api, self._namespace, self._pod, self._container = api, namespace, pod, container
        self._path, self._position, self._usage_file = file, position, usage_file
        self._rows: list[bytes] = []  # that are not in the file of usage yet
        self._size, self._time, self._count = 0, b"", 0  # what is known to be in the copy
        self._known, self._to_skip = b"", 0  # lines of an answer up to this time that are in the copy
        self._recent: dict[bytes, int] = {}  # lines of the copy by second, of the last two seconds
        self._last_rest = b""  # an incomplete line at the end of the last answer

    async def run(self, follow: bool) -> bool:
        """Append what is new; with ``follow``, until the container has ended.

        Return whether there may be more: another answer that has nothing new is the last one.
        """
        self._rows = []
        self._read_position()
        before = self._size, self._time, self._last_rest
        async with contextlib.aclosing(self._new_pieces(follow)) as pieces:
            with contextlib.ExitStack() as stack:
                file: BinaryIO | None = None
                async for data in pieces:
                    file = file or stack.enter_context(self._open())
                    rest = memoryview(data)
                    while rest:  # a disk that is nearly full takes a part
                        rest = rest[file.write(rest) :]
                    self._size += len(data)
                    self._write_position()
                    self._write_rows()
        return before != (self._size, self._time, self._last_rest)

    def _open(self) -> BinaryIO:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        file = open(handle, "wb", buffering=0)  # noqa: SIM115 - the caller closes it
        file.truncate(self._size)
        file.seek(self._size)
        return file

    def _write_rows(self) -> None:
        """Write what was used; rows for which there is no space are left out."""
        rows, self._rows = b"".join(self._rows), []
        if rows and self._usage_file:
            with contextlib.suppress(OSError), open(self._usage_file, "ab", 0, opener=_open_private) as file:
                before = file.tell()
                if before < MOST_BYTES and file.write(rows) < len(rows):
                    file.truncate(before)

    async def _new_pieces(self, follow: bool) -> AsyncGenerator[bytes, None]:
        """Yield the lines that are not in the copy, several at a time."""
        query = {"container": self._container, "timestamps": "true", "follow": "true" if follow else "false"}
        if self._time:
            query["sinceTime"] = f"{_second_before(self._time).decode()}Z"
        self._known, self._to_skip = self._time, self._count
        self._recent = {}
        rest = b""
        source = self._api.stream(path(self._namespace, "pods", self._pod, "log", **query))
        async with contextlib.aclosing(source) as data:
            async for piece in data:
                *lines, rest = (rest + piece).split(b"\n")
                if new := list(self._note(lines)):
                    yield b"".join(new)
        is_last_line = rest == self._last_rest and not follow
        self._last_rest = rest
        if rest and is_last_line and (new := list(self._note([rest], end=b""))):
            yield b"".join(new)

    def _note(self, lines: Iterable[bytes], end: bytes = b"\n") -> Iterator[bytes]:
        """Yield the texts of lines that are not in the copy, and note their times.

        The first lines of an answer are in it, but none after a time: an older part of the log may be gone.
        """
        for line in lines:
            when, text = _split(line)
            if not when:  # the node could not read on
                raise KubeError(text.decode("utf-8", "replace"))
            with reading():
                self._count_line(when)
            if self._to_skip and when <= self._known:
                self._to_skip -= 1
            elif self._usage_file and MARK in text:
                text, _, row = text.partition(MARK)
                self._rows.append(row + b"\n")
                yield text
            else:
                yield text + end if end else _without_time(when, text)

    def _count_line(self, when: bytes) -> None:
        second = when[:19]
        if second > self._time[:19]:
            oldest = _second_before(when)
            self._recent = {one: lines for one, lines in self._recent.items() if one >= oldest}
        self._time = max(self._time, when)
        self._recent[second] = self._recent.get(second, 0) + 1

    def _read_position(self) -> None:
        self._size, self._time, self._count = 0, b"", 0
        with contextlib.suppress(FileNotFoundError, ValueError):
            size, when, count = self._position.read_bytes().split()
            _second_before(when)
            if not 0 <= int(size) <= self._path.stat().st_size:
                return
            self._size, self._time, self._count = int(size), when, int(count)

    def _write_position(self) -> None:
        oldest = _second_before(self._time)
        self._count = sum(lines for second, lines in self._recent.items() if second >= oldest)
        write_file(self._position, f"{self._size} {self._time.decode()} {self._count}\n")


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def _second_before(when: bytes) -> bytes:
    moment = datetime.fromisoformat(when[:19].decode()) - timedelta(seconds=1)
    return moment.isoformat(timespec="seconds").encode()


def _split(line: bytes) -> tuple[bytes, bytes]:
    """Return the time of a line and its text; a long line has a time in front of each piece."""
    match = _TIME.match(line)
    if not match:
        return b"", line
    text = line[match.end() :]
    pieces = []
    while len(text) > PIECE and (found := _TIME.match(text, PIECE)):
        pieces.append(text[:PIECE])
        text = text[found.end() :]
    return _read_time(match), b"".join([*pieces, text])


def _read_time(match: re.Match[bytes]) -> bytes:
    return match[1] + (match[2] or b".").ljust(10, b"0")


def _without_time(when: bytes, text: bytes) -> bytes:
    """Return the end of a log without the time in it, if both streams end without a line break.

    A time that the task itself has printed is earlier than that of the line.
    """
    for match in _TIME.finditer(text):
        if _read_time(match) >= when:
            return text[: match.start()] + text[match.end() :]
    return text
