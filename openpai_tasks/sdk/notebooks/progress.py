"""Progress of a notebook, read from its runner's lines in the job's log."""

from __future__ import annotations

import re
from collections.abc import Iterator

from openpai_tasks.backends.base import Backend
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.sdk.logs import output
from openpai_tasks.sdk.payloads.notebook_runner import visible

CELL, FAILURE, DETAIL, ERROR, NOTE, OTHER = "cell", "failure", "detail", "error", "note", "other"
"""Kinds of lines: a cell has started or failed, the failed cell or its traceback, an error of the runner,
another line of the runner, and a line of the job that is not the runner's."""

_CELL = re.compile(r"cell (\d{1,9}) of (\d{1,9})( failed)?: .*")
_BEGINS = re.compile(r"(\d{1,9}) cells?, kernel .*")
_PREFIX, _ERROR, _DETAIL = "notebook: ", "error: ", "notebook| "


@dataclass(frozen=True)
class RunEvent:
    """A line of a run's log without the runner's prefix and terminal control characters."""

    kind: str
    text: str


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
        """Parse a line of the log."""
        text = visible(line.decode("utf-8", "replace").rstrip("\r\n"))
        if text.startswith(_DETAIL) or text == _DETAIL.rstrip():
            return RunEvent(DETAIL, text[len(_DETAIL) :])
        if not text.startswith(_PREFIX):
            return RunEvent(OTHER, text)
        note = text.removeprefix(_PREFIX)
        if note.startswith(_ERROR):
            return RunEvent(ERROR, note.removeprefix(_ERROR))
        if cell := _CELL.fullmatch(note):
            is_possible = not self._cells or int(cell[2]) == self._cells >= int(cell[1]) > 0
            return RunEvent(FAILURE if cell[3] else CELL, note) if is_possible else RunEvent(OTHER, text)
        if begun := _BEGINS.fullmatch(note):
            self._cells = int(begun[1])
        return RunEvent(NOTE, note)
