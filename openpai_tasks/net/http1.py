"""HTTP/1.1 over one connection, within the limits of an exchange.

h11 writes requests and reads heads and chunks. A body of known length is read from the socket directly,
without h11's copies.
"""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import h11

from openpai_tasks.net.exchange import STREAM_STEP, Exchange

PIECE = 1 << 16  # the most that one recv returns; larger buffers cost more CPU time than they save
SEND_PIECE = 1 << 18
SMALL = 1 << 16  # smaller parts of a request are sent together
HEAD_LIMIT = 1 << 16
TEXT_LIMIT = 1 << 28  # of an answer that is read as a whole
ERROR_LIMIT = 1 << 20
REDIRECTS = (301, 302, 303, 307, 308)
WITH_BODY = ("POST", "PUT")

ServerKey = tuple[str, str, int]
"""Scheme, host and port."""


class ProtocolError(OSError):
    """Raised when the connection ends before the answer, or when the answer is not valid HTTP."""


class StreamedBody(NamedTuple):
    """A request body in pieces; sent with chunked encoding if ``size`` is None."""

    pieces: Iterable[bytes]
    size: int | None


class HttpConnection:
    """One connection to one server, used for one request at a time."""

    def __init__(self, stream: socket.socket, key: ServerKey, exchange: Exchange) -> None:
        self.stream, self.key, self.used = stream, key, False
        self.exchange, self.idle_since = exchange, 0.0
        self.method = ""
        self.hung_up = False  # whether the server hung up before it had received the whole request
        self._protocol = h11.Connection(h11.CLIENT)
        self._unread = b""

    def close(self) -> None:
        self.stream.close()

    def set_timeout(self, seconds: float) -> None:
        """Limit the next wait; setting the same limit again would cost a system call."""
        if self.stream.gettimeout() != seconds:
            self.stream.settimeout(seconds)

    def is_stale(self) -> bool:
        """Whether the server has closed the idle connection, or sent unexpected data."""
        return bool(self._unread) or self._is_readable()

    def request(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | StreamedBody = b""
    ) -> None:
        """Send a request; stop if the server hangs up and has answered, as it may refuse a body unread."""
        self.method, self.hung_up = method, False
        self._protocol = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_LIMIT)
        for part in _join_small(self._parts(method, target, headers, body)):
            try:
                self._send(part)
            except OSError as err:
                if isinstance(err, TimeoutError) or not self._is_readable():
                    raise
                self.hung_up = True
                return

    def _parts(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | StreamedBody
    ) -> Iterator[bytes]:
        """Yield the bytes of a request; each piece of a stream has the time of an exchange."""
        lines = {**headers, **_length_header(method, body)}
        pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in lines.items()]
        try:
            yield self._protocol.send(h11.Request(method=method, target=target, headers=pairs))
        except h11.LocalProtocolError:  # its text may quote a token
            raise ValueError("a character that is not allowed in the head of a request") from None
        if isinstance(body, bytes):
            yield body
            return
        for piece in body.pieces:
            self.exchange.renew()
            yield from self._protocol.send_with_data_passthrough(h11.Data(data=piece)) or ()
        yield self._protocol.send(h11.EndOfMessage())
        self.exchange.renew()

    def _send(self, data: bytes) -> None:
        view = memoryview(data)
        for start in range(0, len(view), SEND_PIECE):
            self.set_timeout(self.exchange.time_left())
            self.stream.sendall(view[start : start + SEND_PIECE])

    def _is_readable(self) -> bool:
        poll = select.poll()
        poll.register(self.stream, select.POLLIN)
        return bool(poll.poll(0))

    def head(self) -> h11.Response:
        """Read the head of the answer, after those of interim answers."""
        while not isinstance(event := self.event(), h11.Response):
            pass
        return event

    def event(self) -> Any:
        """Return h11's next event of the answer."""
        while True:
            try:
                event = self._protocol.next_event()
            except h11.RemoteProtocolError as err:
                raise ProtocolError(f"invalid HTTP answer: {str(err)[:120]}") from None
            if event is not h11.NEED_DATA:
                return event
            piece = self._receive(PIECE)
            if not piece:
                raise ProtocolError("the connection ended before the end of the answer")
            self._protocol.receive_data(piece)

    def take_unparsed(self) -> None:
        """Take the bytes that h11 has not read, for a body that is read without it or for ``is_stale``."""
        self._unread = self._protocol.trailing_data[0]

    def receive(self, limit: int) -> bytes:
        if self._unread:
            piece, self._unread = self._unread[:limit], self._unread[limit:]
            return piece
        return self._receive(limit)

    def receive_all(self, size: int) -> bytes:
        """Receive exactly this many bytes, with as few copies as possible."""
        data = bytearray(size)
        view, done = memoryview(data), min(size, len(self._unread))
        view[:done], self._unread = self._unread[:done], self._unread[done:]
        while done < size:
            self.set_timeout(self.exchange.time_left())
            count = self.stream.recv_into(view[done:])
            if not count:
                raise ProtocolError("the connection ended too early")
            self.exchange.count_received(count)
            done += count
        return bytes(data)

    def _receive(self, limit: int) -> bytes:
        """Receive the next bytes, within the limits of the exchange."""
        self.set_timeout(self.exchange.time_left())
        try:
            piece = self.stream.recv(limit)
        except TimeoutError:
            self.exchange.time_left()  # raises DeadlineExceeded if the whole exchange took too long
            raise
        self.exchange.count_received(len(piece))
        return piece


def _length_header(method: str, body: bytes | StreamedBody) -> dict[str, str]:
    """Return the header that says where the body ends."""
    size = len(body) if isinstance(body, bytes) else body.size
    if size is None:
        return {"Transfer-Encoding": "chunked"}
    return {"Content-Length": str(size)} if size or method in WITH_BODY else {}


def _join_small(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Join small parts, which are then sent in one packet."""
    waiting = b""
    for part in parts:
        if len(waiting) + len(part) <= SMALL:
            waiting += part
            continue
        yield waiting
        waiting = part
    yield waiting


Keep = Callable[[HttpConnection], None]
"""Takes back a connection that can be used again."""


class HttpAnswer:
    """An answer; once its body is read completely, the connection is free again.

    ``body`` is for what the caller keeps of its content.
    """

    def __init__(self, connection: HttpConnection, keep: Keep, url: str = "") -> None:
        self._connection, self._keep, self.url, self.body = connection, keep, url, b""
        head = connection.head()
        self.status_code, self.reason = head.status_code, head.reason.decode("latin-1")
        self.headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
        if connection.hung_up and self.status_code < 400:
            raise ProtocolError("the server hung up before it had received the whole request")
        is_empty = self.status_code in (204, 304) or connection.method == "HEAD"
        self._chunked = "transfer-encoding" in self.headers and not is_empty  # h11 accepts no other coding
        length = self.headers.get("content-length")  # h11 accepts one value only
        self.length = 0 if is_empty else None if self._chunked or length is None else int(length)
        is_last = "close" in self.headers.get("connection", "").lower() or head.http_version < b"1.1"
        self._is_reusable = not is_last and (self._chunked or self.length is not None)
        self._content: bytes | None = None
        self._is_released = False
        if not self._chunked:
            connection.take_unparsed()

    def __enter__(self) -> HttpAnswer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_redirect(self) -> bool:
        return self.status_code in REDIRECTS and "location" in self.headers

    @property
    def text(self) -> str:
        charset = self.headers.get("content-type", "").lower().partition("charset=")[2]
        try:
            return self.body.decode(charset.partition(";")[0].strip(" \"'") or "utf-8-sig", "replace")
        except LookupError:  # an unknown charset
            return self.body.decode("utf-8-sig", "replace")

    @property
    def content(self) -> bytes:
        """The whole body."""
        if self._content is None:
            self._content = self.read(ERROR_LIMIT if self.status_code >= 400 else TEXT_LIMIT)
        return self._content

    def read(self, limit: int) -> bytes:
        """Read the whole body; raise ProtocolError if it is larger than the limit."""
        self.allow(limit)
        found = bytearray()
        for piece in self.stream(PIECE):
            found += piece
            if len(found) > limit:
                raise ProtocolError(f"an answer of more than {limit} bytes")
        return bytes(found)

    def allow(self, size: int) -> None:
        """Allow a number of bytes of content from now on."""
        self._connection.exchange.allow(size)

    def stream(self, size: int) -> Iterator[bytes]:
        """Yield the body as it arrives, at most so much at once; raise ProtocolError if it ends early."""
        return self._releasing(self._bytes(size))

    def pieces(self) -> Generator[bytes, None, None]:
        """Yield the body as it arrives; each step of it has the time and bytes of an exchange."""
        exchange = self._connection.exchange
        exchange.allow(STREAM_STEP)
        with contextlib.closing(self._releasing(self._bytes())) as pieces:
            for piece in pieces:
                exchange.count_streamed(len(piece))
                with exchange.paused():
                    yield piece

    def large_pieces(self, size: int, seconds: float) -> Generator[bytes, None, None]:
        """Yield the body in pieces of the size, each received within the seconds."""
        self._connection.exchange.seconds = seconds
        return self.pieces() if self.length is None else self._releasing(self._large(size, self.length))

    def close(self) -> None:
        """Close the connection, unless the whole body has been read."""
        if not self._is_released:
            self._connection.close()

    def _large(self, size: int, length: int) -> Iterator[bytes]:
        exchange = self._connection.exchange
        for start in range(0, length, size):
            exchange.renew()
            exchange.allow(size)
            yield self._connection.receive_all(min(size, length - start))

    def _bytes(self, most: int = PIECE) -> Iterator[bytes]:
        return self._chunks() if self._chunked else self._plain(most)

    def _releasing(self, pieces: Iterator[bytes]) -> Generator[bytes, None, None]:
        """Yield the pieces, then give the connection back; close it if they are not complete."""
        whole = False
        try:
            yield from pieces
            whole = True
        except ProtocolError:
            raise
        except OSError as err:
            raise ProtocolError(error_text(err)) from err
        finally:
            if whole and self._is_reusable:
                self._keep(self._connection)
            else:
                self._connection.close()
            self._is_released = True

    def _plain(self, most: int) -> Iterator[bytes]:
        left = self.length
        while left is None or left > 0:
            piece = self._connection.receive(most if left is None else min(most, left))
            if not piece:
                if left is None:
                    return
                raise ProtocolError(f"the connection ended {left} bytes early")
            if left is not None:
                left -= len(piece)
            yield piece

    def _chunks(self) -> Iterator[bytes]:
        while isinstance(event := self._connection.event(), h11.Data):
            yield bytes(event.data)
        self._connection.take_unparsed()


def error_text(err: Exception) -> str:
    if isinstance(err, TimeoutError):
        return "no answer in time"
    return str(getattr(err, "strerror", None) or err or type(err).__name__)
