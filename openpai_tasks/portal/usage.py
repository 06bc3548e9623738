"""Amounts over time: samples that are taken while somebody looks, and lines to draw."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

MOST_SAMPLES = 720
MOST_SERIES = 100
LEAST_PAUSE = 2.0
WIDTH, HEIGHT = 1000, 160


class UsageSamples:
    """The last samples of several series, each with its time in ms."""

    def __init__(self) -> None:
        self._known: dict[object, deque[tuple[int, float]]] = {}
        self._lock = threading.Lock()

    def add(self, series: object, value: float) -> Sequence[tuple[int, float]]:
        """Add a value now, unless another page has just done so; return all samples of the series."""
        now = int(time.time() * 1000)
        with self._lock:
            if series not in self._known and len(self._known) >= MOST_SERIES:
                del self._known[next(iter(self._known))]
            found = self._known.setdefault(series, deque(maxlen=MOST_SAMPLES))
            if not found or now - found[-1][0] >= LEAST_PAUSE * 1000 or found[-1][1] != value:
                found.append((now, value))
            return tuple(found)


@dataclass(frozen=True)
class UsageLine:
    """A line to draw in a box of WIDTH by HEIGHT, from ``start`` to ``end`` (ms) and 0 to ``top``."""

    points: str
    start: int
    end: int
    top: float
    values: tuple[float, ...]
    width: int = WIDTH
    height: int = HEIGHT

    @property
    def last(self) -> float:
        return self.values[-1]

    @property
    def average(self) -> float:
        return sum(self.values) / len(self.values)


def draw(samples: Sequence[tuple[int, float]], top: float) -> UsageLine | None:
    """Return the line through samples; None if there are too few."""
    if len(samples) < 2:
        return None
    start, end = samples[0][0], samples[-1][0]
    top = max(top, 1.0, *(value for _, value in samples))
    across, upwards = WIDTH / max(end - start, 1), HEIGHT / top
    dots = " ".join(f"{(at - start) * across:.0f},{HEIGHT - value * upwards:.1f}" for at, value in samples)
    return UsageLine(dots, start, end, top, tuple(value for _, value in samples))
