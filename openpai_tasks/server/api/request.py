"""The values that handlers take and return, independent of the web framework."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, BinaryIO

from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.loopback.callers import Connection, caller_process
from openpai_tasks.server.accounts.users import Identity


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


@dataclass(frozen=True)
class TextBody:
    """A body that is not JSON."""

    content: str | bytes
    type: str = "text/plain; charset=utf-8"


@dataclass(frozen=True)
class LogSlice:
    """A body of ``length`` bytes of a log, from ``start`` on, with its headers."""

    open: Callable[[], BinaryIO]
    start: int
    length: int
    headers: Mapping[str, str]


@dataclass(frozen=True)
class LogPage:
    """An HTML page with a part of a log between ``head`` and ``tail``, read and escaped incrementally."""

    log: LogSlice
    head: str
    tail: str


@dataclass(frozen=True)
class WithHeaders:
    """A body with additional headers."""

    body: Any  # any other Body
    headers: Mapping[str, str]


Body = dict[str, Any] | list[Any] | TextBody | LogSlice | LogPage | WithHeaders | None
Reply = tuple[int, Body]
