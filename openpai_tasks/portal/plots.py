"""Plots: where lines, dots and labels are; templates draw them, and the style sheet colours them."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeGuard

from openpai_tasks.render.charts import Chart, Scale, label, lines_of, scales
from openpai_tasks.render.svg import thin_out
from openpai_tasks.text.plain import one_line

WIDTH, HEIGHT = 640, 260
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 12, 28
MARKS = (0.0, 0.25, 0.5, 0.75, 1.0)
COLOURS = 8
MOST_HOVERED = 400
"""Points of a line whose values can be seen."""
HUES = 5
"""Steps of colour from the lowest to the highest value."""


@dataclass(frozen=True)
class Mark:
    """A label of an axis and its place."""

    at: int
    text: str


@dataclass(frozen=True)
class Line:
    """A line: its paths, and single points as dots."""

    name: str
    colour: int
    paths: list[str]
    dots: list[tuple[int, int]]


@dataclass(frozen=True)
class Dot:
    """A dot or a line for one job."""

    name: str
    x: int = 0
    y: int = 0
    path: str = ""
    hue: int = 0
    values: str = ""


@dataclass(frozen=True)
class Plot:
    """A plot with two axes."""

    title: str
    across: list[Mark]
    upwards: list[Mark]
    lines: list[Line] = field(default_factory=list)
    dots: list[Dot] = field(default_factory=list)
    hover: str = ""
    """JSON for the script: for each line its name and points (x and y in the picture, and as values)."""


@dataclass(frozen=True)
class Axis:
    """An upright axis of a plot with parallel coordinates."""

    name: str
    x: int
    marks: list[Mark]


@dataclass(frozen=True)
class ParallelPlot:
    """A line for each job across several axes."""

    axes: list[Axis]
    lines: list[Dot]


def line_plot(chart: Chart) -> Plot | None:
    """Return the plot of a chart; None if it has no numbers to draw."""
    found = scales(chart.series)
    if found is None:
        return None
    across, upwards = found
    lines, hover = [], []
    for number, one in enumerate(chart.series):
        paths, dots = [], []
        for part in lines_of(one.points):
            drawn = thin_out((_x(across, x), _y(upwards, y)) for x, y in part)
            if len(drawn) == 1:
                dots.append(drawn[0])
            else:
                paths.append("M" + "L".join(f"{x} {y}" for x, y in drawn))
        lines.append(Line(one_line(one.name), number % COLOURS, paths, dots))
        points = [point for part in lines_of(one.points) for point in part]
        step = max(1, math.ceil(len(points) / MOST_HOVERED))
        kept = points[::step] + points[-1:]
        hover.append([one_line(one.name), [[_x(across, x), _y(upwards, y), x, y] for x, y in kept]])
    return Plot(one_line(chart.title), *_marks(across, upwards), lines, hover=json.dumps(hover))


def scatter_plot(title: str, points: Sequence[tuple[str, float, float]]) -> Plot | None:
    """Return a dot for each job: its name, x and y."""
    drawn = [point for point in points if math.isfinite(point[1]) and math.isfinite(point[2])]
    if not drawn:
        return None
    across, upwards = _scale([x for _, x, _ in drawn]), _scale([y for _, _, y in drawn])
    dots = [
        Dot(name, _x(across, x), _y(upwards, y), hue=_hue(upwards, y), values=f"{label(x)}, {label(y)}")
        for name, x, y in drawn
    ]
    return Plot(one_line(title), *_marks(across, upwards), dots=dots)


def parallel_plot(columns: Sequence[str], rows: Sequence[tuple[str, Sequence[object]]]) -> ParallelPlot:
    """Return a line for each job: its name, and its values in the order of the columns.

    Texts are placed in their order; the colour of a line shows its value in the last column.
    """
    places = [_Places([values[at] for _, values in rows]) for at in range(len(columns))]
    room = WIDTH - 2 * LEFT
    xs = [LEFT + round(room * at / max(1, len(columns) - 1)) for at in range(len(columns))]
    axes = [
        Axis(one_line(name), x, place.marks()) for name, x, place in zip(columns, xs, places, strict=True)
    ]
    lines = []
    for name, values in rows:
        at = [(x, place.y(value)) for x, place, value in zip(xs, places, values, strict=True)]
        dots = [f"{x} {y}" for x, y in at if y is not None]
        if len(dots) > 1:
            hue = places[-1].hue(values[-1])
            shown = ", ".join(
                f"{column} {_word(value)}" for column, value in zip(columns, values, strict=True)
            )
            lines.append(Dot(name, path="M" + "L".join(dots), hue=hue, values=one_line(shown)))
    return ParallelPlot(axes, lines)


class _Places:
    """Where values of one column are on its axis."""

    def __init__(self, values: Sequence[object]) -> None:
        numbers = [value for value in values if is_number(value)]
        self._texts: list[str] = []
        if numbers and len(numbers) == sum(value is not None for value in values):
            self._scale = _scale(numbers)
        else:
            self._texts = sorted({_word(value) for value in values if value is not None})
            self._scale = Scale(0, max(1, len(self._texts) - 1))

    def _number(self, value: object) -> float | None:
        if value is None:
            return None
        if self._texts:
            return self._texts.index(_word(value))
        return value if is_number(value) else None

    def y(self, value: object) -> int | None:
        found = self._number(value)
        return None if found is None else _y(self._scale, found)

    def hue(self, value: object) -> int:
        found = self._number(value)
        return 0 if found is None else _hue(self._scale, found)

    def marks(self) -> list[Mark]:
        if self._texts:
            return [Mark(_y(self._scale, at), one_line(text)[:16]) for at, text in enumerate(self._texts)]
        values = dict.fromkeys(self._scale.at(part) for part in (0.0, 0.5, 1.0))
        return [Mark(_y(self._scale, value), label(value)) for value in values]


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value can be placed on a scale."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _word(value: object) -> str:
    return label(value) if isinstance(value, float) else "" if value is None else str(value)


def _scale(values: Sequence[float]) -> Scale:
    return Scale(min(values), max(values))


def _marks(across: Scale, upwards: Scale) -> tuple[list[Mark], list[Mark]]:
    is_whole = float(across.low).is_integer() and float(across.high).is_integer()
    xs = dict.fromkeys(round(across.at(part)) if is_whole else across.at(part) for part in MARKS)
    ys = dict.fromkeys(upwards.at(part) for part in MARKS)
    return [Mark(_x(across, x), label(x)) for x in xs], [Mark(_y(upwards, y), label(y)) for y in ys]


def _x(scale: Scale, value: float) -> int:
    return LEFT + scale.step_of(value, WIDTH - LEFT - RIGHT + 1)


def _y(scale: Scale, value: float) -> int:
    return HEIGHT - BOTTOM - scale.step_of(value, HEIGHT - TOP - BOTTOM + 1)


def _hue(scale: Scale, value: float) -> int:
    return scale.step_of(value, HUES)
