"""The values that handlers take and return."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import Any, BinaryIO

from starlette.responses import JSONResponse, Response, StreamingResponse

from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.loopback.callers import Connection, caller_process
from openpai_tasks.server.accounts.users import Identity

PIECE = 512 * 1024  # bytes that are sent at once; each piece costs a change of threads


@dataclass(frozen=True)
class Request:
    """One call: its caller, the parameters of its path, its query, headers and body."""

    method: str
    params: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)  # names in lower case
    body: Any = None  # parsed JSON or form; the text itself for text/*
    identity: Identity | None = None
    connection: Connection = (None, None)

    @property
    def caller(self) -> Identity:
        """The caller; only for routes that need a token."""
        if self.identity is None:
            raise LookupError("this route takes calls without a token")
        return self.identity

    @property
    def site(self) -> str:
        """The address of this server as the caller knows it."""
        return f"http://{self.headers.get('host', '')}"

    @property
    def process(self) -> str:
        """The user whose process makes the call."""
        return caller_process(self.connection)

    def first(self, name: str, default: str = "") -> str:
        """Return the first value of a query parameter."""
        return next(iter(self.query.get(name, ())), default)


Reply = tuple[int, dict[str, Any] | list[Any] | None] | Response
"""What a handler returns: a status and a value that becomes JSON, or another response."""


def to_response(reply: Reply) -> Response:
    return reply if isinstance(reply, Response) else JSONResponse(reply[1], reply[0])


def stream_file(
    open_file: Callable[[], BinaryIO],
    start: int,
    length: int,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Return a response with ``length`` bytes of a file, from ``start`` on."""
    headers = {"content-length": str(length), **(headers or {})}
    return StreamingResponse(read_pieces(open_file, start, length), status, headers, "text/plain")


def read_pieces(open_file: Callable[[], BinaryIO], start: int, length: int) -> Iterator[bytes]:
    with open_file() as file:
        file.seek(start)
        while length > 0 and (piece := file.read(min(PIECE, length))):
            length -= len(piece)
            yield piece
