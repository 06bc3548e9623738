"""HTTP/1.1 at little cost per request, and answers that are streamed.

Every wait has a limit: of silence, of the whole exchange, and of the bytes of an answer.
"""

from __future__ import annotations

import contextlib
import re
import select
import socket
import ssl
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import ClassVar

from openpai_tasks.net.exchange import STREAM_STEP, Exchange

PIECE = 1 << 16  # the most that one recv returns; larger buffers cost more CPU time than they save
SEND_PIECE = 1 << 16
HEAD_LIMIT = 1 << 16
TEXT_LIMIT = 1 << 28  # of an answer that is read as a whole
ERROR_LIMIT = 1 << 20
SWITCHED = 101  # to another protocol, which nobody asked for
STATUS_LINE = re.compile(r"HTTP/1\.([01]) ([0-9]{3})(.*)")
CHUNK_SIZE = re.compile(rb"[0-9A-Fa-f]{1,15}")

ServerKey = tuple[str, str, int]
"""Scheme, host and port."""


class CutShort(OSError):
    """Raised when the connection ends before the answer."""


class HttpConnection:
    """One connection to one server, used for one request at a time."""

    def __init__(self, stream: socket.socket, key: ServerKey, exchange: Exchange) -> None:
        self.stream, self.key, self.used = stream, key, False
        self.exchange = exchange
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

    def send(self, data: bytes) -> None:
        """Send within the limits of the exchange."""
        for start in range(0, len(data), SEND_PIECE):
            self.set_timeout(self.exchange.patience())
            self.stream.sendall(data[start : start + SEND_PIECE])

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
        try:
            piece = self.stream.recv(limit)
        except TimeoutError:
            self.exchange.patience()  # raises Overdue if the whole exchange took too long
            raise
        self.exchange.received(len(piece))
        return piece

    def head(self) -> tuple[int, str, dict[str, str]]:
        """Read the status, its reason and the headers (names in lower case) of the next answer."""
        data = self._until(b"\r\n\r\n")
        lines = data.decode("latin-1").split("\r\n")
        status = STATUS_LINE.match(lines[0])
        if not status:
            raise CutShort(f"no HTTP answer: {lines[0][:80]!r}")
        pairs = (line.partition(":") for line in lines[1:] if line)
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        if status[1] == "0":
            headers.setdefault("connection", "close")
        return int(status[2]), status[3].strip(), headers

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


def request_head(method: str, target: str, headers: Mapping[str, str]) -> bytes:
    """Return the first line of a request, and its headers."""
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    if any("\r" in line or "\n" in line for line in lines):
        raise ValueError("a line break in a request")
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


Keep = Callable[[HttpConnection], None]
"""Takes back a connection that can be used again."""


class HttpReply:
    """An answer; once its body is read, as a whole or in ``pieces``, the connection is free again."""

    broken: ClassVar[type[OSError]] = CutShort
    """Raised when the connection ends too early."""

    def __init__(self, connection: HttpConnection, keep: Keep, has_body: bool = True) -> None:
        self._connection, self._keep = connection, keep
        status, reason, headers = connection.head()
        while 100 <= status < 200 and status != SWITCHED:
            status, reason, headers = connection.head()
        self.status_code, self.reason, self.headers = status, reason, headers
        self._chunked = headers.get("transfer-encoding", "").lower().endswith("chunked")
        self.length = _length(headers)
        if status in (SWITCHED, 204, 304) or not has_body:
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

    def _bytes(self, most: int = PIECE) -> Iterator[bytes]:
        return self._chunks(most) if self._chunked else self._plain(most)

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

    def _plain(self, most: int) -> Iterator[bytes]:
        left = self.length
        while left is None or left > 0:
            piece = self._connection.receive(most if left is None else min(most, left))
            if not piece:
                if left is None:
                    return
                raise CutShort(f"the connection ended {left} bytes early")
            if left is not None:
                left -= len(piece)
            yield piece

    def _chunks(self, most: int) -> Iterator[bytes]:
        while left := _chunk_size(self._connection.line()):
            while left > 0:
                piece = self._connection.receive(min(most, left))
                if not piece:
                    raise CutShort("the connection ended inside a chunk")
                left -= len(piece)
                yield piece
            self._connection.line()
        room = HEAD_LIMIT
        while trailer := self._connection.line():
            room -= len(trailer)
            if room < 0:
                raise CutShort(f"trailers of more than {HEAD_LIMIT} bytes")

    def _limited(self) -> Iterator[bytes]:
        total, limit = 0, ERROR_LIMIT if self.status_code >= 400 else TEXT_LIMIT
        self._connection.exchange.allow(limit)
        for piece in self._received(self._bytes()):
            total += len(piece)
            if total > limit:
                raise self.broken(f"an answer of more than {limit} bytes")
            yield piece


def _chunk_size(line: bytes) -> int:
    digits = line.split(b";")[0].strip()
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
