"""Progress of a notebook, read from its runner's lines in the job's log."""

from __future__ import annotations

import re
from collections.abc import Iterator

from openpai_tasks.backends.base import Backend
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.sdk.logs import output
from openpai_tasks.sdk.payloads.notebook_runner import visible

_STEP = re.compile(r"notebook: cell (\d+) of (\d+): (.*)")
_FAILED = re.compile(r"notebook: cell (\d+) of (\d+) failed: (.*)")
_BEGINS = re.compile(r"(\d+) cells?, kernel .*")
_NOTE, _ERROR, _DETAIL = "notebook: ", "notebook: error: ", "notebook| "


@dataclass(frozen=True)
class CellStart:
    """A cell has started."""

    number: int
    of: int
    line: str

    def __str__(self) -> str:
        return f"cell {self.number} of {self.of}: {self.line}"


@dataclass(frozen=True)
class CellFailure:
    """A cell has failed and ended the run."""

    number: int
    of: int
    reason: str


@dataclass(frozen=True)
class RunnerNote:
    """Another line of the runner."""

    text: str


@dataclass(frozen=True)
class RunnerError:
    """An error of the runner."""

    text: str


@dataclass(frozen=True)
class JobLine:
    """A line of the job that is not the runner's."""

    text: str


@dataclass(frozen=True)
class FailureDetail:
    """A line of the failed cell or of its traceback."""

    text: str


RunEvent = CellStart | CellFailure | RunnerNote | RunnerError | JobLine | FailureDetail


def follow_run(client: Backend, name: str, on_job: output.OnJob | None = None) -> Iterator[RunEvent]:
    """Yield the events of a run until the job ends; ``on_job`` is called with each state of the job."""
    reader, steps = ProgressReader(), output.Follower(client, output.LogChoice(), on_job=on_job).steps(name)
    for line in output.split_lines(output.sleep_between(steps)):
        yield reader.read(line.data)


class ProgressReader:
    """Reads the log of a run; lines with impossible cell numbers come from a cell's own programs."""

    def __init__(self) -> None:
        self._cells = 0  # from the runner's first line, if the log still has it

    def read(self, line: bytes) -> RunEvent:
        event = parse_line(line)
        begun = _BEGINS.fullmatch(event.text) if isinstance(event, RunnerNote) else None
        if begun:
            self._cells = int(begun[1])
        if self._cells and isinstance(event, (CellStart, CellFailure)):
            is_possible = event.of == self._cells >= event.number > 0
            return event if is_possible else JobLine(_decode(line))
        return event


def parse_line(line: bytes) -> RunEvent:
    """Parse a log line into an event without terminal control characters."""
    text = _decode(line)
    for pattern, kind in ((_STEP, CellStart), (_FAILED, CellFailure)):
        match = pattern.fullmatch(text)
        if match:
            return kind(int(match[1]), int(match[2]), match[3])
    if text.startswith(_DETAIL) or text == _DETAIL.rstrip():
        return FailureDetail(text[len(_DETAIL) :])
    if text.startswith(_ERROR):
        return RunnerError(text[len(_ERROR) :])
    return RunnerNote(text[len(_NOTE) :]) if text.startswith(_NOTE) else JobLine(text)


def _decode(line: bytes) -> str:
    return visible(line.decode("utf-8", "replace").rstrip("\r\n"))
