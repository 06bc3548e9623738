"""HTTP/1.1 at little cost per request: connections that threads share, and answers that are streamed.

Every wait has a limit: of silence, of the whole exchange, and of the bytes of an answer.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import os
import re
import select
import socket
import ssl
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import ClassVar
from urllib.parse import SplitResult, unquote

from openpai_tasks.net.exchange import CONNECT_SECONDS, STREAM_STEP, Exchange

PIECE = 1 << 16  # the most that one recv returns; larger buffers cost more CPU time than they save
HEAD_LIMIT = 1 << 16
TEXT_LIMIT = 1 << 28  # of an answer that is read as a whole
ERROR_LIMIT = 1 << 20
IDLE = 32  # connections kept for each server
CHUNK_SIZE = re.compile(rb"[0-9A-Fa-f]{1,15}")

ServerKey = tuple[str, str, int]
"""Scheme, host and port."""


class CutShort(OSError):
    """Raised when the connection ends before the answer."""


class HttpConnection:
    """One connection to one server, used for one request at a time."""

    def __init__(self, stream: socket.socket, key: ServerKey, timeout: float) -> None:
        self.stream, self.key, self.used = stream, key, False
        self.exchange = Exchange(timeout)
        self._ahead = b""

    def close(self) -> None:
        self.stream.close()

    def set_timeout(self, seconds: float) -> None:
        """Limit the next wait; setting the same limit again would cost a system call."""
        if self.stream.gettimeout() != seconds:
            self.stream.settimeout(seconds)

    def is_stale(self) -> bool:
        """Whether the server has closed the idle connection, or sent unexpected data."""
        poll = select.poll()
        poll.register(self.stream, select.POLLIN)
        return bool(self._ahead or poll.poll(0))

    def receive(self, limit: int) -> bytes:
        if self._ahead:
            piece, self._ahead = self._ahead[:limit], self._ahead[limit:]
            return piece
        return self._received(limit)

    def receive_all(self, size: int) -> bytes:
        """Receive exactly this many bytes, with as few copies as possible."""
        data = bytearray(size)
        view, done = memoryview(data), min(size, len(self._ahead))
        view[:done], self._ahead = self._ahead[:done], self._ahead[done:]
        while done < size:
            self.set_timeout(self.exchange.patience())
            count = self.stream.recv_into(view[done:])
            if not count:
                raise CutShort("the connection ended too early")
            self.exchange.received(count)
            done += count
        return bytes(data)

    def _received(self, limit: int) -> bytes:
        """Receive the next bytes, within the limits of the exchange."""
        self.set_timeout(self.exchange.patience())
        piece = self.stream.recv(limit)
        self.exchange.received(len(piece))
        return piece

    def head(self) -> tuple[int, dict[str, str]]:
        """Read the status and headers (names in lower case) of the next answer."""
        data = self._until(b"\r\n\r\n")
        lines = data.decode("latin-1").split("\r\n")
        try:
            status = int(lines[0].split(" ", 2)[1])
        except (IndexError, ValueError) as err:
            raise CutShort(f"no HTTP answer: {lines[0][:80]!r}") from err
        pairs = (line.partition(":") for line in lines[1:] if line)
        return status, {name.strip().lower(): value.strip() for name, _, value in pairs}

    def line(self) -> bytes:
        return self._until(b"\r\n").rstrip()

    def _until(self, end: bytes) -> bytes:
        data = self._ahead
        while end not in data:
            more = self._received(HEAD_LIMIT)
            if not more or len(data) > HEAD_LIMIT:
                raise CutShort("incomplete answer")
            data += more
        found, _, self._ahead = data.partition(end)
        return found


class ConnectionPool:
    """Connections that are kept for the next request; a forked process opens its own."""

    def __init__(self, timeout: float, verify: bool | str = True, proxy: SplitResult | None = None) -> None:
        """``verify`` may be a file of certificates; ``proxy`` serves all servers of the pool."""
        self._timeout, self._verify, self._proxy = timeout, verify, proxy
        self._tls: ssl.SSLContext | None = None
        self._idle: dict[ServerKey, list[HttpConnection]] = {}
        self._forget()

    def acquire(self, key: ServerKey) -> HttpConnection:
        if self._process != os.getpid():
            self._forget()
        while True:
            with self._lock:
                idle = self._idle.get(key)
                connection = idle.pop() if idle else None
            if connection is None:
                return HttpConnection(self._connect(*key), key, self._timeout)
            if not connection.is_stale():
                # The last answer may have used most of the timeout.
                connection.set_timeout(self._timeout)
                return connection
            connection.close()

    def keep(self, connection: HttpConnection) -> None:
        with self._lock:
            idle = self._idle.setdefault(connection.key, [])
            if len(idle) < IDLE:
                connection.used = True
                idle.append(connection)
                return
        connection.close()

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, {}
        for connection in [one for some in idle.values() for one in some]:
            connection.close()

    def _forget(self) -> None:
        self._process, self._lock = os.getpid(), threading.Lock()
        self._idle = {}

    def _connect(self, scheme: str, host: str, port: int) -> socket.socket:
        stream = self._reach(scheme, host, port)
        try:
            stream.settimeout(self._timeout)
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return self._secure().wrap_socket(stream, server_hostname=host) if scheme == "https" else stream
        except BaseException:
            stream.close()
            raise

    def _reach(self, scheme: str, host: str, port: int) -> socket.socket:
        seconds = min(self._timeout, CONNECT_SECONDS)
        if self._proxy is None:
            return socket.create_connection((host, port), timeout=seconds)
        way = http.client.HTTPConnection(self._proxy.hostname or "", self._proxy.port or 80, timeout=seconds)
        if scheme == "https":
            way.set_tunnel(host, port, proxy_login(self._proxy))
        way.connect()
        return way.sock

    def _secure(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context(
                cafile=self._verify if isinstance(self._verify, str) else None
            )
            if self._verify is False:
                self._tls.check_hostname, self._tls.verify_mode = False, ssl.CERT_NONE
        return self._tls


def proxy_login(proxy: SplitResult) -> dict[str, str]:
    """Return the header for a proxy whose URL has a user and a password."""
    if proxy.username is None:
        return {}
    login = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"}


Keep = Callable[[HttpConnection], None]
"""Takes back a connection that can be used again."""


class HttpReply:
    """An answer; once its body is read, as a whole or in ``pieces``, the connection is free again."""

    broken: ClassVar[type[OSError]] = CutShort
    """Raised when the connection ends too early."""

    def __init__(self, connection: HttpConnection, keep: Keep, has_body: bool = True) -> None:
        self._connection, self._keep = connection, keep
        connection.exchange.renew()
        status, headers = connection.head()
        while 100 <= status < 200:
            status, headers = connection.head()
        self.status_code, self.headers = status, headers
        self._chunked = headers.get("transfer-encoding", "").lower() == "chunked"
        self.length = _length(headers)
        if status in (204, 304) or not has_body:
            self.length, self._chunked = 0, False
        self._content: bytes | None = None

    @property
    def content(self) -> bytes:
        if self._content is None:
            self._content = b"".join(self._limited())
        return self._content

    def discard(self) -> None:
        """Read and discard the rest of the body."""
        if self.content:
            self._content = b""

    def pieces(self) -> Iterator[bytes]:
        """Yield the body as it arrives.

        Raise ``broken`` if it ends early. An unfinished read closes the connection.
        """
        exchange = self._connection.exchange
        exchange.allow(STREAM_STEP)
        with contextlib.closing(self._received(self._bytes())) as pieces:
            for piece in pieces:
                exchange.streamed(len(piece))
                with exchange.suspended():
                    yield piece

    def large_pieces(self, size: int, seconds: float) -> Generator[bytes, None, None]:
        """Yield the body in pieces of the size, each received within the seconds."""
        self._connection.exchange.seconds = seconds
        return self._received(self._large(size))

    def _large(self, size: int) -> Iterator[bytes]:
        exchange = self._connection.exchange
        if self._chunked or self.length is None:
            exchange.renew()
            found = bytearray()
            for piece in self._bytes():
                found += piece
                if len(found) >= size:
                    yield bytes(found)
                    found.clear()
                    exchange.renew()
                exchange.allow(size)
            yield bytes(found)
            return
        for start in range(0, self.length, size):
            exchange.renew()
            exchange.allow(size)
            yield self._connection.receive_all(min(size, self.length - start))

    def _bytes(self) -> Iterator[bytes]:
        return self._chunks() if self._chunked else self._plain()

    def _received(self, pieces: Iterator[bytes]) -> Generator[bytes, None, None]:
        whole = False
        try:
            yield from pieces
            whole = True
        except (OSError, ssl.SSLError) as err:
            if isinstance(err, self.broken):
                raise
            raise self.broken(why(err)) from err
        finally:
            self._leave(whole)

    def close(self) -> None:
        self._connection.close()

    def _leave(self, whole: bool) -> None:
        closing = self.headers.get("connection", "").lower() == "close"
        if whole and not closing and (self._chunked or self.length is not None):
            self._keep(self._connection)
        else:
            self.close()

    def _plain(self) -> Iterator[bytes]:
        left = self.length
        while left is None or left > 0:
            piece = self._connection.receive(PIECE if left is None else min(PIECE, left))
            if not piece:
                if left is None:
                    return
                raise CutShort(f"the connection ended {left} bytes early")
            if left is not None:
                left -= len(piece)
            yield piece

    def _chunks(self) -> Iterator[bytes]:
        while left := _chunk_size(self._connection.line()):
            while left > 0:
                piece = self._connection.receive(min(PIECE, left))
                if not piece:
                    raise CutShort("the connection ended inside a chunk")
                left -= len(piece)
                yield piece
            self._connection.line()
        while self._connection.line():
            pass

    def _limited(self) -> Iterator[bytes]:
        total, limit = 0, ERROR_LIMIT if self.status_code >= 400 else TEXT_LIMIT
        self._connection.exchange.allow(limit)
        for piece in self._received(self._bytes()):
            total += len(piece)
            if total > limit:
                raise self.broken(f"an answer of more than {limit} bytes")
            yield piece


def _chunk_size(line: bytes) -> int:
    digits = line.split(b";")[0].strip() or b"0"
    if not CHUNK_SIZE.fullmatch(digits):
        raise CutShort(f"a chunk with a size of {digits[:20]!r}")
    return int(digits, 16)


def _length(headers: Mapping[str, str]) -> int | None:
    text = headers.get("content-length")
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise CutShort(f"a content-length of {text[:20]!r}")
    return int(text)


def why(err: Exception) -> str:
    if isinstance(err, TimeoutError):
        return "no answer in time"
    return str(getattr(err, "strerror", None) or err or type(err).__name__)
