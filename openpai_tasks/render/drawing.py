"""Views drawn with rich: they fit the terminal, with bold headers and coloured states. Prints nothing.

Texts reach rich filtered and as ``Text``, which it takes literally: no markup, emoji codes or highlighting.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence, Set
from typing import IO

from rich.console import Console, Group, JustifyMethod, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from openpai_tasks.render import charts
from openpai_tasks.render.charts import Chart
from openpai_tasks.render.views import GAP, Bar, Facts, Page, TextTable, View, has_colours
from openpai_tasks.text.plain import one_line, plain, width
from openpai_tasks.text.wrapping import wrap, wrap_line

STATES = {
    "WAITING": "yellow",
    "RUNNING": "cyan",
    "STOPPING": "yellow",
    "RETRYING": "yellow",
    "SUCCEEDED": "green",
    "FAILED": "red",
    "STOPPED": "dim",
}
FEW_COLOURS = (
    *("cyan", "yellow", "magenta", "green", "red", "blue"),
    *("bright_cyan", "bright_yellow", "bright_magenta", "bright_green", "bright_red", "bright_blue"),
)
"""Colours of the lines of a chart on terminals that have 16."""
SHORT_TEXT = 20
"""Cells up to this width get it; columns of wider ones share the remaining width."""
WHOLE_WORD, FOLDED_WORD = 24, 12
"""Widths that a column of long words should have and must have."""
LONG_TABLE = 2000
"""Rows from which on a table is written as in a pipe: rich takes 0.7 ms for each."""
BAR, SHORTEST_BAR = 24, 4


def console(file: IO[str], width: int | None = None, height: int | None = None) -> Console:
    """Return a console that writes to ``file``, which stands for a terminal."""
    return Console(
        file=file,
        width=width,
        height=height,
        force_terminal=True,
        force_jupyter=False,
        force_interactive=True,
        color_system="auto" if has_colours() else None,
        markup=False,
        emoji=False,
        highlight=False,
    )


def draw(view: View, columns: int, ages: bool = False) -> str:
    """Return the view as text with colours, fitted to the width; ``ages`` replace dates."""
    out = io.StringIO()
    target = console(out, columns, 24)  # a dumb terminal has a width, too
    for part in _parts(view, ages):
        if isinstance(part, TextTable) and len(part.rows) < LONG_TABLE:
            target.print(fit_table(part, columns))
        elif isinstance(part, Chart):
            target.print(_chart(part, columns, target), soft_wrap=True)
        else:  # the terminal wraps long words, so that an address can be copied
            target.print(_text(part, columns), soft_wrap=True)
    return "\n".join(line.rstrip() for line in out.getvalue().removesuffix("\n").split("\n"))


def frame(view: View, columns: int, lines: int, ages: bool = False) -> list[str]:
    """Return the lines of a live view, none wider or more than there is room for.

    Where there is little room, charts are lower, and parts at the end are left out.
    """
    if isinstance(view, (str, Bar)):
        text = Text(one_line(str(view)), no_wrap=True, overflow="ellipsis")
        return _drawn(_bar(view, columns) if isinstance(view, Bar) else text, columns, lines)
    parts = list(_parts(view, ages))
    blocks = [_live(part, columns, lines) for part in parts]
    low = {at for at, part in enumerate(parts) if isinstance(part, Chart) and len(blocks[at]) > charts.HEIGHT}
    if low and sum(map(len, blocks)) > lines:
        kept, height = _fit_charts([len(block) for block in blocks], low, lines)
        blocks = [_live(parts[at], columns, lines, height) if at in low else blocks[at] for at in range(kept)]
        blocks += [["…"]] if kept < len(parts) else []
    drawn = [line for block in blocks for line in block]
    return drawn if len(drawn) <= lines else [*drawn[: lines - 1], "…"]


def _fit_charts(sizes: Sequence[int], low: Set[int], lines: int) -> tuple[int, int]:
    """Return how many of the parts fit, the first at least, and the height of the plots in them."""
    fixed = [size - charts.HEIGHT * (at in low) for at, size in enumerate(sizes)]
    for kept in range(len(sizes), 0, -1):
        many = sum(at < kept for at in low)
        room = lines - (kept < len(sizes)) - sum(fixed[:kept])
        if many and (room >= many * charts.LEAST_HEIGHT or kept == 1):
            return kept, min(charts.HEIGHT, max(charts.LEAST_HEIGHT, room // many))
    return len(sizes), charts.LEAST_HEIGHT


def _live(
    part: TextTable | Facts | Chart | Bar | str, columns: int, lines: int, height: int = charts.HEIGHT
) -> list[str]:
    """Return the lines of a part of a live view."""
    if isinstance(part, Chart):
        return _drawn(_chart(part, columns, console(io.StringIO(), columns, lines), height), columns, lines)
    return _drawn(
        fit_table(part, columns) if isinstance(part, TextTable) else _text(part, columns), columns, lines
    )


def _drawn(what: RenderableType, columns: int, lines: int) -> list[str]:
    out = io.StringIO()
    console(out, columns, lines).print(Group(what))  # alone, a text would be wrapped
    return [line.rstrip() for line in out.getvalue().removesuffix("\n").split("\n")]


def _chart(view: Chart, room: int, target: Console, height: int = charts.HEIGHT) -> Text:
    colours = FEW_COLOURS if target.color_system == "standard" else charts.COLOURS
    return Text("\n").join(
        Text.assemble(
            *((text, "" if number is None else colours[number % len(colours)]) for text, number in line)
        )
        for line in charts.draw(view, room, has_colours(), height)
    )


def _bar(view: Bar, room: int) -> Table:
    """The bar and its line, beside each other where there is room."""
    spare = room - len(GAP) - width(view.line)
    wide = min(spare, BAR if room >= 100 else BAR // 2)
    is_beside = wide >= SHORTEST_BAR
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


def fit_table(view: TextTable, room: int) -> RenderableType:
    """Return a table no wider than ``room``, or its rows as blocks of fields where columns cannot fit."""
    view = view.cut_optional(room)
    widths = _widths(view, room)
    if widths is None:
        return _records(view) if view.rows else _cell(GAP.join(view.header), "bold")
    drawn = Table(box=None, pad_edge=False, padding=(0, len(GAP), 0, 0), header_style="")
    numeric = view.numeric
    for at, (name, wide) in enumerate(zip(view.header, widths, strict=True)):
        side: JustifyMethod = "right" if at in numeric else "left"
        drawn.add_column(_cell(name, "bold"), width=wide, overflow="fold", justify=side)
    for row in view.rows:
        drawn.add_row(*_cells(view, row))
    return drawn


def _widths(view: TextTable, room: int) -> list[int | None] | None:
    """Choose the width of each column; None stands for a share of what remains.

    Headers are wrapped first, then cells between words; long words are folded last, and only in columns
    without prose.
    """
    columns = list(zip(view.header, *view.rows, strict=True))
    free = room - len(GAP) * (len(columns) - 1)
    natural = [max(map(width, column)) for column in columns]
    if sum(natural) <= free:
        return list(natural)
    words = [max(map(_longest_word, column)) for column in columns]
    is_prose = [any(" " in cell for cell in cells) for _, *cells in columns]
    lines = [
        max(_longest_word(name), *map(width, cells)) if cells else _longest_word(name)
        for name, *cells in columns
    ]
    for widths, least in ((lines, WHOLE_WORD), (words, WHOLE_WORD), (words, FOLDED_WORD)):
        most = SHORT_TEXT if widths is lines else FOLDED_WORD
        chosen = [wide if wide <= most else None for wide in widths]
        needed = [
            wide if wide is not None else words[at] if is_prose[at] else min(words[at], least)
            for at, wide in enumerate(chosen)
        ]
        if sum(needed) <= free:
            return chosen if None in chosen else _widen(needed, lines, free)
    return None


def _widen(widths: list[int], wanted: list[int], free: int) -> list[int | None]:
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


def _parts(view: View, ages: bool) -> Iterator[TextTable | Facts | Chart | Bar | str]:
    parts = view.parts if isinstance(view, Page) else [view]
    for number, part in enumerate(parts):
        if number and isinstance(view, Page) and view.spaced:
            yield ""
        yield part.brief(ages) if isinstance(part, TextTable) else part


def _text(part: TextTable | Facts | Chart | Bar | str, columns: int) -> Text:
    """Return text and facts wrapped between words; a long table as it is."""
    if isinstance(part, str):
        return Text(wrap(plain(part), columns))
    if not isinstance(part, Facts):
        return Text(plain(str(part)))
    names = max((width(name) for name, _ in part.rows), default=0)
    beside = names + len(GAP)
    lines = []
    for name, value in part.rows:
        wrapped = wrap_line(one_line(value), max(columns - beside, WHOLE_WORD))
        lines.append(Text.assemble(_cell(name, "bold"), " " * (beside - width(name)), _cell(next(wrapped))))
        lines += [Text(" " * beside + line) for line in wrapped]
    return Text("\n").join(lines)
