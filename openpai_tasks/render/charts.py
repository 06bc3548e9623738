"""Charts: their scales, round ticks and thinned points, and their drawing on a terminal.

A terminal shows lines of Braille dots, or of a character for each series without colours.
"""

from __future__ import annotations

import bisect
import itertools
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.text.plain import one_line, width

COLOURS = (
    *("#077ef0", "#ea630c", "#0c853d", "#be47b8", "#b18e15", "#0f9293"),
    *("#c92516", "#8a7cfd", "#7d9400", "#ed4f8d", "#9b6a4f", "#7c8794"),
)
"""The colours of series, in turn; each has a contrast of 3 or more on white and on the dark pages."""
DASHES = ("", "7 3", "2 3", "9 3 2 3", "14 4")
"""The dashes of series after each turn of the colours."""
MARKS = "*+xo#@%&=~"
"""The characters of series, in turn, where colours cannot distinguish them."""
HEIGHT, LEAST_HEIGHT = 12, 3
"""Lines of a plot, and of one on a low screen."""
LEAST = 20  # columns of the smallest chart
LEGEND = 12
"""The most series that are named below a chart."""
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # of a Braille character, by row and column
_TIME_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200)

_first = operator.itemgetter(0)

Point = tuple[float, float]
Segment = tuple[str, int | None]
"""Text, and the number of the series that it shows, if any."""


@dataclass(frozen=True)
class Series:
    """Points of a chart, as pairs of x and y."""

    name: str
    points: Sequence[Point]


@dataclass(frozen=True)
class Chart:
    """Lines over a common axis, such as the loss of several jobs by step."""

    title: str
    series: Sequence[Series]
    x: str = "step"
    """The title of the x axis; ``time`` is in seconds and shown as durations."""
    best: Literal["min", "max"] | None = None
    """Whether the lowest or the highest point is marked."""
    from_zero: bool = False
    """Whether the y axis begins at 0, as for amounts."""

    @property
    def is_time(self) -> bool:
        return self.x == "time"

    @property
    def is_whole(self) -> bool:
        """Whether x has whole numbers only."""
        return all(float(x).is_integer() for one in self.series for x, _ in one.points)

    def best_point(self) -> tuple[int, float, float] | None:
        """Return the number of the series with the best point, and the point."""
        points = [(y, -n, x) for n, one in enumerate(self.series) for x, y in one.points if is_drawn((x, y))]
        if not self.best or not points:
            return None
        y, number, x = max(points) if self.best == "max" else min(points, key=lambda point: point[0])
        return -number, x, y

    def __str__(self) -> str:
        """Draw the chart without colours, as wide as the terminal."""
        import shutil

        lines = draw(self, shutil.get_terminal_size().columns, is_coloured=False)
        return "\n".join("".join(part for part, _ in line).rstrip() for line in lines)


@dataclass(frozen=True)
class Scale:
    """A range of values; one value alone is in its middle. A logarithmic one has positive values only."""

    low: float
    high: float
    is_log: bool = False

    def part(self, value: float) -> float:
        """Return how far the value is from the low end, as a part of the whole."""
        low, high = self.low, self.high
        if self.is_log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        width = high / 2 - low / 2  # halves, as the difference of two large numbers can be infinite
        return (value / 2 - low / 2) / width if width else 0.5

    def at(self, part: float) -> float:
        """Return the value at this part of the whole."""
        if self.is_log:
            return math.exp(math.log(self.low) * (1 - part) + math.log(self.high) * part)
        return self.low * (1 - part) + self.high * part

    def step_of(self, value: float, steps: int) -> int:
        """Return the step, from 0 to ``steps - 1``, on which the value is."""
        if self.low == self.high:
            return steps // 2
        return min(steps - 1, max(0, round(self.part(value) * (steps - 1))))


def scale_of(values: Sequence[float]) -> Scale:
    """Return the scale of some numbers: logarithmic for values such as 0.001, 0.01 and 0.1."""
    known = sorted(set(values))
    scale = Scale(known[0], known[-1])
    is_spread = len(known) > 2 and known[0] > 0 and known[-1] / known[0] >= 10
    is_log = is_spread and scale.part(known[len(known) // 2]) < 0.25
    return Scale(scale.low, scale.high, is_log)


def scales(chart: Chart) -> tuple[Scale, Scale] | None:
    """Return the scales of all points that can be drawn; None if there is no such point."""
    points = [point for one in chart.series for point in one.points if is_drawn(point)]
    if not points:
        return None
    xs, ys = zip(*points, strict=True)
    ends = [*ys, *[0.0] * chart.from_zero]
    return Scale(min(xs), max(xs)), Scale(min(ends), max(ends))


def is_drawn(point: Point) -> bool:
    return math.isfinite(point[0]) and math.isfinite(point[1])


# Ticks; the portal's plots.js chooses the same ones


def ticks(scale: Scale, most: int, is_whole: bool = False, is_time: bool = False) -> list[tuple[float, str]]:
    """Return round numbers of the scale and their labels: multiples of 1, 2 or 5, or of a unit of time."""
    if scale.low == scale.high:
        return [(scale.low, duration(scale.low) if is_time else label(scale.low))]
    found = _log_ticks(scale, most) if scale.is_log else []
    if len(found) > 2:
        return [(value, label(value)) for value in found]
    step = _step(scale.high / most - scale.low / most, is_whole, is_time)
    if scale.low + step == scale.low or not step:
        return [(value, label(value)) for value in (scale.low, scale.high)]
    first, last = math.ceil(scale.low / step - 1e-9), math.floor(scale.high / step + 1e-9)
    values = [number * step for number in range(first, last + 1)]
    return [(value, duration(value) if is_time else _label(value, step, scale)) for value in values]


def _log_ticks(scale: Scale, most: int) -> list[float]:
    """Return the powers of ten of the scale; if there are few, twice and five times them, too."""
    low, high = math.floor(math.log10(scale.low)), math.ceil(math.log10(scale.high))
    powers = range(low, high + 1, max(1, math.ceil((high - low) / most)))
    for digits in ((1,), (1, 2, 5)):
        values = (float(f"{digit}e{power}") for power in powers for digit in digits)
        found = [value for value in values if scale.low * (1 - 1e-9) <= value <= scale.high * (1 + 1e-9)]
        if len(found) > 2:
            break
    return found


def _step(least: float, is_whole: bool, is_time: bool) -> float:
    """Return the round step that is at least this."""
    least *= 1 - 1e-9  # which may have been rounded up
    if is_time and least > 1:
        found = next((step for step in _TIME_STEPS if step >= least), None)
        return found or 86400 * _step(least / 86400, True, False)
    power = 10.0 ** math.floor(math.log10(least)) if least else 0.0
    step = next((digit * power for digit in (1, 2, 5) if digit * power >= least), 10 * power)
    return max(1.0, step) if is_whole else step


def label(value: float, digits: int = 4) -> str:
    """Format a number of an axis."""
    number, exponent, power = f"{value:.{digits}g}".partition("e")
    return number + (f"e{int(power)}" if exponent else "")


def _label(value: float, step: float, scale: Scale) -> str:
    """Format a multiple of a step with as many digits as the step needs."""
    largest = max(abs(scale.low), abs(scale.high))
    power = math.floor(math.log10(step) + 1e-9)
    if largest < 1e6 and power > -7:
        return f"{value:.{max(0, -power)}f}"
    return label(value, max(1, min(17, math.floor(math.log10(largest)) - power + 1)))


def duration(seconds: float) -> str:
    """Format a time of an axis, in its two largest units."""
    if abs(seconds) < 60:
        return f"{label(seconds)}s"
    if seconds < 0:
        return f"-{duration(-seconds)}"
    for name, size, lower, part in (("d", 86400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if seconds >= size:
            whole, rest = divmod(round(seconds / part), size // part)
            return f"{whole}{name}" + (f" {rest}{lower}" if rest else "")
    return ""


# Lines


def by_x(points: Sequence[Point]) -> Sequence[Point]:
    """Return the points in the order of x, without those that have none."""
    if not all(map(math.isfinite, map(_first, points))):
        points = [point for point in points if math.isfinite(point[0])]
    return sorted(points, key=_first)


def lines_of(points: Sequence[Point]) -> Iterator[list[Point]]:
    """Yield the parts of a line, by x; a value that is no number interrupts it."""
    for is_line, part in itertools.groupby(by_x(points), is_drawn):
        if is_line:
            yield list(part)


def thin(
    chart: Chart, columns: int, low: float = -math.inf, high: float = math.inf, is_log: bool = False
) -> Chart:
    """Return the chart with about two points of each line for each column: the lowest and the highest.

    Of a part of it, from ``low`` to ``high``, the next points outside are kept, as lines lead to them.
    """
    ordered = [by_x(one.points) for one in chart.series]
    if is_log:
        ordered = [[point for point in points if point[0] > 0] for points in ordered]
    ends = [point[0] for points in ordered for point in (*points[:1], *points[-1:])]
    scale = Scale(max(low, min(ends, default=1)), min(high, max(ends, default=1)), is_log)
    lines = [_thin(points, scale, columns) for points in ordered]
    return replace(
        chart, series=[Series(one.name, line) for one, line in zip(chart.series, lines, strict=True)]
    )


def _thin(ordered: Sequence[Point], scale: Scale, columns: int) -> list[Point]:
    xs = list(map(_first, ordered))
    first, last = bisect.bisect_left(xs, scale.low), bisect.bisect_right(xs, scale.high)
    if last - first <= 2 * columns:
        return list(ordered[max(0, first - 1) : last + 1])
    edges = [bisect.bisect_left(xs, scale.at(at / columns), first, last) for at in range(1, columns)]
    kept = list(ordered[max(0, first - 1) : first])
    for begin, end in itertools.pairwise((first, *edges, last)):
        kept += _extremes(ordered[begin:end])
    return kept + list(ordered[last : last + 1])


def _extremes(points: Sequence[Point]) -> Sequence[Point]:
    """Return the lowest and the highest point, and the first and the last interruption, in their order."""
    if len(points) < 3:
        return points
    values = [y for _, y in points]
    numbers = [y for y in values if math.isfinite(y)]
    kept = {values.index(min(numbers)), values.index(max(numbers))} if numbers else set()
    if len(numbers) < len(values):
        gaps = [at for at, y in enumerate(values) if not math.isfinite(y)]
        kept |= {gaps[0], gaps[-1]}
    return [points[at] for at in sorted(kept)]


# On a terminal


def draw(chart: Chart, columns: int, is_coloured: bool, height: int = HEIGHT) -> list[list[Segment]]:
    """Return the lines of the chart: title, plot of so many lines, axis with its name, and legend."""
    chart = thin(chart, 2 * columns)
    found = scales(chart)
    if found is None:
        return [[(f"{one_line(chart.title)}: no numbers to draw", None)]]
    across, upwards = found
    labels = {
        height - 1 - upwards.step_of(value, 4 * height) // 4: text
        for value, text in ticks(upwards, max(2, height // 2))
    }
    margin = max(map(len, labels.values()))
    room = max(LEAST, columns - margin - 2)
    canvas = Canvas(room, height)
    for number, one in enumerate(chart.series):
        for part in lines_of(one.points):
            canvas.line(
                [(across.step_of(x, 2 * room), upwards.step_of(y, 4 * height)) for x, y in part], number
            )
    is_braille = is_coloured or len(chart.series) == 1
    lines: list[list[Segment]] = [[(_cut(one_line(chart.title), columns), None)]]
    for row in range(height):
        begin = f"{labels.get(row, ''):>{margin}} {'┤' if row in labels else '│'}"
        lines.append([(begin, None), *canvas.row(row, is_braille)])
    marks = ticks(across, max(2, room // 12), chart.is_whole, chart.is_time)
    axis, under = _axis([(across.step_of(value, room), text) for value, text in marks], room)
    name = _cut(one_line(chart.x), room)
    below = (
        f"{'':>{margin}} └{axis}",
        f"{'':>{margin + 2}}{under}",
        f"{'':>{margin + 2}}{name:^{room}}".rstrip(),
    )
    lines += [[(line, None)] for line in below]
    return lines + _legend(chart.series, columns, is_braille)


def _axis(marks: Sequence[tuple[int, str]], room: int) -> tuple[str, str]:
    """Return the axis with a sign at each mark, and the texts below it, each below its mark."""
    axis, under = ["─"] * room, ""
    for at, text in marks:
        axis[at] = "┬"
        begin = min(max(0, at - len(text) // 2), room - len(text))
        if not under or begin > len(under):
            under = f"{under:<{begin}}{text}"
    return "".join(axis), under


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


def metric_charts(
    metrics: Sequence[Any], x: str = "step", recorded: Sequence[Any] | None = None, name_jobs: bool = False
) -> list[Chart]:
    """Return a chart for each name, with a line for each job and task, by step, time or epoch.

    ``recorded`` are all metrics of these jobs, which have their start and their epochs. With ``name_jobs``,
    the name of the job is also at a line that has its chart to itself.
    """
    by_name: dict[str, list[Any]] = {}
    for metric in metrics:
        by_name.setdefault(metric.name, []).append(metric)
    place = _X_OF[x](metrics if recorded is None else recorded)
    return [Chart(name, _series(group, place, name_jobs), x) for name, group in by_name.items()]


def x_choices(metrics: Sequence[Any]) -> list[str]:
    """Return what these metrics can be drawn by; by epoch if a metric with this name has steps."""
    has_epochs = any(metric.name == "epoch" and metric.step is not None for metric in metrics)
    return ["step", "time", *["epoch"] * has_epochs]


def _series(
    group: Sequence[Any], place: Callable[[Any, int, Any], float | None], name_jobs: bool
) -> list[Series]:
    """Return a line for each metric, named by what distinguishes it from the others: job, task or both."""
    jobs = len({metric.job for metric in group})
    has_jobs, has_tasks = name_jobs or jobs > 1, len(group) > jobs
    found = []
    for metric in group:
        placed = [(place(metric, number, point), point.value) for number, point in enumerate(metric.points)]
        points = [(x, y) for x, y in placed if x is not None]
        found.append(Series(" ".join([metric.job] * has_jobs + [metric.task] * has_tasks), points))
    return found


def _by_step(_: Sequence[Any]) -> Callable[[Any, int, Any], float | None]:
    return lambda metric, number, point: number if point.step is None else point.step


def _by_time(metrics: Sequence[Any]) -> Callable[[Any, int, Any], float | None]:
    """Place points by the time since the first point of their job."""
    starts: dict[str, float] = {}
    for metric in metrics:
        first = min((point.time for point in metric.points), default=math.inf)
        starts[metric.job] = min(first, starts.get(metric.job, math.inf))
    return lambda metric, number, point: point.time - starts[metric.job]


def _by_epoch(metrics: Sequence[Any]) -> Callable[[Any, int, Any], float | None]:
    """Place points by the metric ``epoch`` that their task recorded at the same step."""
    epochs = {
        (metric.job, metric.task): {point.step: point.value for point in metric.points}
        for metric in metrics
        if metric.name == "epoch"
    }
    return lambda metric, number, point: epochs.get((metric.job, metric.task), {}).get(point.step)


_X_OF = {"step": _by_step, "time": _by_time, "epoch": _by_epoch}
X_AXES = tuple(_X_OF)
