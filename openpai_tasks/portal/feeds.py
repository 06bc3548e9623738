"""Output that a browser follows: a page that was disconnected continues where it was.

A feed outlives its connection for a while, with the position in each log, so that a page that reconnects
misses nothing, gets nothing twice, and costs the cluster no further request.
"""

from __future__ import annotations

import secrets
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from openpai_tasks.portal.live import LiveEvent, Steps

MOST_FEEDS = 8
"""Feeds of a session that are kept; the one that was opened first is dropped."""
KEPT_CHARACTERS = 4 << 20
"""Characters of the latest events that are kept, in case the browser did not get them."""


class KeptEvent(NamedTuple):
    """An event, and the number of its characters."""

    event: LiveEvent
    size: int


class LiveFeed:
    """Numbered events; each reader continues after the number that it has seen."""

    def __init__(self, steps: Steps) -> None:
        self.id = secrets.token_urlsafe(9)
        self._steps = steps
        self._kept: deque[KeptEvent] = deque()  # with consecutive numbers, up to the last
        self._size = 0
        self._last = 0
        self._is_over = False
        self._is_broken = False
        self._lock = threading.Lock()

    def has_after(self, number: int) -> bool:
        """Return whether nothing after this event is lost."""
        return self._last - len(self._kept) <= number <= self._last and not self._is_broken

    def read(self, number: int) -> Steps:
        """Yield the events after this number."""
        while (step := self._next(number)) is not None:
            if isinstance(step, LiveEvent):
                number += 1
            yield step

    def _next(self, number: int) -> LiveEvent | float | None:
        with self._lock:
            if number < self._last:
                first = self._last - len(self._kept) + 1
                return self._kept[max(0, number + 1 - first)].event
            if self._is_over:
                return None
            self._is_broken = True  # unless the step succeeds
            step = next(self._steps, None)
            self._is_broken = False
            if isinstance(step, LiveEvent):
                return self._keep(step)
            self._is_over = step is None
            return step

    def _keep(self, event: LiveEvent) -> LiveEvent:
        self._last += 1
        event = replace(event, id=f"{self.id}.{self._last}")
        size = len(str(event.value))
        self._kept.append(KeptEvent(event, size))
        self._size += size
        while self._size > KEPT_CHARACTERS and len(self._kept) > 1:
            self._size -= self._kept.popleft().size
        return event


class LiveFeeds:
    """The feeds of one session."""

    def __init__(self) -> None:
        self._known: dict[str, LiveFeed] = {}
        self._lock = threading.Lock()

    def follow(self, after: str, start: Callable[[], Steps]) -> Iterator[LiveEvent | float]:
        """Continue the feed after the event that a page names, or start another from the beginning."""
        name, _, number = after.rpartition(".")
        with self._lock:
            feed = self._known.get(name)
        seen = int(number) if number.isascii() and number.isdigit() and len(number) < 10 else 0
        if feed is None or not feed.has_after(seen):
            feed, seen = LiveFeed(start()), 0
            with self._lock:
                self._known[feed.id] = feed
                while len(self._known) > MOST_FEEDS:
                    del self._known[next(iter(self._known))]
            yield LiveEvent("begin", "")
        yield from feed.read(seen)
