"""Server-sent events: what changes on a page, sent while the browser shows it."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import anyio.to_thread
from starlette.responses import StreamingResponse

from openpai_tasks.errors import PaiError

log = logging.getLogger(__name__)

HEARTBEAT = 15.0
"""Seconds without news after which something is sent, so that a closed page is noticed."""
RETRY = b"retry: 2000\n\n"


@dataclass(frozen=True)
class LiveEvent:
    """An event for a script of ours: its name and a value."""

    event: str
    value: Any
    id: str = ""
    """Where a page that reconnects continues; empty if it starts again."""


Steps = Iterator[LiveEvent | float]
"""What to send, and between requests the seconds to sleep."""


class LiveStream(StreamingResponse):
    """An answer that sends events; each step runs in a thread, as it may ask a cluster."""

    def __init__(self, steps: Steps) -> None:
        super().__init__(self._encode(steps), media_type="text/event-stream")
        self.on_problem: Callable[[PaiError], None] = lambda err: None

    async def _encode(self, steps: Steps) -> AsyncIterator[bytes]:
        yield RETRY
        silent = 0.0
        while True:
            try:
                step = await anyio.to_thread.run_sync(next, steps, None)
            except PaiError as err:
                self.on_problem(err)
                yield _event(LiveEvent("problem", str(err)))
                return
            except Exception:
                log.exception("a page could not be followed")
                yield _event(LiveEvent("problem", "internal error; see the portal's log"))
                return
            if step is None:
                yield _event(LiveEvent("end", ""))
                return
            if isinstance(step, LiveEvent):
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
            yield LiveEvent("html", parts)
        if is_final:
            return
        yield max(seconds, 4 * (time.monotonic() - started))


def problem(err: PaiError) -> LiveStream:
    """Return an answer that reports a problem; browsers would not ask again after an error."""

    def fail() -> Steps:
        yield 0.0
        raise err

    return LiveStream(fail())


def _event(news: LiveEvent) -> bytes:
    number = f"id: {news.id}\n" if news.id else ""
    return f"{number}event: {news.event}\ndata: {json.dumps(news.value)}\n\n".encode()
