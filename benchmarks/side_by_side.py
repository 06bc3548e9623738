"""Time contenders side by side.

In each round every contender takes one turn, in shuffled order, so that a busy machine disturbs all alike.
A ratio is taken within a round; the median of the rounds counts, and the spread shows how steady it is.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

OURS = "ours"

Turn = Callable[[], float | None]
"""One turn of a contender; returns its seconds if it measures them itself."""

Topic = Callable[[Path], Iterator["Comparison"]]
"""Yields comparisons, which are run one by one; the folder is empty and is removed afterwards."""


@dataclass(frozen=True)
class Comparison:
    """Contenders for the same work; one of them is ``ours``."""

    what: str
    contenders: Mapping[str, Turn]
    goals: Mapping[str, float] = field(default_factory=dict)  # peer -> the largest ratio
    amount: float = 1.0  # of work in a turn
    unit: str = ""  # of the amount: "files", "MiB"; without it, the table shows seconds
    rounds: int = 5  # unless the caller asks for another number


@dataclass(frozen=True)
class ResultRow:
    """A line of the results: how many times as long ours takes as a peer."""

    what: str
    ours: str
    peer: str
    theirs: str
    ratio: float  # the median of the rounds
    low: float
    high: float
    goal: float | None
    rounds: int

    @property
    def is_met(self) -> bool:
        return self.goal is None or self.ratio <= self.goal


@dataclass(frozen=True)
class Outcome:
    """The seconds of every turn, by contender."""

    what: str
    seconds: Mapping[str, list[float]]
    goals: Mapping[str, float]
    amount: float
    unit: str

    def rows(self) -> list[ResultRow]:
        return [self._row(peer) for peer in self.seconds if peer != OURS]

    def value(self, contender: str) -> str:
        """Return the median of a contender, in seconds or as a rate."""
        median = statistics.median(self.seconds[contender])
        if self.unit:
            return f"{self.amount / median:,.0f} {self.unit}/s"
        return f"{median:.2f} s" if median >= 1 else f"{median * 1000:.1f} ms"

    def _row(self, peer: str) -> ResultRow:
        found = [ours / theirs for ours, theirs in zip(self.seconds[OURS], self.seconds[peer], strict=True)]
        values = self.value(OURS), peer, self.value(peer)
        ratios = (round(ratio, 3) for ratio in (statistics.median(found), min(found), max(found)))
        return ResultRow(self.what, *values, *ratios, self.goals.get(peer), len(found))


def run(comparison: Comparison, rounds: int | None = None) -> Outcome:
    """Run the comparison; an extra round at the start warms up and does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in comparison.contenders}
    for number in range((comparison.rounds if rounds is None else rounds) + 1):
        order = random.sample(list(comparison.contenders), len(comparison.contenders))
        for name in order:
            start = time.perf_counter()
            own = comparison.contenders[name]()
            took = time.perf_counter() - start if own is None else own
            if number:
                seconds[name].append(took)
    return Outcome(comparison.what, seconds, comparison.goals, comparison.amount, comparison.unit)
