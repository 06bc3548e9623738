"""Limits on wrong passwords, for each caller and name: a few at once, then one at a time."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from openpai_tasks.errors import TooManyRequests

MOST_KEPT = 1000

Key = tuple[str, ...]  # the caller, or the caller and the name


@dataclass(frozen=True)
class GuessRate:
    """``count`` guesses at once, which are allowed again over ``seconds``."""

    count: int
    seconds: float

    @property
    def pause(self) -> float:
        """Seconds until one more guess is allowed."""
        return self.seconds / self.count


OF_ONE_NAME = GuessRate(10, 60)
OF_ALL_NAMES = GuessRate(50, 60)


class Guesses:
    """Counts only failures, so that a known password can be used any number of times."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        of_one_name: GuessRate = OF_ONE_NAME,
        of_all_names: GuessRate = OF_ALL_NAMES,
    ) -> None:
        self._clock = clock
        self._of_one_name, self._of_all_names = of_one_name, of_all_names
        self._forgotten_at: dict[Key, float] = {}  # when all guesses are allowed again
        self._lock = threading.Lock()

    def begin(self, caller: str, name: str) -> None:
        """Count a guess before its result is known, so that simultaneous ones count too.

        Raise TooManyRequests if this caller has guessed too often.
        """
        rates = {(caller,): self._of_all_names, (caller, name): self._of_one_name}
        with self._lock:
            now = self._clock()
            self._limit_memory(now)
            busy = {key: max(self._forgotten_at.get(key, now) - now, 0.0) for key in rates}
            wait = max(busy[key] + rate.pause - rate.seconds for key, rate in rates.items())
            wait = math.ceil(round(wait, 6))  # pauses may add up to slightly more than their sum
            if wait > 0:
                message = f"too many wrong passwords: wait {wait} s and try again"
                raise TooManyRequests(message, retry_after=wait)
            for key, rate in rates.items():
                self._forgotten_at[key] = now + busy[key] + rate.pause

    def note_right(self, caller: str, name: str) -> None:
        """Forget the failures with this name, and take back the guess that has just begun."""
        with self._lock:
            self._forgotten_at.pop((caller, name), None)
            if (caller,) in self._forgotten_at:
                self._forgotten_at[caller,] -= self._of_all_names.pause

    def _limit_memory(self, now: float) -> None:
        if len(self._forgotten_at) >= MOST_KEPT - 1:
            over = [key for key, moment in self._forgotten_at.items() if moment <= now]
            for key in over or list(self._forgotten_at)[: MOST_KEPT // 2]:
                del self._forgotten_at[key]
