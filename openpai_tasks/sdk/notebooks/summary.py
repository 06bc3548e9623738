"""Summary of a run, read from the executed notebook."""

from __future__ import annotations

from typing import Any

from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol.fields import count, mapping, rows, text, texts, whole
from openpai_tasks.protocol.json_text import parse
from openpai_tasks.sdk.payloads.notebook_runner import COLOUR, CONTROL, STATE, visible

FAILED, RUNNING, DONE = "failed", "running", "done"


@dataclass(frozen=True)
class RunSummary:
    """How far a notebook ran; if a cell failed, its source and its coloured traceback."""

    state: str
    cell: int
    of: int
    reason: str = ""
    source: str = ""
    traceback: str = ""
    files: tuple[str, ...] = ()
    """Names of the files it was converted to, itself included."""


def read_summary(content: bytes) -> RunSummary | None:
    """Read the summary; None if the notebook is damaged."""
    try:
        read = mapping(parse(content))
    except ValueError:
        return None
    note, cells = mapping(read.get("metadata")).get(STATE), read.get("cells")
    if not isinstance(note, dict) or not isinstance(cells, list):
        return None
    index = whole(note.get("index"))
    if "index" in note and (index is None or not 0 <= index < len(cells)):
        return None
    failed = mapping(cells[index]) if index is not None and note.get("state") == FAILED else {}
    return RunSummary(
        text(note.get("state")),
        count(note.get("cell")),
        count(note.get("of")),
        visible(text(note.get("reason"))),
        "\n".join(map(visible, _source(failed).splitlines())),
        _traceback(failed),
        texts(note.get("files")),
    )


def _source(cell: dict[str, Any]) -> str:
    """Return the cell's source, which is a string or a list of lines."""
    return text(cell.get("source")) or "".join(texts(cell.get("source")))


def _traceback(cell: dict[str, Any]) -> str:
    found = [output for output in rows(cell.get("outputs")) if output.get("output_type") == "error"]
    return "\n".join(line for output in found for line in texts(output.get("traceback")))


def plain_traceback(traceback: str, has_colours: bool) -> str:
    """Remove terminal control sequences from a traceback, except colours if wanted."""
    return "\n".join(_plain(line, has_colours) for line in traceback.splitlines())


def _plain(line: str, has_colours: bool) -> str:
    if not has_colours:
        return visible(CONTROL.sub("", line))
    parts = COLOUR.split(line)
    marks = [*COLOUR.findall(line), ""]
    return "".join(visible(CONTROL.sub("", part)) + mark for part, mark in zip(parts, marks, strict=True))
