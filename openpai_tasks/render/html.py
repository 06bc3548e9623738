"""Values to HTML for notebooks: tables and jobs, everything in them escaped. Prints nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from typing import Any

from openpai_tasks.plain_text import one_line
from openpai_tasks.render import text

ROWS = 500
"""As many rows are drawn: the picture is kept in the notebook's file."""

COLOURS = {
    "WAITING": "#987800",
    "RUNNING": "#2e78ec",
    "STOPPING": "#987800",
    "RETRYING": "#987800",
    "SUCCEEDED": "#1d8e3e",
    "FAILED": "#de424c",
    "STOPPED": "#737d87",
}
"""Of each state, as far from white as from black: the page does not tell its theme."""

_LEFT = "text-align:left"


def picture(items: Any, columns: text.Columns) -> str | None:
    """What a notebook shows in place of the text; nothing where the text says it best."""
    if columns is text.status:
        return status(items)
    if columns is text.flat_table:
        return table(*text.flat(items))
    return None if callable(columns) else table(items, columns)


def values(items: Any, columns: text.Columns) -> list[dict[str, Any]]:
    """What the picture was made of, for programs."""
    if columns is text.flat_table:
        return text.flat(items)[0]
    found = json.loads(text.format_values(items, columns, "json"))
    return found if isinstance(found, list) else [found]


def table(items: Any, columns: Sequence[str]) -> str:
    """One row for each item, with a header."""
    found = list(items) if isinstance(items, (list, tuple)) else [items]
    head = "".join(f'<th style="{_LEFT}">{escape(one_line(name.replace("_", " ")))}</th>' for name in columns)
    body = "".join(_row(row, columns) for row in text.cells(found[:ROWS], columns))
    left = len(found) - ROWS
    told = f"and {left} more" if left > 0 else "none" if not found else ""
    body += f'<tr><td colspan="{len(columns)}" style="{_LEFT}"><em>{told}</em></td></tr>' if told else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def status(job: Any) -> str:
    """A job, why it ended if it did not end well, its tasks, and what the platform noted."""
    parts = [table([job], text.JOB)]
    if job.message and job.exit_status:
        parts.append(f"<p>because: {escape(text.cell('message', job.message))}</p>")
    parts += [table(job.tasks, text.TASK)] if job.tasks else []
    parts += [table(job.events, text.EVENT)] if job.events else []
    return "".join(parts)


def _row(words: Sequence[str], columns: Sequence[str]) -> str:
    return "<tr>" + "".join(map(_cell, columns, words)) + "</tr>"


def _cell(column: str, word: str) -> str:
    shown = escape(word)
    if column == "state" and word in COLOURS:
        shown = f'<strong style="color:{COLOURS[word]}">{shown}</strong>'
    return f'<td style="{_LEFT}">{shown}</td>'
