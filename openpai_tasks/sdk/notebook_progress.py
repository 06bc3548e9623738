"""How far a notebook is, read from what its runner writes to the job's log."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from openpai_tasks.client import Client
from openpai_tasks.sdk import logs
from openpai_tasks.sdk.notebook_runner import visible

_STEP = re.compile(r"notebook: cell (\d+) of (\d+): (.*)")
_FAILED = re.compile(r"notebook: cell (\d+) of (\d+) failed: (.*)")
_SAID, _DETAIL = "notebook: ", "notebook| "


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
class Said:
    """Something else that the runner says, or that others wrote to the log."""

    text: str


@dataclass(frozen=True)
class Detail:
    """A line of the failing cell or of its traceback."""

    text: str


Event = Step | Failure | Said | Detail


def follow(client: Client, name: str, look: logs.Look | None = None) -> Iterator[Event]:
    """What happens in the job, until it is over; ``look`` is given the job as often as it is asked for."""
    lines = logs.Lines()
    for chunk in logs.Follower(client, logs.Which(), look=look).until_over(name):
        yield from (read(line.data) for line in lines.feed(chunk))
    yield from (read(line.data) for line in lines.end())


def read(line: bytes) -> Event:
    """A line of the log; nothing in it can steer a terminal."""
    text = visible(line.decode("utf-8", "replace").rstrip("\r\n"))
    for pattern, kind in ((_STEP, Step), (_FAILED, Failure)):
        match = pattern.fullmatch(text)
        if match:
            return kind(int(match[1]), int(match[2]), match[3])
    if text.startswith(_DETAIL) or text == _DETAIL.rstrip():
        return Detail(text[len(_DETAIL) :])
    return Said(text.removeprefix(_SAID))
