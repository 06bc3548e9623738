"""HTTP/1.1 for WebHDFS: one connection, and an answer whose body is streamed or read as a whole."""

from __future__ import annotations

import contextlib
import re
import select
import socket
import ssl
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any

from requests.exceptions import ConnectionError as Broken  # makes PyHDFS ask another node

from openpai_tasks.errors import PathError
from openpai_tasks.net.exchange import STREAM_STEP, Exchange
from openpai_tasks.protocol.json_text import parse

PIECE = 1 << 16  # the most that one recv returns; larger buffers cost more CPU time than they save
HEAD_LIMIT = 1 << 16
TEXT_LIMIT = 1 << 28  # of an answer that is read as a whole
ERROR_LIMIT = 1 << 20
CHUNK_SIZE = re.compile(rb"[0-9A-Fa-f]{1,15}")
ERROR_FIELDS = {"exception", "javaClassName", "message"}


class CutShort(Broken):
    """Raised when the connection ends before the answer."""


class NoJson(PathError):
    """Raised for an answer that should have been JSON."""


class HttpConnection:
    """One connection to one server, used for one request at a time."""

    def __init__(self, stream: socket.socket, key: tuple[str, str, int], timeout: float) -> None:
        self.stream, self.key, self.used = stream, key, False
        self.exchange = Exchange(timeout)
        self._ahead = b""

    def close(self) -> None:
        self.stream.close()

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

    def _received(self, limit: int) -> bytes:
        """Receive the next bytes, within the limits of the exchange."""
        self.stream.settimeout(self.exchange.patience())
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


Keep = Callable[[HttpConnection], None]
"""Takes back a connection that can be used again."""


class Reply:
    """An answer; once its body is read, as a whole or in ``pieces``, the connection is free again."""

    def __init__(self, connection: HttpConnection, keep: Keep) -> None:
        self._connection, self._keep = connection, keep
        connection.exchange.renew()
        status, headers = connection.head()
        while 100 <= status < 200:
            status, headers = connection.head()
        self.status_code, self.headers = status, headers
        self._chunked = headers.get("transfer-encoding", "").lower() == "chunked"
        self.length = _length(headers)
        if status in (204, 304):
            self.length = 0
        self._content: bytes | None = None

    @property
    def raw(self) -> Reply:
        return self

    @property
    def content(self) -> bytes:
        if self._content is None:
            self._content = b"".join(self._limited())
        return self._content

    @property
    def text(self) -> str:
        return self.content.decode("utf-8", "replace")

    def json(self) -> Any:
        """Return the answer's JSON; an empty success (a rename with options) counts as true."""
        if self.status_code == 200 and not self.content:
            return {"boolean": True}
        try:
            return parse(self.content)
        except ValueError as err:
            raise NoJson(f"{self._connection.key[1]} did not answer with JSON; is it WebHDFS?") from err

    def discard(self) -> None:
        """Read and discard the rest of the body."""
        if self.content:
            self._content = b""

    def pieces(self) -> Iterator[bytes]:
        """Yield the body as it arrives.

        Raise CutShort if it ends early. An unfinished read closes the connection.
        """
        exchange = self._connection.exchange
        exchange.allow(STREAM_STEP)
        with contextlib.closing(self._received()) as pieces:
            for piece in pieces:
                exchange.streamed(len(piece))
                with exchange.suspended():
                    yield piece

    def _received(self) -> Generator[bytes, None, None]:
        whole = False
        try:
            yield from self._chunks() if self._chunked else self._plain()
            whole = True
        except (OSError, ssl.SSLError) as err:
            raise err if isinstance(err, Broken) else CutShort(why(err)) from err
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
        for piece in self._received():
            total += len(piece)
            if total > limit:
                raise CutShort(f"an answer of more than {limit} bytes")
            yield piece


def explains(reply: Reply) -> bool:
    """Whether an error answer has the body that HDFS gives its errors."""
    try:
        error = parse(reply.content)["RemoteException"]
        are_texts = all(isinstance(one, str) for one in error.values())
        return are_texts and {"exception", "message"} <= error.keys() <= ERROR_FIELDS
    except (ValueError, LookupError, TypeError, AttributeError):
        return False


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
