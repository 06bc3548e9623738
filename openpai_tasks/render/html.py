"""Values to HTML for notebooks: tables and jobs, everything in them escaped. Prints nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from typing import Any

from openpai_tasks.render import svg, text
from openpai_tasks.render.charts import Chart
from openpai_tasks.render.views import Page, TextTable, View
from openpai_tasks.text.plain import one_line

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
        return "".join(map(status, text.listed(items)))
    if columns is text.flat_table:
        return table(*text.flat(items))
    return _view(columns(items)) if callable(columns) else table(items, columns)


def _view(view: View) -> str | None:
    """Return a view of tables and charts; None for one with text, which keeps its lines as text."""
    if isinstance(view, Chart):
        return svg.draw([view])
    if isinstance(view, TextTable):
        header = [one_line(name).lower() for name in view.header]
        return _table(header, [list(map(one_line, row)) for row in view.rows], header)
    parts = [_view(part) for part in view.parts] if isinstance(view, Page) else [None]
    return None if None in parts else "".join(filter(None, parts))


def values(items: Any, columns: text.Columns) -> list[dict[str, Any]]:
    """Return the values behind the HTML, for programs."""
    if columns is text.flat_table:
        return text.flat(items)[0]
    found = json.loads(text.format_values(items, columns, "json"))
    return found if isinstance(found, list) else [found]


def table(items: Any, columns: Sequence[str]) -> str:
    """One row for each item, with a header."""
    found = text.listed(items)
    header = [text.header(name) for name in columns]
    return _table(header, text.cells(found[:ROWS], columns), columns, len(found))


def _table(
    header: Sequence[str], rows: Sequence[Sequence[str]], columns: Sequence[str], count: int | None = None
) -> str:
    count = len(rows) if count is None else count
    head = "".join(f'<th style="{_LEFT}">{escape(name)}</th>' for name in header)
    body = "".join(f"<tr>{''.join(map(_cell, columns, row))}</tr>" for row in rows[:ROWS])
    left = count - ROWS
    note = f"and {left} more" if left > 0 else "none" if not count else ""
    body += f'<tr><td colspan="{len(columns)}" style="{_LEFT}"><em>{note}</em></td></tr>' if note else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def status(job: Any) -> str:
    """A job, the reason of its failure, its tasks and its events."""
    parts = [table([job], text.JOB)]
    parts += [f"<p>{escape(line)}</p>" for line in text.end_lines(job)]
    parts += [table(job.tasks, text.TASK)] if job.tasks else []
    parts += [table(job.events, text.EVENT)] if job.events else []
    return "".join(parts)


def _cell(column: str, word: str) -> str:
    shown = escape(word)
    if column == "state" and word in COLOURS:
        shown = f'<strong style="color:{COLOURS[word]}">{shown}</strong>'
    return f'<td style="{_LEFT}">{shown}</td>'
