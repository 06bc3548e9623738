"""Limits on wrong passwords, for each caller and name: a few at once, then one at a time."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from openpai_tasks.server.api.limits.rates import Rate, TooMany

OF_ONE_NAME = Rate(10, 60)  # this many at once, and as many again within these seconds
OF_ALL_NAMES = Rate(50, 60)
MOST_KEPT = 1000

Key = tuple[str, ...]  # the caller, or the caller and the name


@dataclass
class _Bucket:
    left: float
    seen: float


class Guesses:
    """Counts only failures, so that a known password can be used any number of times.

    A caller is the user whose process calls, since all callers have the same address.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: dict[Key, _Bucket] = {}
        self._lock = threading.Lock()

    def check(self, caller: str, name: str) -> None:
        """Raise TooMany if this caller has guessed too often."""
        with self._lock:
            waits = [self._wait(key) for key in ((caller,), (caller, name))]
        wait = math.ceil(max(waits))
        if wait > 0:
            raise TooMany({"retry-after": str(wait)}, wait)

    def note_wrong(self, caller: str, name: str) -> None:
        with self._lock:
            for key in ((caller,), (caller, name)):
                self._filled(key).left -= 1

    def note_right(self, caller: str, name: str) -> None:
        with self._lock:
            self._buckets.pop((caller, name), None)

    def _wait(self, key: Key) -> float:
        """Return the seconds until the next guess is allowed."""
        if key not in self._buckets:
            return 0.0
        return (1 - self._filled(key).left) * _speed(key)

    def _filled(self, key: Key) -> _Bucket:
        """Return the bucket, refilled for the time that has passed."""
        now, most = self._clock(), float(_rate(key).count)
        if key not in self._buckets and len(self._buckets) >= MOST_KEPT:
            self._drop_full(now)
        bucket = self._buckets.setdefault(key, _Bucket(most, now))
        bucket.left = min(most, bucket.left + (now - bucket.seen) / _speed(key))
        bucket.seen = now
        return bucket

    def _drop_full(self, now: float) -> None:
        full = [
            key
            for key, one in self._buckets.items()
            if one.left + (now - one.seen) / _speed(key) >= _rate(key).count
        ]
        for key in full or list(self._buckets)[: MOST_KEPT // 2]:
            del self._buckets[key]


def _rate(key: Key) -> Rate:
    return OF_ALL_NAMES if len(key) == 1 else OF_ONE_NAME


def _speed(key: Key) -> float:
    """Return the seconds until one more guess is allowed."""
    return _rate(key).seconds / _rate(key).count
