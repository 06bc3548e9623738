"""A task's log in memory, which may grow."""

from __future__ import annotations

from collections.abc import Iterator


class MemoryLog:
    """A ``TaskLog``; without ``has_parts``, one that can only be read from its beginning."""

    is_absent = False

    def __init__(self, data: bytes = b"", has_parts: bool = True) -> None:
        self.data, self.has_parts = data, has_parts
        self.position = 0
        self.read_bytes = 0

    def read(self) -> Iterator[bytes]:
        found = self.data[self.position :]
        self.position = len(self.data)
        self.read_bytes += len(found)
        yield from filter(None, [found])

    def rewind(self) -> None:
        self.position = 0

    def size(self) -> int | None:
        return len(self.data) if self.has_parts else None

    def read_range(self, start: int, stop: int) -> bytes:
        found = self.data[start:stop]
        self.read_bytes += len(found)
        return found

    def read_end(self, length: int) -> tuple[int, bytes] | None:
        start = max(0, len(self.data) - length)
        return (start, self.read_range(start, len(self.data))) if self.has_parts else None

    def seek(self, offset: int) -> None:
        self.position = offset
