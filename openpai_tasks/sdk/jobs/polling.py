"""Poll a cluster: quickly at first and while things change, then with growing pauses."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TypeVar

from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import ConfigError
from openpai_tasks.sdk.jobs import watching

T = TypeVar("T")

SHORT_PAUSES = (0.05, 0.5)  # the shortest and the longest
LONG_PAUSES = (0.5, 5.0)  # well below OpenPAI's limit of 600 requests a minute
GROWTH = 1.4


class Pauses:
    """Pauses between requests, with an optional time limit."""

    def __init__(self, client: Backend, timeout: float | None = None) -> None:
        if timeout is not None and not (isinstance(timeout, (int, float)) and timeout >= 0):  # nor NaN
            raise ConfigError(f"a timeout must be 0 or more seconds, got {timeout!r}")
        self._shortest, self._longest = SHORT_PAUSES if client.polls_cheaply else LONG_PAUSES
        self._next = self._shortest
        self._limit = time.monotonic() + (math.inf if timeout is None else timeout)
        self._client = client

    @property
    def over(self) -> bool:
        return time.monotonic() >= self._limit

    def ask(self, call: Callable[[], T]) -> T:
        """Return the result of ``call``, waiting out an outage of the cluster."""
        return watching.ask_patiently(self._client, call, self._limit)

    def next(self, moved: bool = False) -> float:
        """Return the seconds until the next request; only the shortest time if something has changed."""
        self._next = self._shortest if moved else min(self._next * GROWTH, self._longest)
        return max(0.0, min(self._next, self._limit - time.monotonic()))

    def wait(self, moved: bool = False) -> None:
        """Sleep until the next request."""
        time.sleep(self.next(moved))
