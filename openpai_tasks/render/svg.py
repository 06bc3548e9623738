"""Charts as SVG. Prints nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from openpai_tasks.render.charts import (
    COLOURS,
    DASHES,
    Chart,
    Point,
    Scale,
    Series,
    lines_of,
    scales,
    thin,
    ticks,
)
from openpai_tasks.text.plain import one_line

WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 34, 58
ROW = 18
"""The height of a line of text."""


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
    chart = thin(chart, WIDTH)
    found = scales(chart)
    if found is None:
        yield _text(LEFT, top + 20 + ROW, "no numbers to draw")
        return
    across, upwards = found
    yield from _grid(chart, across, upwards, top)
    for number, one in enumerate(chart.series):
        dash = DASHES[number // len(COLOURS) % len(DASHES)]
        stroke = f'stroke="{COLOURS[number % len(COLOURS)]}" stroke-width="1.5"' + (
            f' stroke-dasharray="{dash}"' if dash else ""
        )
        yield from _lines(one, across, upwards, top, stroke)
        if _rows(chart):
            y = top + HEIGHT + ROW * number
            yield f'<path d="M{LEFT} {y - 4}h24" {stroke}/>'
            yield _text(LEFT + 32, y, one.name)


def _grid(chart: Chart, across: Scale, upwards: Scale, top: int) -> Iterator[str]:
    for value, text in ticks(upwards, 6):
        _, y = _dot((across.low, value), across, upwards, top)
        yield f'<path d="M{LEFT} {y}H{WIDTH - RIGHT}" stroke="#ddd"/>'
        yield _text(LEFT - 8, y + 4, text, 'text-anchor="end"')
    for value, text in ticks(across, 8, chart.is_whole, chart.is_time):
        x, _ = _dot((value, upwards.low), across, upwards, top)
        yield _text(x, top + HEIGHT - BOTTOM + ROW, text, 'text-anchor="middle"')
    middle = (LEFT + WIDTH - RIGHT) // 2
    yield _text(middle, top + HEIGHT - BOTTOM + 2 * ROW, chart.x, 'text-anchor="middle"')


def _lines(series: Series, across: Scale, upwards: Scale, top: int, stroke: str) -> Iterator[str]:
    """Draw the parts of a line; a point alone is a dot."""
    for part in lines_of(series.points):
        dots = [_dot(point, across, upwards, top) for point in part]
        if len(dots) == 1:
            yield f'<circle cx="{dots[0][0]}" cy="{dots[0][1]}" r="1.5" {stroke}/>'
        else:
            yield f'<path d="M{"L".join(f"{x} {y}" for x, y in dots)}" fill="none" {stroke}/>'


def _dot(point: Point, across: Scale, upwards: Scale, top: int) -> tuple[int, int]:
    right = LEFT + across.step_of(point[0], WIDTH - LEFT - RIGHT + 1)
    return right, top + HEIGHT - BOTTOM - upwards.step_of(point[1], HEIGHT - TOP - BOTTOM + 1)


def _text(x: int, y: int, text: str, options: str = "") -> str:
    return f'<text x="{x}" y="{y}" {options}>{escape(one_line(text))}</text>'
