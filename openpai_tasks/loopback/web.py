"""The dispatcher of our web applications: check the origin, find the route, limit the body, answer errors."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar
from urllib.parse import unquote

import anyio
from starlette.datastructures import FormData
from starlette.formparsers import MultiPartException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from openpai_tasks.errors import ApiError, ConfigError, Denied, PaiError
from openpai_tasks.files import shortages

log = logging.getLogger(__name__)

LOCAL_HOST = re.compile(r"(localhost|127\.0\.0\.1)(:\d{1,5})?", re.ASCII | re.IGNORECASE)
LOCAL_ORIGIN = re.compile(r"https?://(localhost|127\.0\.0\.1)(:\d{1,5})?", re.ASCII | re.IGNORECASE)
SAFE = ("GET", "HEAD")
ANY = "ANY"
REST = "*"
"""At the end of a path: all further segments, joined by slashes; an encoded slash matches nothing."""
SECONDS = 10.0  # for the whole body to arrive
READ_LIMIT = 64 * 1024 * 1024  # bytes of a body that is too large, before the connection is closed
CLOSE = {"connection": "close"}  # the rest of the body may still arrive


class RefusedCall(ApiError):
    """Raised before a handler is called; the answer also has these headers."""

    def __init__(
        self, message: str, status: int, code: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message, status, code)
        self.headers = headers or {}


# Routes


class Row(Protocol):
    """A row of a table of routes; its path has parameters such as ``{job}``."""

    @property
    def method(self) -> str: ...
    @property
    def path(self) -> str: ...


R = TypeVar("R", bound=Row)


@dataclass(frozen=True)
class Match(Generic[R]):
    route: R
    params: dict[str, str]


class Router(Generic[R]):
    """Finds the first matching row of a table.

    Segments are split before they are decoded, so an encoded slash stays inside its parameter. Unless the
    router is exact, case and a trailing slash do not matter, as in OpenPAI's Express.
    """

    def __init__(self, rows: Iterable[R], exact: bool = False) -> None:
        self._exact = exact
        self._rows: dict[int, list[tuple[list[str], R]]] = {}
        for row in rows:
            pattern = split(row.path, exact)
            size = 0 if pattern[-1] == REST else len(pattern)
            self._rows.setdefault(size, []).append((pattern, row))

    def match(self, method: str, path: str) -> Match[R] | None:
        wanted = ("GET" if method == "HEAD" else method, ANY)
        words = split(path, self._exact)
        for pattern, row in (*self._rows.get(len(words), ()), *self._rows.get(0, ())):
            if row.method in wanted and (params := self._fit(pattern, words)) is not None:
                return Match(row, params)
        return None

    def _fit(self, pattern: Sequence[str], words: Sequence[str]) -> dict[str, str] | None:
        params = {}
        if pattern[-1] == REST:
            head, rest = len(pattern) - 1, [self._decode(word) for word in words[len(pattern) - 1 :]]
            if not rest or any("/" in word for word in rest):
                return None
            pattern, words, params = pattern[:head], words[:head], {"rest": "/".join(rest)}
        for expected, given in zip(pattern, words, strict=True):
            if expected.startswith("{"):
                params[expected[1:-1]] = value = self._decode(given)
                if not value:
                    return None
            elif expected != given and (self._exact or expected.lower() != given.lower()):
                return None
        return params

    def _decode(self, word: str) -> str:
        try:
            return unquote(word, errors="strict" if self._exact else "replace")
        except UnicodeDecodeError as err:
            raise ConfigError("this address is not valid text") from err


def split(path: str, exact: bool = False) -> list[str]:
    """Return the segments of a path."""
    return path.split("/")[1:] if exact else path.strip("/").split("/")


# Answers


class Dispatcher(Generic[R]):
    """An ASGI application with a table of routes; subclasses answer calls and shape errors."""

    hosts = LOCAL_HOST
    prefix = ""  # that paths may begin with
    headers: Mapping[str, str] = {}  # of all answers that do not have them
    expected: type[PaiError] = ApiError  # errors that are answers

    def __init__(self, router: Router[R]) -> None:
        self.router = router

    def accepts_page(self, web: Request) -> bool:
        """Return whether the page that makes this call, if any, may use the server."""
        origin = web.headers.get("origin")
        return origin is None or LOCAL_ORIGIN.fullmatch(origin) is not None

    async def answer(self, web: Request, path: str, match: Match[R] | None) -> Response:
        raise NotImplementedError

    async def refuse(self, web: Request, err: PaiError) -> Response:
        raise NotImplementedError

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        web, begun = Request(scope, receive, send), time.monotonic()
        route = "(no route)"  # logged, as paths can contain tokens
        try:
            self._check_origin(web)
            path = without_prefix(raw_path(scope), self.prefix)
            match = self.router.match(web.method, path)
            route = match.route.path if match else route
            response = await self.answer(web, path, match)
        except ClientDisconnect:
            return
        except self.expected as err:
            response = await self.refuse(web, err)
        except MultiPartException as err:
            response = await self.refuse(web, malformed(err))
        except asyncio.CancelledError:  # by the end of the server, which does not wait for the rest of a body
            response = await self.refuse(web, RefusedCall("This server is ending.", 503, headers=CLOSE))
        except Exception as err:
            log.exception("%s %s failed", web.method, route)
            response = await self.refuse(web, internal_error(err))
        if web.method not in SAFE or response.status_code >= 500:
            taken = 1000 * (time.monotonic() - begun)
            log.info("%s %s %d %.0f ms", web.method, route, response.status_code, taken)
        for name, value in self.headers.items():
            response.headers.setdefault(name, value)
        with suppress(asyncio.CancelledError):  # likewise
            await response(scope, receive, send)

    def _check_origin(self, web: Request) -> None:
        """Refuse other names of this machine and pages of other sites, which cannot forge these headers."""
        if not self.hosts.fullmatch(web.headers.get("host", "")):
            raise forbidden("This server answers only as 127.0.0.1 or localhost.")
        if not self.accepts_page(web):
            raise forbidden("Pages of other sites may not use this server.")


def raw_path(scope: Scope) -> str:
    """Return the path of a call, not decoded."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    return raw.partition(b"?")[0].decode("latin-1")


def without_prefix(path: str, prefix: str) -> str:
    return path[len(prefix) :] if path.lower().startswith(f"{prefix}/") else path


def forbidden(message: str) -> Denied:
    return Denied(message, 403, "ForbiddenUserError")


def internal_error(err: Exception) -> ApiError:
    shortage = shortages.find_shortage(err)
    reason = f": {shortages.describe(shortage)}." if shortage else "; see the server's log."
    return ApiError(f"Internal server error{reason}", 500, "UnknownError")


def malformed(err: MultiPartException) -> RefusedCall:
    return RefusedCall(f"this form is malformed or too large: {err.message}", 400, headers=CLOSE)


# Bodies


async def read_body(web: Request, limit: int, seconds: float = SECONDS) -> bytes:
    """Return the body; read on if it is too large, as clients send all of it before they read the answer."""
    pieces, size = [], 0
    try:
        with anyio.fail_after(seconds):
            async for piece in web.stream():
                size += len(piece)
                if size > READ_LIMIT:
                    break
                if size <= limit:
                    pieces.append(piece)
    except TimeoutError as err:
        raise too_slow(seconds) from err
    if size > limit:
        raise too_large(limit)
    return b"".join(pieces)


async def read_small_form(web: Request, limit: int) -> FormData:
    """Read a form without files of a caller who has not signed in."""
    size = 0

    async def receive() -> Message:
        nonlocal size
        message = await web.receive()
        size += len(message.get("body", b""))
        if size > limit:
            raise too_large(limit)
        return message

    try:
        with anyio.fail_after(SECONDS):
            return await Request(web.scope, receive).form(max_files=0, max_part_size=limit)
    except TimeoutError as err:
        raise too_slow(SECONDS) from err
    except MultiPartException as err:
        raise malformed(err) from err


def too_large(limit: int) -> RefusedCall:
    message = f"request entity too large: this server accepts {limit // 1024} KB"
    return RefusedCall(message, 413, headers=CLOSE)


def too_slow(seconds: float) -> RefusedCall:
    return RefusedCall(f"the body did not arrive within {seconds:g} s", 408, headers=CLOSE)
