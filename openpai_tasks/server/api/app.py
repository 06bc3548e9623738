"""The web application: one dispatch for every route, and error bodies."""

from __future__ import annotations

import codecs
import html
import logging
import re
import time
from collections.abc import Iterator, Mapping
from urllib.parse import parse_qs

import anyio
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.requests import Request as WebRequest
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from openpai_tasks.errors import ApiError, Denied
from openpai_tasks.loopback.callers import connection
from openpai_tasks.server import refusals
from openpai_tasks.server.accounts.identity import Identity
from openpai_tasks.server.api import bodies, router
from openpai_tasks.server.api.context import Context
from openpai_tasks.server.api.handlers import web_pages
from openpai_tasks.server.api.limits.rates import API, Limiter, TooMany
from openpai_tasks.server.api.pools import Pools
from openpai_tasks.server.api.request import Body, Headed, LogPage, LogSlice, Reply, Request, TextBody
from openpai_tasks.server.api.router import Match, RouteAccess, Router
from openpai_tasks.server.api.table import rows

log = logging.getLogger(__name__)

LOCAL_HOST = re.compile(r"(localhost|127\.0\.0\.1)(:\d{1,5})?", re.ASCII | re.IGNORECASE)
LOCAL_ORIGIN = re.compile(r"https?://(localhost|127\.0\.0\.1)(:\d{1,5})?", re.ASCII | re.IGNORECASE)
PIECE = 512 * 1024  # of a log; each costs a change of threads
PATIENCE = 64 * 1024 * 1024  # bytes of a body that are read before the connection is closed


def build(context: Context, others: Mapping[str, ASGIApp] | None = None) -> ASGIApp:
    """Return the application for one cluster; ``others`` answer the paths below their prefixes.

    It needs none of Starlette's routes, which end at a line break, and handles every error itself.
    """
    dispatch = Dispatch(context)

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        web = WebRequest(scope, receive, send)
        path = f"{raw_path(web)}/"
        for prefix, other in (others or {}).items():
            if path.startswith(f"{prefix}/"):
                return await other(scope, receive, send)
        response = await dispatch.endpoint(web)
        await response(scope, receive, send)

    return CORSMiddleware(
        answer, allow_origin_regex=LOCAL_ORIGIN.pattern, allow_methods=["*"], allow_headers=["*"]
    )


class Dispatch:
    """Finds the route, checks the caller, reads the body, and converts errors to answers."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._profile = context.profile
        self._router = Router(rows(context.profile.name))
        self._limiter = Limiter(context.rates)
        self._pools = Pools()

    async def endpoint(self, web: WebRequest) -> Response:
        begun = time.monotonic()
        path = router.local(raw_path(web))
        match = self._router.match(web.method, path)
        try:
            check_origin(web.headers)
            raw = await read_body(web, self._context.body_limit)
            handler = match.route.handler if match else None
            status, body = await self._pools.run(handler, self._answer, web, path, match, raw)
        except ApiError as err:
            status, body = self._error(err)
        except ClientDisconnect:
            return Response(status_code=400)  # the client has disconnected
        except Exception:
            log.exception("%s %s failed", web.method, match.route.path if match else "?")
            status, body = self._error(refusals.unknown("Internal server error; see the server's log."))
        note_call(web.method, match, status, time.monotonic() - begun)
        return to_response(status, body)

    def _answer(self, web: WebRequest, path: str, match: Match | None, raw: bytes) -> Reply:
        """Return the answer or refusal, with the headers of the rate limit."""
        left = self._limiter.take(API, "everyone") if router.is_api(path) else {}
        try:
            status, body = self._handled(web, path, match, raw, left)
        except ApiError as err:
            status, body = self._error(err)
        return status, Headed(body, left) if left else body

    def _handled(
        self, web: WebRequest, path: str, match: Match | None, raw: bytes, left: dict[str, str]
    ) -> Reply:
        if match is None:
            reads = web.method in ("GET", "HEAD")
            page = reads and web_pages.lead_to_portal(self._context, path, web.url.query, web.headers)
            if page:
                return page
            query = f"?{web.url.query}" if web.url.query else ""
            raise refusals.no_api(path + query)
        identity = self._identify(match.route.access, web.headers.get("authorization", ""))
        if match.route.limit:
            left.update(self._limiter.take(match.route.limit, identity.user if identity else ""))
        request = Request(
            method=web.method,
            params=match.params,
            query={name: tuple(found) for name, found in parse_query(raw_query(web)).items()},
            headers=dict(web.headers),
            body=bodies.parse(web.headers.get("content-type", ""), raw),
            identity=identity,
            connection=connection(web.scope),
        )
        return match.route.handler(self._context, request)

    def _identify(self, access: RouteAccess, authorization: str) -> Identity | None:
        if access is RouteAccess.OPEN:
            return None
        try:
            identity = self._context.tokens.identify(authorization)
        except Denied as err:
            raise err if self._profile.reports_bad_tokens else refusals.guest() from err
        if access in (RouteAccess.USER, RouteAccess.ADMIN) and identity.application:
            raise refusals.application()
        if access in (RouteAccess.ADMIN, RouteAccess.TOKEN_ADMIN) and not identity.admin:
            raise refusals.non_admin()
        return identity

    def _error(self, err: ApiError) -> Reply:
        if isinstance(err, TooMany):
            return err.status, Headed(TextBody(str(err), "text/html; charset=utf-8"), err.headers)
        status, code = self._profile.errors.get(err.code, (err.status, err.code))
        body = {**({"code": code} if code else {}), "message": str(err)}
        return status, Headed(body, {"connection": "close"}) if status in bodies.UNREAD else body


def check_origin(headers: Mapping[str, str]) -> None:
    """Refuse calls from pages of other sites, which cannot forge these headers."""
    if not LOCAL_HOST.fullmatch(headers.get("host", "")):
        raise refusals.forbidden("This server answers only as 127.0.0.1 or localhost.")
    origin = headers.get("origin")
    if origin is not None and not LOCAL_ORIGIN.fullmatch(origin):
        raise refusals.forbidden("Pages of other sites may not use this server.")


async def read_body(web: WebRequest, limit: int, seconds: float = bodies.SECONDS) -> bytes:
    """Read the body; one that is too large is still read, since the caller is sending it."""
    pieces, size = [], 0
    try:
        with anyio.fail_after(seconds):
            async for piece in web.stream():
                size += len(piece)
                if size > PATIENCE:
                    break
                if size <= limit:
                    pieces.append(piece)
    except TimeoutError as err:
        raise bodies.too_slow() from err
    if size > limit:
        raise bodies.too_large(limit)
    return b"".join(pieces)


def raw_path(web: WebRequest) -> str:
    raw: bytes = web.scope.get("raw_path") or web.url.path.encode()
    return raw.partition(b"?")[0].decode("latin-1")


def raw_query(web: WebRequest) -> str:
    raw: bytes = web.scope["query_string"]
    return raw.decode("latin-1")


def parse_query(text: str) -> dict[str, list[str]]:
    try:
        return parse_qs(text, keep_blank_values=True, max_num_fields=bodies.FIELDS_LIMIT)
    except ValueError as err:
        raise refusals.invalid("too many query parameters") from err


def note_call(method: str, match: Match | None, status: int, seconds: float) -> None:
    """Log calls that change something or fail, with the route's pattern, since paths can contain tokens."""
    if method not in ("GET", "HEAD") or status >= 500:
        path = match.route.path if match else "(no route)"
        log.info("%s %s %d %.0f ms", method, path, status, 1000 * seconds)


def to_response(status: int, body: Body) -> Response:
    if isinstance(body, Headed):
        response = to_response(status, body.body)
        for name, value in body.headers.items():
            response.headers.setdefault(name, value)  # headers of the inner body take precedence
        return response
    if isinstance(body, LogSlice):
        return StreamingResponse(
            _pieces(body), status, {**body.headers, "content-length": str(body.length)}, "text/plain"
        )
    if isinstance(body, LogPage):
        return StreamingResponse(_page_pieces(body), status, media_type="text/html")
    if isinstance(body, TextBody):
        return Response(body.content, status, {"content-type": body.type})
    return JSONResponse(body, status)


def _pieces(part: LogSlice) -> Iterator[bytes]:
    left = part.length
    with part.open() as file:
        file.seek(part.start)
        while left > 0 and (piece := file.read(min(PIECE, left))):
            left -= len(piece)
            yield piece


def _page_pieces(page: LogPage) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    yield page.head
    for piece in _pieces(page.log):
        yield html.escape(decoder.decode(piece), quote=False)
    yield html.escape(decoder.decode(b"", final=True), quote=False) + page.tail
