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


@dataclass
class _Bucket:
    left: float
    seen: float


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
        self._buckets: dict[Key, _Bucket] = {}
        self._lock = threading.Lock()

    def check(self, caller: str, name: str) -> None:
        """Raise TooManyRequests if this caller has guessed too often."""
        with self._lock:
            self._check(caller, name)

    def begin(self, caller: str, name: str) -> None:
        """Check, and count a guess before its result is known, so that guesses at once count too."""
        with self._lock:
            self._check(caller, name)
            self._add((caller,), -1)
            self._add((caller, name), -1)

    def note_wrong(self, caller: str, name: str) -> None:
        with self._lock:
            self._add((caller,), -1)
            self._add((caller, name), -1)

    def note_right(self, caller: str, name: str, begun: bool = False) -> None:
        """Forget the failures with this name; ``begun`` takes back the guess that ``begin`` has counted."""
        with self._lock:
            self._buckets.pop((caller, name), None)
            if begun:
                self._add((caller,), 1)

    def _check(self, caller: str, name: str) -> None:
        wait = math.ceil(max(self._wait(key) for key in ((caller,), (caller, name))))
        if wait > 0:
            raise TooManyRequests(f"too many wrong passwords: wait {wait} s and try again", retry_after=wait)

    def _wait(self, key: Key) -> float:
        """Return the seconds until the next guess is allowed."""
        if key not in self._buckets:
            return 0.0
        return (1 - self._refilled(key).left) * self._rate(key).pause

    def _add(self, key: Key, number: int) -> None:
        bucket = self._refilled(key)
        bucket.left = min(float(self._rate(key).count), bucket.left + number)

    def _refilled(self, key: Key) -> _Bucket:
        """Return the bucket, refilled for the time that has passed."""
        now, rate = self._clock(), self._rate(key)
        if key not in self._buckets and len(self._buckets) >= MOST_KEPT:
            self._drop_full(now)
        bucket = self._buckets.setdefault(key, _Bucket(rate.count, now))
        bucket.left = min(float(rate.count), bucket.left + (now - bucket.seen) / rate.pause)
        bucket.seen = now
        return bucket

    def _drop_full(self, now: float) -> None:
        full = [
            key
            for key, one in self._buckets.items()
            if one.left + (now - one.seen) / self._rate(key).pause >= self._rate(key).count
        ]
        for key in full or list(self._buckets)[: MOST_KEPT // 2]:
            del self._buckets[key]

    def _rate(self, key: Key) -> GuessRate:
        return self._of_all_names if len(key) == 1 else self._of_one_name
