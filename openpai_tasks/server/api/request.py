"""The values that handlers take and return, independent of the web framework."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, BinaryIO

from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.server.accounts.identity import Identity

TCP_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_OWN_END, _FAR_END, _USER = 1, 2, 7  # columns


@dataclass(frozen=True)
class Request:
    """One call: its caller, the parameters of its path, its query, headers and body."""

    method: str
    params: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)  # names in lower case
    body: Any = None  # parsed JSON or form; the text itself for text/*
    identity: Identity | None = None
    ports: tuple[int, int] = (0, 0)  # of the connection: the caller's and ours

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
        return caller_process(*self.ports)

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
class Headed:
    """A body with additional headers."""

    body: Any  # any other Body
    headers: Mapping[str, str]


Body = dict[str, Any] | list[Any] | TextBody | LogSlice | LogPage | Headed | None
Reply = tuple[int, Body]


def caller_process(port: int, server_port: int) -> str:
    """The user of the process with this port, as ``uid N``, or ``anyone`` if unknown."""
    for table in TCP_TABLES:
        try:
            lines = table.read_text(encoding="ascii").splitlines()[1:]
        except (OSError, ValueError):
            continue
        for line in lines:
            words = line.split()
            if words[_OWN_END].endswith(f":{port:04X}") and words[_FAR_END].endswith(f":{server_port:04X}"):
                return f"uid {words[_USER]}"
    return "anyone"
