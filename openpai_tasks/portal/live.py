"""Server-sent events: what changes on a page, sent while the browser shows it.

A feed outlives its connection for a while, so that a page that reconnects misses nothing, gets nothing twice,
and costs the cluster no further request.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import anyio.to_thread
from starlette.responses import StreamingResponse

from openpai_tasks.errors import PaiError

log = logging.getLogger(__name__)

HEARTBEAT = 15.0
"""Seconds without news after which something is sent, so that a closed page is noticed."""
RETRY = b"retry: 2000\n\n"
MOST_FEEDS = 8
"""Feeds that a session keeps; the oldest is dropped."""
KEPT_CHARACTERS = 4 << 20
"""Characters of the latest events that are kept, in case the browser did not get them."""


@dataclass(frozen=True)
class Event:
    """An event for a script of ours: its name and a value."""

    event: str
    value: Any
    id: str = ""
    """Where a page that reconnects continues; empty if it starts again."""


Steps = Iterator[Event | float]
"""What to send, and between requests the seconds to sleep."""


class EventStream(StreamingResponse):
    """An answer that sends events; each step runs in a thread, as it may ask a cluster.

    A problem is an event, too: browsers would not ask again after an error.
    """

    def __init__(self, steps: Steps, on_problem: Callable[[PaiError], None]) -> None:
        super().__init__(self._encode(steps, on_problem), media_type="text/event-stream")

    async def _encode(self, steps: Steps, on_problem: Callable[[PaiError], None]) -> AsyncIterator[bytes]:
        yield RETRY
        silent = 0.0
        while True:
            try:
                step = await anyio.to_thread.run_sync(next, steps, None)
            except PaiError as err:
                on_problem(err)
                yield _event(Event("problem", str(err)))
                return
            except Exception:
                log.exception("a page could not be followed")
                yield _event(Event("problem", "internal error; see the portal's log"))
                return
            if step is None:
                yield _event(Event("end", ""))
                return
            if isinstance(step, Event):
                silent = 0.0
                yield _event(step)
                continue
            await asyncio.sleep(step)
            silent += step
            if silent > HEARTBEAT:
                silent = 0.0
                yield b":\n\n"


def redraw(draw: Callable[[], tuple[dict[str, str], bool]], seconds: float = 2.0) -> Steps:
    """Yield the parts of a page whenever they have changed; ``draw`` also returns whether they are final."""
    shown: dict[str, str] = {}
    while True:
        started = time.monotonic()
        parts, is_final = draw()
        if parts != shown:
            shown = parts
            yield Event("html", parts)
        if is_final:
            return
        yield max(seconds, 4 * (time.monotonic() - started))


def _event(news: Event) -> bytes:
    number = f"id: {news.id}\n" if news.id else ""
    return f"{number}event: {news.event}\ndata: {json.dumps(news.value)}\n\n".encode()


def _size(event: Event) -> int:
    return len(str(event.value))


class Feed:
    """Numbered events; each reader continues after the number that it has seen."""

    def __init__(self, steps: Steps) -> None:
        self.id = secrets.token_urlsafe(9)
        self._steps = steps
        self._kept: deque[Event] = deque()  # with consecutive numbers, up to the last
        self._size = 0
        self._last = 0
        self._is_over = False
        self._is_broken = False
        self._lock = threading.Lock()

    def has_after(self, number: int) -> bool:
        """Return whether nothing after this event is lost; wait for a step that another reader has begun."""
        with self._lock:
            return self._last - len(self._kept) <= number <= self._last and not self._is_broken

    def read(self, number: int) -> Steps:
        """Yield the events after this number."""
        while (step := self._next(number)) is not None:
            if isinstance(step, Event):
                number += 1
            yield step

    def _next(self, number: int) -> Event | float | None:
        with self._lock:
            if number < self._last:
                first = self._last - len(self._kept) + 1
                return self._kept[max(0, number + 1 - first)]
            if self._is_over:
                return None
            self._is_broken = True  # unless the step succeeds
            step = next(self._steps, None)
            self._is_broken = False
            if isinstance(step, Event):
                return self._keep(step)
            self._is_over = step is None
            return step

    def _keep(self, event: Event) -> Event:
        self._last += 1
        event = replace(event, id=f"{self.id}.{self._last}")
        self._kept.append(event)
        self._size += _size(event)
        while self._size > KEPT_CHARACTERS and len(self._kept) > 1:
            self._size -= _size(self._kept.popleft())
        return event


class Feeds:
    """The feeds of one session."""

    def __init__(self) -> None:
        self._known: dict[str, Feed] = {}
        self._lock = threading.Lock()

    def follow(self, after: str, start: Callable[[], Steps]) -> Steps:
        """Continue the feed after the event that a page names, or start another one."""
        name, _, number = after.rpartition(".")
        with self._lock:
            feed = self._known.get(name)
        seen = int(number) if number.isascii() and number.isdigit() and len(number) < 10 else 0
        if feed is None or not feed.has_after(seen):
            feed, seen = Feed(start()), 0
            with self._lock:
                self._known[feed.id] = feed
                while len(self._known) > MOST_FEEDS:
                    del self._known[next(iter(self._known))]
            yield Event("begin", "")
        yield from feed.read(seen)
