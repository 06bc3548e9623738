"""Search a job's output for a text, part by part while it is read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.sdk.logs.output import Chunk
from openpai_tasks.text.plain import PlainBytes

BLOCK = 1 << 20
"""Bytes that are searched at once."""
SHOWN = 300
"""Characters of a line that was found."""


@dataclass(frozen=True)
class FoundLine:
    """A line with the text that was searched for."""

    task: str  # "" when only one task is searched
    number: int  # from 1
    text: str  # the part around the match


@dataclass(frozen=True)
class SearchStep:
    """Lines that were found in a further part of the output."""

    found: tuple[FoundLine, ...]
    searched: int  # bytes so far


def search_lines(chunks: Iterable[Chunk], words: str) -> Iterator[SearchStep]:
    """Yield the lines that contain the words, part by part; capitals matter if the words have some."""
    search, searched = TextSearch(words, ""), 0
    for chunk in chunks:
        if chunk.task != search.task:
            yield SearchStep(tuple(search.found(is_end=True)), searched)
            search = TextSearch(words, chunk.task)
        searched += len(chunk.data)
        if search.feed(chunk.data) >= BLOCK:
            yield SearchStep(tuple(search.found()), searched)
    yield SearchStep(tuple(search.found(is_end=True)), searched)


class TextSearch:
    """Searches the output of one task for a text, in blocks of whole lines."""

    def __init__(self, words: str, task: str) -> None:
        self.task = task
        self._folds = words == words.lower()
        self._words, self._bytes = words, words.encode("utf-8", "replace")
        self._held: list[bytes] = []
        self._size = 0
        self._line = 1  # number of the first line that is held
        self._last = 0  # the line that was found last

    def feed(self, data: bytes) -> int:
        """Take output; return how many bytes were not searched yet."""
        self._held.append(data)
        self._size += len(data)
        return self._size

    def found(self, is_end: bool = False) -> Iterator[FoundLine]:
        """Yield the lines that were found; an unfinished one is kept, unless this is the end."""
        data = b"".join(self._held)
        # of a line that fills a block, only what may be the beginning of a match is kept
        end = len(data) if is_end else data.rfind(b"\n") + 1 or max(0, len(data) - 2 * len(self._bytes))
        self._held, self._size = [data[end:]], len(data) - end
        for line, text in self._matches(data[:end]):
            if self._line + line != self._last:
                self._last = self._line + line
                yield FoundLine(self.task, self._last, self._excerpt(text))
        self._line += data.count(b"\n", 0, end)

    def _matches(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield the number, from 0, and the bytes of each line with a match."""
        text, lines, line, since = self._fold(data), list[bytes](), 0, 0
        at = text.find(self._bytes)
        while at >= 0:
            line += text.count(b"\n", since, at)
            lines = lines or data.split(b"\n")
            yield line, lines[line]
            since = text.find(b"\n", at)
            at = text.find(self._bytes, since) if since >= 0 else -1

    def _fold(self, data: bytes) -> bytes:
        """Return the bytes in lower case, if capitals do not matter; the lines stay the same."""
        if not self._folds:
            return data
        return data.lower() if self._words.isascii() else data.decode("utf-8", "replace").lower().encode()

    def _excerpt(self, line: bytes) -> str:
        text = PlainBytes().feed(line, final=True).decode().replace("\n", " ").strip()
        at = (text.lower() if self._folds else text).find(self._words)
        begin = max(0, at - SHOWN // 3) if len(text) > SHOWN else 0
        return ("…" if begin else "") + text[begin : begin + SHOWN]
