"""What an executed notebook tells of its run: how far it came, the cell that failed, what was made of it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from openpai_tasks.sdk.notebook_runner import COLOUR, STATE, STEERING, source_of, visible

FAILED, RUNNING, DONE = "failed", "running", "done"


@dataclass(frozen=True)
class Told:
    """How far the notebook came; the failing cell and its traceback, with colours, if one failed."""

    state: str
    cell: int
    of: int
    reason: str = ""
    source: str = ""
    traceback: str = ""
    files: tuple[str, ...] = ()
    """The names of what was made of it, itself among them."""


def told(content: bytes) -> Told | None:
    """What the notebook says of its run; nothing for one that is damaged."""
    try:
        read = json.loads(content)
        note, cells = read["metadata"][STATE], read["cells"]
        cell: dict[str, Any] = cells[note["index"]] if "index" in note else {}
        files = note.get("files", ())
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        return None
    failed = cell if note.get("state") == FAILED else {}
    return Told(
        str(note.get("state")),
        int(note.get("cell", 0)),
        int(note.get("of", 0)),
        visible(str(note.get("reason", ""))),
        "\n".join(map(visible, source_of(failed).splitlines())),
        _traceback(failed),
        tuple(name for name in files if isinstance(name, str)),
    )


def _traceback(cell: dict[str, Any]) -> str:
    found = [output for output in cell.get("outputs", ()) if output.get("output_type") == "error"]
    return "\n".join(str(line) for output in found for line in output.get("traceback", ()))


def plain(text: str, has_colours: bool) -> str:
    """A traceback as a terminal may show it: with its colours or without, and nothing else that steers."""
    return "\n".join(_plain(line, has_colours) for line in text.splitlines())


def _plain(line: str, has_colours: bool) -> str:
    if not has_colours:
        return visible(STEERING.sub("", line))
    parts = COLOUR.split(line)
    marks = [*COLOUR.findall(line), ""]
    return "".join(visible(STEERING.sub("", part)) + mark for part, mark in zip(parts, marks, strict=True))
