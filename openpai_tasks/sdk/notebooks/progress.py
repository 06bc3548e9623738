"""How far a notebook is, read from what its runner writes to the job's log."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from openpai_tasks.backends.base import Backend
from openpai_tasks.sdk.logs import output
from openpai_tasks.sdk.payloads.notebook_runner import visible

_STEP = re.compile(r"notebook: cell (\d+) of (\d+): (.*)")
_FAILED = re.compile(r"notebook: cell (\d+) of (\d+) failed: (.*)")
_BEGINS = re.compile(r"(\d+) cells?, kernel .*")
_SAID, _ERROR, _DETAIL = "notebook: ", "notebook: error: ", "notebook| "


@dataclass(frozen=True)
class Step:
    """A cell begins."""

    number: int
    of: int
    line: str

    def __str__(self) -> str:
        return f"cell {self.number} of {self.of}: {self.line}"


@dataclass(frozen=True)
class Failure:
    """A cell has ended the run."""

    number: int
    of: int
    reason: str


@dataclass(frozen=True)
class RunnerNote:
    """Something else that the runner says."""

    text: str


@dataclass(frozen=True)
class Complaint:
    """Why the runner cannot go on, or what it could not do."""

    text: str


@dataclass(frozen=True)
class JobLine:
    """A line that somebody else wrote to the log."""

    text: str


@dataclass(frozen=True)
class Detail:
    """A line of the failing cell or of its traceback."""

    text: str


Event = Step | Failure | RunnerNote | Complaint | JobLine | Detail


def follow_run(client: Backend, name: str, look: output.Look | None = None) -> Iterator[Event]:
    """What happens in the job, until it is over; ``look`` is given the job as often as it is asked for."""
    lines, reader = output.Lines(), Reader()
    for chunk in output.Follower(client, output.LogChoice(), look=look).until_over(name):
        yield from (reader.read(line.data) for line in lines.feed(chunk))
    yield from (reader.read(line.data) for line in lines.end())


class Reader:
    """Reads a log: programs that a cell starts may write what looks like a step, but is none of so many."""

    def __init__(self) -> None:
        self._cells = 0  # as the runner has told, if that was in the log

    def read(self, line: bytes) -> Event:
        event = read(line)
        begun = _BEGINS.fullmatch(event.text) if isinstance(event, RunnerNote) else None
        if begun:
            self._cells = int(begun[1])
        if isinstance(event, (Step, Failure)) and not self._has(event):
            return JobLine(_text(line))
        return event

    def _has(self, event: Step | Failure) -> bool:
        return not self._cells or event.of == self._cells >= event.number > 0


def read(line: bytes) -> Event:
    """A line of the log; nothing in it can steer a terminal."""
    text = _text(line)
    for pattern, kind in ((_STEP, Step), (_FAILED, Failure)):
        match = pattern.fullmatch(text)
        if match:
            return kind(int(match[1]), int(match[2]), match[3])
    if text.startswith(_DETAIL) or text == _DETAIL.rstrip():
        return Detail(text[len(_DETAIL) :])
    if text.startswith(_ERROR):
        return Complaint(text[len(_ERROR) :])
    return RunnerNote(text[len(_SAID) :]) if text.startswith(_SAID) else JobLine(text)


def _text(line: bytes) -> str:
    return visible(line.decode("utf-8", "replace").rstrip("\r\n"))
