"""Connections for Hadoop's native protocol: reused for a while, with a timeout for every wait."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

CONNECT = 5.0  # seconds; a data node that cannot be reached is given up soon
KEPT = 2.5  # seconds; a data node hangs up after 4 without a request
IDLE = 16  # connections kept for each server
SMALL = 1 << 13  # bytes of the first buffer for answers; it grows if they do not fit
ROOM = 1 << 20
SLOWEST = 10_000  # bytes of an answer in a second


class Stream:
    """One connection, with a buffer for what has arrived."""

    def __init__(self, host: str, port: int, timeout: float) -> None:
        self._timeout = timeout
        place: Any = host.encode()  # bytes need no IDNA tables, which take long to load
        self._socket = socket.create_connection((place, port), timeout=min(timeout, CONNECT))
        self._socket.settimeout(timeout)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.since = time.monotonic()
        self._buffer, self._start, self._end = bytearray(SMALL), 0, 0

    def send(self, *data: bytes) -> None:
        for piece in data:
            self._socket.sendall(piece)

    def exactly(self, size: int) -> bytes:
        return bytes(self.view(size))

    def view(self, size: int) -> memoryview:
        """Return this many bytes; the view is valid until more data has to be received."""
        self.wait(size)
        start, self._start = self._start, self._start + size
        return memoryview(self._buffer)[start : self._start]

    def wait(self, size: int) -> None:
        """Wait until this many bytes have arrived; a server must not send them one by one without end."""
        if self.available >= size:
            return
        self._receive(size)
        end = time.monotonic() + self._timeout + size / SLOWEST
        while self.available < size:
            if time.monotonic() > end:
                raise TimeoutError("no complete answer in time")
            self._receive(size)

    def peek(self, size: int) -> bytes:
        """Return the next bytes, as many as have arrived."""
        return bytes(self._buffer[self._start : min(self._end, self._start + size)])

    @property
    def available(self) -> int:
        return self._end - self._start

    def _receive(self, wanted: int) -> None:
        """Receive what has arrived with one system call, into a buffer of at least the wanted size."""
        rest = self._buffer[self._start : self._end]
        if wanted > len(self._buffer):
            self._buffer = bytearray(wanted + ROOM)
        self._buffer[: len(rest)] = rest
        self._start, self._end = 0, len(rest)
        count = self._socket.recv_into(memoryview(self._buffer)[self._end :])
        if not count:
            raise ConnectionResetError("the connection ended early")
        self._end += count

    def is_stale(self) -> bool:
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return time.monotonic() - self.since > KEPT or bool(self.available or poll.poll(0))

    def close(self) -> None:
        self._socket.close()


class Streams:
    """Idle connections by server."""

    def __init__(self, timeout: float, greet: Callable[[Stream], None] | None = None) -> None:
        self._timeout, self._greet = timeout, greet
        self._idle: dict[tuple[str, int], list[Stream]] = {}
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def borrow(self, key: tuple[str, int]) -> Iterator[Stream]:
        """Yield an idle or new connection; keep it for the next caller unless an error occurs."""
        stream = self._acquire(key)
        try:
            yield stream
        except BaseException:
            stream.close()
            raise
        stream.since = time.monotonic()
        with self._lock:
            idle = self._idle.setdefault(key, [])
            if len(idle) < IDLE:
                idle.append(stream)
                return
        stream.close()

    def new(self, key: tuple[str, int]) -> Stream:
        stream = Stream(*key, self._timeout)
        if self._greet:
            self._greet(stream)
        return stream

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, {}
        for stream in [one for some in idle.values() for one in some]:
            stream.close()

    def _acquire(self, key: tuple[str, int]) -> Stream:
        while True:
            with self._lock:
                idle = self._idle.get(key)
                stream = idle.pop() if idle else None
            if stream is None:
                return self.new(key)
            if not stream.is_stale():
                return stream
            stream.close()
