"""The points of one metric as columns of numbers, and a selection of them that is enough to draw it."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from openpai_tasks.lazy_dataclass import dataclass

STRETCHES = 1000
"""Parts of a long metric of which the lowest and the highest point are kept."""
MOST_KEPT = 2 * STRETCHES
"""Points up to which a metric is kept whole."""
MOST_HELD = 1 << 15
"""Points in memory before they are thinned out."""


class MetricPoint(NamedTuple):
    """One recorded value; ``step`` is None if the program gave none, ``time`` is in seconds since 1970."""

    value: float
    step: float | None
    time: float
    attempt: int


@dataclass(frozen=True)
class MetricSummary:
    """Exact numbers about all points of a metric; the lowest and highest without infinities and NaN."""

    count: int
    last: float
    min: float | None
    max: float | None
    step: float | None


class PointColumns:
    """Points in the order in which they were recorded.

    If ``is_thinned``, a long series is divided into stretches of equal length. Of each, only the lowest and
    the highest point stay, and one that is not finite, which interrupts a line. The first and the last point
    of all stay, too. The summary is always exact.
    """

    def __init__(self, is_thinned: bool) -> None:
        self.is_thinned = is_thinned
        self.count = 0
        self.first_step: float | None = None
        self._low, self._high = math.inf, -math.inf
        self._is_finite = True
        self._stretch = 1  # recorded points in a stretch
        self._places = array("q")  # of the kept points among all
        self._attempts = array("q")
        self._values, self._steps, self._times = array("d"), array("d"), array("d")  # no step: NaN

    def __iter__(self) -> Iterator[MetricPoint]:
        """Yield the kept points; where they are a selection, a point without a step has its place as step."""
        has_places = self._stretch > 1
        for place, attempt, value, step, time in zip(*self._columns, strict=True):
            number = place if math.isnan(step) and has_places else _step(step)
            yield MetricPoint(value, number, time, attempt)

    @property
    def is_whole(self) -> bool:
        """Whether all points are kept."""
        return self._stretch == 1

    @property
    def summary(self) -> MetricSummary:
        low, high = (value if math.isfinite(value) else None for value in (self._low, self._high))
        return MetricSummary(self.count, self._values[-1], low, high, _step(self._steps[-1]))

    def extend(self, attempt: int, values: array[float], steps: array[float], times: array[float]) -> None:
        """Add points of one attempt; NaN stands for a missing step."""
        if not values:
            return
        if not self.count:
            self.first_step = _step(steps[0])
        finite = values if all(map(math.isfinite, values)) else list(filter(math.isfinite, values))
        self._is_finite = self._is_finite and len(finite) == len(values)
        self._low = min(self._low, min(finite, default=math.inf))
        self._high = max(self._high, max(finite, default=-math.inf))
        self._places.extend(range(self.count, self.count + len(values)))
        self._attempts.extend([attempt] * len(values))
        self._values.extend(values)
        self._steps.extend(steps)
        self._times.extend(times)
        self.count += len(values)
        if len(self._values) > MOST_HELD:
            self.thin_out()

    def as_json(self) -> list[Any]:
        """Return everything as a value for ``from_json``."""
        self.thin_out()
        state = [self.count, self.first_step, self._low, self._high, self._is_finite, self._stretch]
        return [*state, *(column.tolist() for column in self._columns)]

    @classmethod
    def from_json(cls, value: Any) -> PointColumns:
        """Return points that were kept; ValueError, TypeError or OverflowError if the value is damaged."""
        found = cls(is_thinned=True)
        count, first, low, high, is_finite, stretch, *columns = value
        found.count, found._is_finite, found._stretch = int(count), bool(is_finite), int(stretch)
        found.first_step = None if first is None else float(first)
        found._low, found._high = float(low), float(high)
        for column, numbers in zip(found._columns, columns, strict=True):
            column.extend(numbers)
        if not 0 < len(found._places) == min(map(len, columns)) == max(map(len, columns)) <= found.count:
            raise ValueError("columns of different lengths")
        if found._stretch < 1 or max(found._places) >= found.count:
            raise ValueError("points outside of the series")
        return found

    @property
    def _columns(self) -> tuple[array[Any], ...]:
        return self._places, self._attempts, self._values, self._steps, self._times

    def before(self, step: float) -> tuple[array[float], array[float], array[float]]:
        """Return the points below a step, and those without one."""
        if step == math.inf:
            return self._values, self._steps, self._times
        chosen = [number for number, one in enumerate(self._steps) if not one >= step]
        return _pick(self._values, chosen), _pick(self._steps, chosen), _pick(self._times, chosen)

    def thin_out(self) -> None:
        """Leave out points that no picture needs, if there are many and they may be left out."""
        if not self.is_thinned or len(self._values) <= MOST_KEPT:
            return
        while self.count > STRETCHES * self._stretch:
            self._stretch *= 2
        chosen = sorted({0, len(self._values) - 1, *self._extremes()})
        self._places, self._attempts, self._values, self._steps, self._times = (
            _pick(column, chosen) for column in self._columns
        )

    def _extremes(self) -> Iterator[int]:
        begin = 0
        while begin < len(self._places):
            limit = (self._places[begin] // self._stretch + 1) * self._stretch
            end = bisect_left(self._places, limit, begin)
            yield from self._extremes_of(begin, end)
            begin = end

    def _extremes_of(self, begin: int, end: int) -> Iterator[int]:
        """Yield the places of the lowest and the highest value in a range, and of one that is not finite."""
        part = self._values[begin:end]
        if self._is_finite:
            yield from (begin + part.index(min(part)), begin + part.index(max(part)))
            return
        groups: dict[bool, list[int]] = {False: [], True: []}
        for number, value in enumerate(part):
            groups[math.isfinite(value)].append(number)
        yield from (begin + number for number in groups[False][:1])
        if finite := groups[True]:
            yield from (begin + choose(finite, key=part.__getitem__) for choose in (min, max))


def _pick(column: array[Any], chosen: Iterable[int]) -> array[Any]:
    return array(column.typecode, map(column.__getitem__, chosen))


def _step(step: float) -> float | None:
    """Return a step as it is shown; NaN is none."""
    return None if math.isnan(step) else int(step) if step.is_integer() else step
