"""Retry policy for clusters and storages."""

from __future__ import annotations

import math
import random
from typing import NamedTuple

MOST_STEPS = 64
"""Pauses stop growing after this many steps, before a float would overflow."""


class RetryPolicy(NamedTuple):
    """A number of tries with growing, slightly random pauses, within a budget of seconds."""

    tries: int
    least_pause: float
    growth: float = 2.0
    jitter: float = 0.25
    longest_pause: float = math.inf
    budget_seconds: float = math.inf

    def pause(self, number: int, wanted: float = 0.0, spent: float = 0.0) -> float | None:
        """Return the seconds to wait after try ``number`` (from 0), or None to give up.

        ``wanted`` is the pause that the server asked for, ``spent`` the seconds since the first try began.
        """
        if number + 1 >= self.tries:
            return None
        step = min(self.least_pause * self.growth ** min(number, MOST_STEPS), self.longest_pause)
        pause = max(step, wanted) + step * random.uniform(0, self.jitter)
        return pause if spent + pause <= self.budget_seconds else None
