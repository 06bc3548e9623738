"""Values to HTML for notebooks: tables and jobs, everything in them escaped. Prints nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from typing import Any

from openpai_tasks.plain_text import one_line
from openpai_tasks.render import text

ROWS = 500
"""The most rows that are drawn: the notebook keeps them in its file."""

COLOURS = {
    "WAITING": "#987800",
    "RUNNING": "#2e78ec",
    "STOPPING": "#987800",
    "RETRYING": "#987800",
    "SUCCEEDED": "#1d8e3e",
    "FAILED": "#de424c",
    "STOPPED": "#737d87",
}
"""The colour of each state, readable on white and on black: a page does not reveal its theme."""

_LEFT = "text-align:left"


def picture(items: Any, columns: text.Columns) -> str | None:
    """Return the HTML that a notebook shows instead of the text; None where the text is better."""
    if columns is text.status:
        return status(items)
    if columns is text.flat_table:
        return table(*text.flat(items))
    return None if callable(columns) else table(items, columns)


def values(items: Any, columns: text.Columns) -> list[dict[str, Any]]:
    """Return the values behind the HTML, for programs."""
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
    note = f"and {left} more" if left > 0 else "none" if not found else ""
    body += f'<tr><td colspan="{len(columns)}" style="{_LEFT}"><em>{note}</em></td></tr>' if note else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def status(job: Any) -> str:
    """A job, the reason of its failure, its tasks and its events."""
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
