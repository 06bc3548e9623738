"""Asking again: quickly at first and while things move, then with growing pauses."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TypeVar

from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import ConfigError
from openpai_tasks.sdk.jobs import watching
from openpai_tasks.settings.registry import LOCAL

T = TypeVar("T")

NEAR = (0.05, 0.5)  # shortest and longest pause in seconds for the embedded cluster
FAR = (0.5, 5.0)  # for others, well below OpenPAI's limit of 600 requests a minute
GROWTH = 1.4


class Pauses:
    """How long to wait before asking a cluster again, and whether the time for it is up."""

    def __init__(self, client: Backend, timeout: float | None = None) -> None:
        if timeout is not None and not timeout >= 0:  # as said of NaN, too
            raise ConfigError(f"a timeout is a number of seconds, 0 or more, got {timeout:g}")
        self._shortest, self._longest = NEAR if client.cluster.alias == LOCAL else FAR
        self._next = self._shortest
        self._limit = time.monotonic() + (math.inf if timeout is None else timeout)
        self._client = client

    @property
    def over(self) -> bool:
        return time.monotonic() >= self._limit

    def ask(self, call: Callable[[], T]) -> T:
        """Return what ``call`` brings; an outage of the cluster is waited out."""
        return watching.ask_patiently(self._client, call, self._limit)

    def wait(self, moved: bool = False) -> None:
        """Sleep; after something has moved, only for the shortest time."""
        self._next = self._shortest if moved else min(self._next * GROWTH, self._longest)
        time.sleep(max(0.0, min(self._next, self._limit - time.monotonic())))
