"""Charts on a terminal: lines of Braille dots, or of a character for each series without colours."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.text.plain import one_line, width

MARKS = "*+xo#@%&=~"
"""The characters of series, in turn, where colours cannot distinguish them."""
HEIGHT = 12
LEAST = 20  # columns of the smallest chart
LEGEND = 12
"""The most series that are named below a chart."""
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # of a Braille character, by row and column

Segment = tuple[str, int | None]
"""Text, and the number of the series that it shows, if any."""


@dataclass(frozen=True)
class Series:
    """Points of a chart, as pairs of x and y."""

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Chart:
    """Lines over a common axis, such as the loss of several jobs by step."""

    title: str
    series: Sequence[Series]

    def __str__(self) -> str:
        """Draw the chart without colours, as wide as the terminal."""
        import shutil

        lines = draw(self, shutil.get_terminal_size().columns, is_coloured=False)
        return "\n".join("".join(part for part, _ in line).rstrip() for line in lines)


@dataclass(frozen=True)
class Scale:
    """A range of values; one value alone is in its middle."""

    low: float
    high: float

    def step_of(self, value: float, steps: int) -> int:
        """Return the step, from 0 to ``steps - 1``, on which the value is."""
        width = self.high / 2 - self.low / 2  # halves, as the difference of two large numbers can be infinite
        if not width:
            return steps // 2
        part = (value / 2 - self.low / 2) / width
        return min(steps - 1, max(0, round(part * (steps - 1))))

    def at(self, part: float) -> float:
        return self.low * (1 - part) + self.high * part


def scales(series: Sequence[Series]) -> tuple[Scale, Scale] | None:
    """Return the scales of all points that can be drawn; None if there is no such point."""
    points = [point for one in series for point in one.points if is_drawn(point)]
    if not points:
        return None
    xs, ys = zip(*points, strict=True)
    return Scale(min(xs), max(xs)), Scale(min(ys), max(ys))


def is_drawn(point: tuple[float, float]) -> bool:
    return math.isfinite(point[0]) and math.isfinite(point[1])


def lines_of(points: Sequence[tuple[float, float]]) -> Iterator[list[tuple[float, float]]]:
    """Yield the parts of a line, by x; a value that is no number interrupts it."""
    part: list[tuple[float, float]] = []
    for point in sorted(points, key=lambda point: point[0] if math.isfinite(point[0]) else math.inf):
        if is_drawn(point):
            part.append(point)
        elif part:
            yield part
            part = []
    if part:
        yield part


def label(value: float) -> str:
    """Format a number of an axis."""
    return f"{value:.4g}"


def draw(chart: Chart, columns: int, is_coloured: bool) -> list[list[Segment]]:
    """Return the lines of the chart: title, plot, axis and legend."""
    found = scales(chart.series)
    if found is None:
        return [[(f"{one_line(chart.title)}: no numbers to draw", None)]]
    across, upwards = found
    marks = [upwards.high, upwards.at(0.5), upwards.low]
    labels = dict(zip((0, HEIGHT // 2, HEIGHT - 1), map(label, marks), strict=True))
    margin = max(map(len, labels.values()))
    room = max(LEAST, columns - margin - 2)
    canvas = Canvas(room, HEIGHT)
    for number, one in enumerate(chart.series):
        for part in lines_of(one.points):
            canvas.line(
                [(across.step_of(x, 2 * room), upwards.step_of(y, 4 * HEIGHT)) for x, y in part], number
            )
    is_braille = is_coloured or len(chart.series) == 1
    lines: list[list[Segment]] = [[(_cut(one_line(chart.title), columns), None)]]
    for row in range(HEIGHT):
        begin = f"{labels.get(row, ''):>{margin}} │"
        lines.append([(begin, None), *canvas.row(row, is_braille)])
    first, last = label(across.low), label(across.high)
    lines.append([(f"{'':>{margin}} └{'─' * room}", None)])
    lines.append([(f"{'':>{margin + 2}}{first}{last:>{max(1, room - len(first))}}", None)])
    return lines + _legend(chart.series, columns, is_braille)


class Canvas:
    """A grid of characters, each of two by four dots."""

    def __init__(self, columns: int, rows: int) -> None:
        self._columns, self._rows = columns, rows
        self._dots: dict[tuple[int, int], int] = {}  # by row and column
        self._series: dict[tuple[int, int], int] = {}

    def line(self, points: Sequence[tuple[int, int]], series: int) -> None:
        """Draw from point to point; y goes up."""
        last = points[0]
        self._dot(*last, series)
        for point in points[1:]:
            (x, y), (to_x, to_y) = last, point
            steps = max(abs(to_x - x), abs(to_y - y))
            for step in range(1, steps + 1):
                self._dot(x + round((to_x - x) * step / steps), y + round((to_y - y) * step / steps), series)
            last = point

    def _dot(self, x: int, y: int, series: int) -> None:
        down = 4 * self._rows - 1 - y
        cell = (down // 4, x // 2)
        self._dots[cell] = self._dots.get(cell, 0) | _DOTS[down % 4][x % 2]
        self._series[cell] = series

    def row(self, row: int, is_braille: bool) -> Iterator[Segment]:
        """Yield the characters of a row, those of the same series together."""
        cells = [(row, column) for column in range(self._columns)]
        for series, group in itertools.groupby(cells, self._series.get):
            if series is None or not is_braille:
                sign = " " if series is None else MARKS[series % len(MARKS)]
                yield sign * len(list(group)), series
            else:
                yield "".join(chr(0x2800 + self._dots[cell]) for cell in group), series


def _legend(series: Sequence[Series], columns: int, is_braille: bool) -> list[list[Segment]]:
    """Return a line for each series, with the sign of its line."""
    if len(series) == 1 and not series[0].name:
        return []
    lines: list[list[Segment]] = []
    for number, one in enumerate(series[:LEGEND]):
        sign = "──" if is_braille else MARKS[number % len(MARKS)]
        lines.append([(sign, number), (_cut(f"  {one_line(one.name)}", columns - len(sign)), None)])
    more = len(series) - LEGEND
    return lines + ([[(f"and {more} more", None)]] if more > 0 else [])


def _cut(text: str, columns: int) -> str:
    """Cut text to a number of columns."""
    while width(text) > columns and text:
        text = text[: max(len(text) - max(1, (width(text) - columns) // 2), 0)]
    return text


def metric_charts(metrics: Sequence[Any]) -> list[Chart]:
    """Return a chart for each name, with a line for each job and task."""
    by_name: dict[str, list[Any]] = {}
    for metric in metrics:
        by_name.setdefault(metric.name, []).append(metric)
    return [Chart(name, _series(group)) for name, group in by_name.items()]


def _series(group: Sequence[Any]) -> list[Series]:
    """Return a line for each metric, named by what distinguishes it from the others: job, task or both."""
    jobs = len({metric.job for metric in group})
    has_tasks = len(group) > jobs
    found = []
    for metric in group:
        points = [
            (number if point.step is None else point.step, point.value)
            for number, point in enumerate(metric.points)
        ]
        found.append(Series(" ".join([metric.job] * (jobs > 1) + [metric.task] * has_tasks), points))
    return found
