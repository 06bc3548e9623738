"""Views drawn with rich: they fit the terminal, with bold headers and coloured states. Prints nothing.

Texts reach rich filtered and as ``Text``, which it takes literally: no markup, emoji codes or highlighting.
"""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Iterator, Sequence
from typing import IO

from rich.console import Console, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from openpai_tasks.plain_text import one_line, plain
from openpai_tasks.render import charts
from openpai_tasks.render.views import GAP, Bar, Chart, Facts, Page, TextTable, View, width

STATES = {
    "WAITING": "yellow",
    "RUNNING": "cyan",
    "STOPPING": "yellow",
    "RETRYING": "yellow",
    "SUCCEEDED": "green",
    "FAILED": "red",
    "STOPPED": "dim",
}
SERIES = (
    "cyan",
    "yellow",
    "magenta",
    "green",
    "red",
    "blue",
    "bright_cyan",
    "bright_yellow",
    "bright_magenta",
)
"""Colours of the lines of a chart, in turn."""
SHORT_TEXT = 20
"""Cells up to this width get it; columns of wider ones share the remaining width."""
WHOLE_WORD, FOLDED_WORD = 24, 12
"""Widths that a column of long words should have and must have."""
LONG_TABLE = 2000
"""Rows from which on a table is written as in a pipe: rich takes 0.7 ms for each."""
BAR = 24


class TerminalConsole(Console):
    """A console of a terminal that leaves the cursor visible: a killed command cannot show it again."""

    def show_cursor(self, show: bool = True) -> bool:
        return False


def console(file: IO[str], width: int | None = None, height: int | None = None) -> TerminalConsole:
    """Return a console that writes to ``file``, which stands for a terminal."""
    return TerminalConsole(
        file=file,
        width=width,
        height=height,
        force_terminal=True,
        force_jupyter=False,
        force_interactive=True,
        color_system=None if os.environ.get("NO_COLOR") else "auto",
        markup=False,
        emoji=False,
        highlight=False,
    )


def _has_colours() -> bool:
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") not in ("dumb", "unknown")


def draw(view: View) -> str:
    """Return the view as text with colours, fitted to the width of the terminal."""
    out, size = io.StringIO(), shutil.get_terminal_size()
    target = console(out, size.columns, size.lines)  # a dumb terminal has a width, too
    for part in _parts(view):
        if isinstance(part, TextTable) and len(part.rows) < LONG_TABLE:
            target.print(fitted(part, target.width))
        elif isinstance(part, Chart):
            target.print(_chart(part, target.width), soft_wrap=True)
        else:  # lines that the terminal wraps, so that an address can be copied from them
            target.print(_text(part), soft_wrap=True)
    return "\n".join(line.rstrip() for line in out.getvalue().removesuffix("\n").split("\n"))


def live(view: View, room: int) -> RenderableType:
    """Return what a live view draws; a text alone is cut to one line."""
    if isinstance(view, str):
        return Text(one_line(view), no_wrap=True, overflow="ellipsis")
    if isinstance(view, Bar):
        return _bar(view, room)
    return Group(*(_part(part, room) for part in _parts(view)))


def _part(part: TextTable | Facts | Chart | Bar | str, room: int) -> RenderableType:
    if isinstance(part, Chart):
        return _chart(part, room)
    return fitted(part, room) if isinstance(part, TextTable) else _text(part)


def _chart(view: Chart, room: int) -> Text:
    styles = [SERIES[number % len(SERIES)] for number in range(len(view.series))]
    return Text("\n").join(
        Text.assemble(*((text, "" if number is None else styles[number]) for text, number in line))
        for line in charts.draw(view, room, _has_colours())
    )


def unwrapped(text: str) -> RenderableType:
    """Return lines that only the terminal wraps."""
    return Group(Text(plain(text), no_wrap=True, overflow="ignore"))  # a text alone would lose its options


def _bar(view: Bar, room: int) -> Table:
    """The bar and its line, beside each other where there is room."""
    wide = BAR if room >= 100 else BAR // 2
    is_beside = wide + len(GAP) + width(view.line) <= room
    drawn = ProgressBar(
        total=1.0,
        completed=view.done,
        width=wide if is_beside else min(room, BAR),
        style="dim",
        complete_style="cyan",
        finished_style="cyan",
    )
    grid = Table.grid(padding=(0, len(GAP), 0, 0))
    for row in ([drawn, _cell(view.line)],) if is_beside else ([drawn], [_cell(view.line)]):
        grid.add_row(*row)
    return grid


def fitted(view: TextTable, room: int) -> RenderableType:
    """Return a table no wider than ``room``, or its rows as blocks of fields where columns cannot fit."""
    widths = _widths(view, room)
    if widths is None:
        return _records(view) if view.rows else _cell(GAP.join(view.header), "bold")
    drawn = Table(box=None, pad_edge=False, padding=(0, len(GAP), 0, 0), header_style="")
    for name, wide in zip(view.header, widths, strict=True):
        drawn.add_column(_cell(name, "bold"), width=wide, overflow="fold")
    for row in view.rows:
        drawn.add_row(*_cells(view, row))
    return drawn


def _widths(view: TextTable, room: int) -> list[int | None] | None:
    """Choose the width of each column; None stands for a share of what remains.

    Headers are wrapped first, then cells between words, and long words are folded last.
    """
    columns = list(zip(view.header, *view.rows, strict=True))
    free = room - len(GAP) * (len(columns) - 1)
    natural = [max(map(width, column)) for column in columns]
    if sum(natural) <= free:
        return list(natural)
    words = [max(map(_longest_word, column)) for column in columns]
    lines = [
        max(_longest_word(name), *map(width, cells)) if cells else _longest_word(name)
        for name, *cells in columns
    ]
    for widths, least in ((lines, WHOLE_WORD), (words, WHOLE_WORD), (words, FOLDED_WORD)):
        most = SHORT_TEXT if widths is lines else FOLDED_WORD
        chosen = [wide if wide <= most else None for wide in widths]
        needed = [min(words[at], least) if wide is None else wide for at, wide in enumerate(chosen)]
        if sum(needed) <= free:
            return chosen if None in chosen else _widened(needed, lines, free)
    return None


def _widened(widths: list[int], wanted: list[int], free: int) -> list[int | None]:
    """Hand out the width that is left, first to the columns that want least more."""
    given: list[int | None] = [*widths]
    spare = free - sum(widths)
    for at in sorted(range(len(widths)), key=lambda at: wanted[at] - widths[at]):
        more = min(spare, wanted[at] - widths[at])
        given[at], spare = widths[at] + more, spare - more
    return given


def _longest_word(text: str) -> int:
    return max(map(width, text.split()), default=0)


def _records(view: TextTable) -> Table:
    drawn = Table.grid(padding=(0, len(GAP), 0, 0))
    drawn.add_column(overflow="fold")
    drawn.add_column(overflow="fold")
    for number, row in enumerate(view.rows):
        if number:
            drawn.add_row()
        for name, cell in zip(view.header, _cells(view, row), strict=True):
            drawn.add_row(_cell(name, "bold"), cell)
    return drawn


def _cell(text: str, style: str = "") -> Text:
    return Text.assemble((one_line(text), style))  # a style of the whole would be that of its padding, too


def _cells(view: TextTable, row: Sequence[str]) -> list[Text]:
    return [
        _cell(cell, STATES.get(cell, "") if number == view.states else "") for number, cell in enumerate(row)
    ]


def _parts(view: View) -> Iterator[TextTable | Facts | Chart | Bar | str]:
    if not isinstance(view, Page):
        yield view
        return
    for number, part in enumerate(view.parts):
        if number and view.spaced:
            yield ""
        yield part


def _text(part: TextTable | Facts | Chart | Bar | str) -> Text:
    if not isinstance(part, Facts):
        return Text(plain(str(part)))
    names = max((width(name) for name, _ in part.rows), default=0)
    return Text("\n").join(
        Text.assemble(_cell(name, "bold"), " " * (names - width(name)), GAP, _cell(value))
        for name, value in part.rows
    )
