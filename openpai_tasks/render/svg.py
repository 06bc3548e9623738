"""Charts as SVG. Prints nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from openpai_tasks.render.charts import Chart, Scale, Series, label, lines_of, scales
from openpai_tasks.text.plain import one_line

WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 34, 34
ROW = 18
"""The height of a line of text."""
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#e377c2", "#7f7f7f")
MARKS = (0.0, 0.25, 0.5, 0.75, 1.0)

Dot = tuple[int, int]


def page(width: int, height: int, parts: Iterable[str]) -> str:
    """Return a picture on white with these elements in it."""
    size = f'width="{width}" height="{height}"'
    style = 'font-family="sans-serif" font-size="12"'
    background = '<rect width="100%" height="100%" fill="white"/>'
    inside = "\n".join([background, *parts])
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>\n{inside}\n</svg>\n'


def draw(charts: Sequence[Chart]) -> str:
    """Return a picture of the charts below each other, with a legend for each."""
    parts: list[str] = []
    top = 0
    for chart in charts:
        parts += _chart(chart, top)
        top += HEIGHT + ROW * _rows(chart)
    return page(WIDTH, max(top, ROW), parts)


def _rows(chart: Chart) -> int:
    """Return the number of lines of the legend."""
    return len(chart.series) if any(one.name for one in chart.series) else 0


def _chart(chart: Chart, top: int) -> Iterator[str]:
    yield _text(LEFT, top + 20, chart.title, 'font-weight="bold"')
    found = scales(chart.series)
    if found is None:
        yield _text(LEFT, top + 20 + ROW, "no numbers to draw")
        return
    across, upwards = found
    yield from _grid(across, upwards, top)
    for number, one in enumerate(chart.series):
        colour = COLOURS[number % len(COLOURS)]
        yield from _lines(one, across, upwards, top, colour)
        if _rows(chart):
            y = top + HEIGHT + ROW * number
            yield f'<path d="M{LEFT} {y - 4}h24" stroke="{colour}" stroke-width="2"/>'
            yield _text(LEFT + 32, y, one.name)


def _grid(across: Scale, upwards: Scale, top: int) -> Iterator[str]:
    for part in MARKS:
        x, y = _dot(across.at(part), upwards.at(part), across, upwards, top)
        yield f'<path d="M{LEFT} {y}H{WIDTH - RIGHT}" stroke="#ddd"/>'
        yield _text(LEFT - 8, y + 4, label(upwards.at(part)), 'text-anchor="end"')
        yield _text(x, top + HEIGHT - BOTTOM + ROW, label(across.at(part)), 'text-anchor="middle"')


def _lines(series: Series, across: Scale, upwards: Scale, top: int, colour: str) -> Iterator[str]:
    for part in lines_of(series.points):
        dots = thin_out(_dot(x, y, across, upwards, top) for x, y in part)
        path = "L".join(f"{x} {y}" for x, y in dots)
        if len(dots) == 1:
            yield f'<circle cx="{dots[0][0]}" cy="{dots[0][1]}" r="2" fill="{colour}"/>'
        else:
            yield f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>'


def _dot(x: float, y: float, across: Scale, upwards: Scale, top: int) -> Dot:
    right = LEFT + across.step_of(x, WIDTH - LEFT - RIGHT + 1)
    return right, top + HEIGHT - BOTTOM - upwards.step_of(y, HEIGHT - TOP - BOTTOM + 1)


def thin_out(dots: Iterable[Dot]) -> list[Dot]:
    """Keep the first, the extreme and the last dot of each column: as many as a picture can show."""
    columns: dict[int, list[int]] = {}
    for x, y in dots:
        columns.setdefault(x, []).append(y)
    return [
        (x, y)
        for x, ys in columns.items()
        for y in dict.fromkeys((ys[0], min(ys), max(ys), ys[-1]) if len(ys) > 1 else ys)
    ]


def _text(x: int, y: int, text: str, options: str = "") -> str:
    return f'<text x="{x}" y="{y}" {options}>{escape(one_line(text))}</text>'
