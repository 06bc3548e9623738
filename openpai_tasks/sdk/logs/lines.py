"""A job's output as lines of text, for programs."""

from __future__ import annotations

from collections.abc import Iterator

from openpai_tasks.backends.base import Backend
from openpai_tasks.plain_text import one_line
from openpai_tasks.sdk.logs.output import Chunk, LineSplitter, LogChoice, output_steps, sleep_between


class TextLines:
    """Cuts chunks of output into lines without their newline; those of several tasks get labels."""

    def __init__(self) -> None:
        self._splitter = LineSplitter()

    def feed(self, chunk: Chunk) -> list[str]:
        """Return the lines that are complete now."""
        return [_text(line) for line in self._splitter.feed(chunk)]

    def end(self) -> list[str]:
        """Return the unfinished lines."""
        return [_text(line) for line in self._splitter.end()]


def _text(line: Chunk) -> str:
    text = line.data.decode("utf-8", "replace").removesuffix("\n").removesuffix("\r")
    return f"[{one_line(line.task)}] {text}" if line.task else text


def read_lines(
    client: Backend,
    name: str,
    which: LogChoice,
    follow: bool = False,
    lines: int | None = None,
    plain: bool = False,
) -> Iterator[str]:
    """Yield the lines of a job's output, so far or until it ends."""
    cut = TextLines()
    for chunk in sleep_between(output_steps(client, name, which, follow, lines, None, plain)):
        yield from cut.feed(chunk)
    yield from cut.end()
