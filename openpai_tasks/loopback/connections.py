"""Limits on connections: their number, and the time for a request to arrive."""

from __future__ import annotations

import asyncio
import resource
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 10.0  # for the head of a request
MOST = 400
WRITTEN_AHEAD = 1 << 19  # bytes of an answer that wait for the client while more is read
BUSY = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


def most() -> int:
    """Return the maximum number of connections; the other file descriptors are for files and jobs."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return MOST if soft == resource.RLIM_INFINITY else max(8, min(MOST, soft // 3))


def at_once() -> int:
    """Return how many connections are accepted in one round, before the oldest can be closed."""
    return max(4, min(128, most() // 3))


class LimitedConnection(H11Protocol):
    """An HTTP connection with h11, which also limits the size of a request's head."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._began = 0.0
        self._deadline: asyncio.TimerHandle | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether no request is in progress."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(WRITTEN_AHEAD)
        self._began = self.loop.time()
        self._set_deadline()
        if len(self.connections) > most():
            self._make_room()

    def _make_room(self) -> None:
        """Close the oldest idle connections, or this one if none is idle."""
        others = [one for one in self.connections if isinstance(one, LimitedConnection) and one is not self]
        alive = [one for one in others if not one.transport.is_closing()]
        waiting = sorted((one for one in alive if one.is_waiting), key=lambda one: one._began)
        excess = max(0, len(alive) + 1 - most())
        for one in waiting[:excess]:
            one.transport.abort()
        if excess > len(waiting):
            self.transport.write(BUSY)
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.is_waiting and self.timeout_keep_alive_task is None:
            self._set_deadline()
        else:
            self._drop_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        self._drop_deadline()
        super().connection_lost(exc)

    def _set_deadline(self) -> None:
        if self._deadline is None and not self.transport.is_closing():
            self._deadline = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

    def _drop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
