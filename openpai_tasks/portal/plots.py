"""Plots: the numbers that a script draws as lines, and where dots, lines and labels of sweeps are."""

from __future__ import annotations

import json
import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

from openpai_tasks import render
from openpai_tasks.errors import ConfigError, NotFound
from openpai_tasks.portal.request import whole_number
from openpai_tasks.render.charts import Chart, Scale, duration, label, scale_of, thin, ticks
from openpai_tasks.sdk.jobs.metrics import Metric
from openpai_tasks.text.plain import one_line

MOST_LINES = 50
COLUMNS, MOST_COLUMNS = 640, 4000
"""Columns of pixels of a line plot, unless its script says how many."""
WIDTH, HEIGHT = 640, 280
LEFT, RIGHT, TOP, BOTTOM = 76, 20, 12, 44
HUES = 9
"""Steps of colour from the lowest to the highest value."""


# Lines


@dataclass(frozen=True)
class Plot:
    """A line plot, which the script plots.js draws."""

    title: str
    data: str
    """JSON: the lines as lists of x and y, and what the axes need."""
    best: str = ""
    """The best value and where it is."""
    source: str = ""
    """The address of finer data, and of the same metric by another x."""
    left_out: int = 0


def line_plot(
    chart: Chart, source: str = "", choices: Sequence[str] = (), columns: int = COLUMNS
) -> Plot | None:
    """Return the plot of a chart; None if it has no numbers to draw.

    ``choices`` are the x axes that the data at ``source`` can have.
    """
    data = plot_data(chart, columns)
    if not any(y is not None for line in data["series"] for y in line["y"]):
        return None
    data["xs"] = list(choices) or [chart.x]
    text = json.dumps(data, separators=(",", ":"))
    return Plot(data["title"], text, _best(chart, data), source, max(0, len(chart.series) - MOST_LINES))


def plot_data(
    chart: Chart,
    columns: int | None,
    low: float = -math.inf,
    high: float = math.inf,
    is_log: bool = False,
) -> dict[str, Any]:
    """Return the numbers of a plot, or of a part of it, that has these columns of pixels; None for all."""
    lines = replace(chart, series=chart.series[:MOST_LINES])
    count = sum(len(one.points) for one in lines.series)
    thinned = thin(lines, count if columns is None else columns, low, high, is_log)
    return {
        "title": one_line(chart.title),
        "x": one_line(chart.x),
        "whole": thinned.is_whole,
        "zero": chart.from_zero,
        "thin": count > sum(len(one.points) for one in thinned.series),
        "best": thinned.best_point(),
        "series": [
            {
                "name": one_line(one.name),
                "x": [_digits(x, 12) for x, _ in one.points],
                "y": [_digits(y, 17 if columns is None else 7) for _, y in one.points],
            }
            for one in thinned.series
        ],
    }


def _digits(value: float, digits: int) -> float | None:
    """Return a number with fewer digits; None if it is none."""
    if isinstance(value, int):
        return value
    return float(f"{value:.{digits}g}") if math.isfinite(value) else None


def _best(chart: Chart, data: Mapping[str, Any]) -> str:
    """Return a sentence such as 'lowest 0.25 at step 40, train-2'."""
    if not data["best"]:
        return ""
    number, x, y = data["best"]
    where = duration(x) if chart.is_time else f"{chart.x} {label(x, 10)}"
    name = one_line(chart.series[number].name)
    return f"{'lowest' if chart.best == 'min' else 'highest'} {label(y, 6)} at {where}" + (
        f", {name}" if name else ""
    )


def metric_data(
    metrics: Sequence[Metric], query: Mapping[str, str], name_jobs: bool = False
) -> dict[str, Any]:
    """Return the numbers of one metric, for the x axis, the part and the columns that a plot asks for."""
    x, name = query.get("x") or "step", query.get("metric", "")
    shown = [metric for metric in metrics if metric.name == name]
    if not shown:
        raise NotFound(f"no metric {name!r}", 404)
    if x not in (choices := render.x_choices(metrics)):
        raise ConfigError(f"invalid x axis {x!r}: expected one of {', '.join(choices)}")
    [chart] = render.metric_charts(shown, x, metrics, name_jobs)
    low, high = _number(query, "from", -math.inf), _number(query, "to", math.inf)
    columns = query.get("columns", "")
    wanted = None if columns == "all" else min(MOST_COLUMNS, whole_number(columns) or COLUMNS)
    return plot_data(chart, wanted, low, high, bool(query.get("log")))


def _number(query: Mapping[str, str], name: str, default: float) -> float:
    try:
        found = float(query.get(name) or default)
    except ValueError:
        found = math.nan
    if math.isnan(found):
        raise ConfigError(f"invalid number {query[name]!r} for {name}")
    return found


# Sweeps


@dataclass(frozen=True)
class Mark:
    """A label of an axis and its place."""

    at: int
    text: str


@dataclass(frozen=True)
class Dot:
    """A dot or a line for one job."""

    name: str
    values: str
    hue: int
    is_best: bool
    x: int = 0
    y: int = 0
    path: str = ""


@dataclass(frozen=True)
class ColourScale:
    """What the colours mean: the name of a column, and its lowest, middle and highest value."""

    name: str
    labels: Sequence[str]


@dataclass(frozen=True)
class ScatterPlot:
    """A dot for each job on two axes."""

    across: list[Mark]
    upwards: list[Mark]
    dots: list[Dot]
    colours: ColourScale


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
    colours: ColourScale | None


def scatter_plot(
    title: str, points: Sequence[tuple[str, float, float]], best: Container[str] = ()
) -> ScatterPlot | None:
    """Return a dot for each job: its name, x and y, coloured by y; ``title`` names y."""
    drawn = [point for point in points if math.isfinite(point[1]) and math.isfinite(point[2])]
    if not drawn:
        return None
    across, upwards = scale_of([x for _, x, _ in drawn]), scale_of([y for _, _, y in drawn])
    is_whole = all(float(x).is_integer() for _, x, _ in drawn)
    dots = [
        Dot(
            *(name, f"{label(x)}, {label(y)}", upwards.step_of(y, HUES), name in best),
            *(_x(across, x), _y(upwards, y)),
        )
        for name, x, y in drawn
    ]
    return ScatterPlot(
        [Mark(_x(across, value), text) for value, text in ticks(across, 7, is_whole)],
        [Mark(_y(upwards, value), text) for value, text in ticks(upwards, 6)],
        sorted(dots, key=lambda dot: dot.is_best),
        _colours(title, upwards),
    )


def parallel_plot(
    columns: Sequence[str], rows: Sequence[tuple[str, Sequence[object]]], best: Container[str] = ()
) -> ParallelPlot:
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
            lines.append(Dot(name, one_line(shown), hue, name in best, path="M" + "L".join(dots)))
    lines.sort(key=lambda line: line.is_best)
    return ParallelPlot(axes, lines, places[-1].colours(columns[-1]))


class _Places:
    """Where values of one column are on its axis."""

    def __init__(self, values: Sequence[object]) -> None:
        numbers = [value for value in values if is_number(value)]
        self._texts: list[str] = []
        self._is_whole = all(float(value).is_integer() for value in numbers)
        if numbers and len(numbers) == sum(value is not None for value in values):
            self._scale = scale_of(numbers)
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
        return 0 if found is None else self._scale.step_of(found, HUES)

    def marks(self) -> list[Mark]:
        if self._texts:
            return [Mark(_y(self._scale, at), one_line(text)[:16]) for at, text in enumerate(self._texts)]
        return [Mark(_y(self._scale, value), text) for value, text in ticks(self._scale, 6, self._is_whole)]

    def colours(self, name: str) -> ColourScale | None:
        return None if self._texts else _colours(name, self._scale)


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value can be placed on a scale."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _word(value: object) -> str:
    return label(value) if isinstance(value, float) else "" if value is None else str(value)


def _colours(name: str, scale: Scale) -> ColourScale:
    return ColourScale(one_line(name), [label(scale.at(part), 3) for part in (0.0, 0.5, 1.0)])


def _x(scale: Scale, value: float) -> int:
    return LEFT + scale.step_of(value, WIDTH - LEFT - RIGHT + 1)


def _y(scale: Scale, value: float) -> int:
    return HEIGHT - BOTTOM - scale.step_of(value, HEIGHT - TOP - BOTTOM + 1)
