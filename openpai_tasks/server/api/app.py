"""The REST API as a web application: callers, rate limits, handlers, and error bodies."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qs

from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request as WebRequest
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from openpai_tasks.errors import ApiError, Denied, NotFound, PaiError
from openpai_tasks.loopback.callers import connection
from openpai_tasks.loopback.web import (
    LOCAL_ORIGIN,
    SAFE,
    Dispatcher,
    Match,
    RefusedCall,
    Router,
    raw_path,
    read_body,
)
from openpai_tasks.protocol.routes import PREFIX
from openpai_tasks.server import api_errors
from openpai_tasks.server.accounts.users import Identity
from openpai_tasks.server.api import bodies, table
from openpai_tasks.server.api.context import Context
from openpai_tasks.server.api.handlers import web_pages
from openpai_tasks.server.api.pools import ThreadPools
from openpai_tasks.server.api.rates import API, Limiter, RateLimited
from openpai_tasks.server.api.request import Reply, Request, to_response
from openpai_tasks.server.api.table import Route, RouteAccess


def build(context: Context, others: Mapping[str, ASGIApp] | None = None) -> ASGIApp:
    """Return the application for one cluster; ``others`` answer the paths below their prefixes.

    It needs none of Starlette's routes, which end at a line break, and handles every error itself.
    """
    api = RestApi(context)

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        path = f"{raw_path(scope)}/"
        for prefix, other in (others or {}).items():
            if path.startswith(f"{prefix}/"):
                return await other(scope, receive, send)
        await api(scope, receive, send)

    return CORSMiddleware(
        answer, allow_origin_regex=LOCAL_ORIGIN.pattern, allow_methods=["*"], allow_headers=["*"]
    )


class RestApi(Dispatcher[Route]):
    """Answers as OpenPAI does: reads the body, checks the caller and the rates, and calls the handler."""

    prefix = PREFIX

    def __init__(self, context: Context) -> None:
        super().__init__(Router(table.rows(context.profile.name)))
        self._context = context
        self._profile = context.profile
        self._limiter = Limiter(context.rates)
        self._pools = ThreadPools()

    async def answer(self, web: WebRequest, path: str, match: Match[Route] | None) -> Response:
        raw = await read_body(web, self._context.body_limit)
        pool = match.route.pool if match else ""
        return await self._pools.run(pool, self._limited_response, web, path, match, raw)

    async def refuse(self, web: WebRequest, err: PaiError) -> Response:
        assert isinstance(err, ApiError)
        return self._error(err)

    def _limited_response(
        self, web: WebRequest, path: str, match: Match[Route] | None, raw: bytes
    ) -> Response:
        """Return the answer or refusal, with the headers of the rate limit."""
        left = self._limiter.take(API, "everyone") if table.is_api(path) else {}
        try:
            response = to_response(self._reply(web, path, match, raw, left))
        except ApiError as err:
            response = self._error(err)
        for name, value in left.items():
            response.headers.setdefault(name, value)
        return response

    def _reply(
        self, web: WebRequest, path: str, match: Match[Route] | None, raw: bytes, left: dict[str, str]
    ) -> Reply:
        if match is None:
            reads = web.method in SAFE
            page = reads and web_pages.redirect_to_portal(self._context, path, web.url.query, web.headers)
            if page:
                return page
            query = f"?{web.url.query}" if web.url.query else ""
            raise NotFound(f"API {path}{query} is not found.", 404, "NoApiError")
        identity = self._identify(match.route.access, web.headers.get("authorization", ""))
        if match.route.limit:
            left.update(self._limiter.take(match.route.limit, identity.user if identity else ""))
        body = bodies.parse(web.headers.get("content-type", ""), raw)
        return match.route.handler(self._context, make_request(web, match, body, identity))

    def _identify(self, access: RouteAccess, authorization: str) -> Identity | None:
        if access is RouteAccess.OPEN:
            return None
        try:
            identity = self._context.tokens.identify(authorization)
        except Denied as err:
            raise err if self._profile.reports_bad_tokens else api_errors.guest() from err
        if access in (RouteAccess.USER, RouteAccess.ADMIN) and identity.application:
            raise api_errors.forbidden("Applications are not allowed to do this operation.")
        if access in (RouteAccess.ADMIN, RouteAccess.TOKEN_ADMIN) and not identity.admin:
            raise api_errors.forbidden("Non-admin is not allow to do this operation.")
        return identity

    def _error(self, err: ApiError) -> Response:
        headers = err.headers if isinstance(err, RefusedCall) else {}
        if isinstance(err, RateLimited):
            return HTMLResponse(str(err), err.status, headers)
        status, code = self._profile.errors.get(err.code, (err.status, err.code))
        return JSONResponse({**({"code": code} if code else {}), "message": str(err)}, status, headers)


def make_request(web: WebRequest, match: Match[Route], body: object, identity: Identity | None) -> Request:
    """Return the call as handlers get it."""
    text: bytes = web.scope["query_string"]
    try:
        query = parse_qs(text.decode("latin-1"), keep_blank_values=True, max_num_fields=bodies.FIELDS_LIMIT)
    except ValueError as err:
        raise api_errors.invalid("too many query parameters") from err
    return Request(
        method=web.method,
        params=match.params,
        query={name: tuple(found) for name, found in query.items()},
        headers=dict(web.headers),
        body=body,
        identity=identity,
        connection=connection(web.scope),
    )
