"""The web application: find the route, check the caller, read the body, and shape errors as PaddleCloud does.

Failures of a call have the status 200, since the original client reads the body of no other: the body's
``code`` or ``err`` tells. Only missing credentials, unknown routes and unreadable bodies have another status.
"""

from __future__ import annotations

import base64
import binascii
import logging
from typing import Any

import anyio
from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.requests import Request as WebRequest
from starlette.types import Receive, Scope, Send

from openpai_tasks.errors import ApiError
from openpai_tasks.server.accounts.identity import Identity
from openpai_tasks.server.api import bodies, router
from openpai_tasks.server.api.app import PATIENCE, check_origin, parse_query, raw_path, raw_query, to_response
from openpai_tasks.server.api.context import Context
from openpai_tasks.server.api.handlers import authn
from openpai_tasks.server.api.limits.rates import TooMany
from openpai_tasks.server.api.pools import Pools
from openpai_tasks.server.api.request import Headed, Reply, Request, caller_process
from openpai_tasks.server.api.router import Match, RouteAccess, Router
from openpai_tasks.server.paddlecloud import PREFIX
from openpai_tasks.server.paddlecloud.pfs.chunks import MOST
from openpai_tasks.server.paddlecloud.records import PaddleRecords
from openpai_tasks.server.paddlecloud.table import CHUNKS, PFS, TOKEN, rows

log = logging.getLogger(__name__)

JSON_LIMIT = 4 << 20  # bytes
CHUNK_LIMIT = MOST + (64 << 10)
FIELD_LIMIT = 1 << 20  # bytes of a form's field that is not a file
UPLOAD_SECONDS = 3600.0
CHALLENGE = {"www-authenticate": 'Basic realm="api"'}
NO_CREDENTIALS = "Authentication credentials were not provided."


class Unauthorized(ApiError):
    """Raised for missing or wrong credentials."""

    def __init__(self, message: str) -> None:
        super().__init__(message, 401)


class PaddleCloudApp:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._records = PaddleRecords(context.state.database)
        self._router = Router(rows())
        self._pools = Pools()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        web = WebRequest(scope, receive, send)
        path = raw_path(web)[len(PREFIX) :]
        response = to_response(*await self._reply(web, path))
        await response(scope, receive, send)

    async def _reply(self, web: WebRequest, path: str) -> Reply:
        match = self._router.match(web.method, path)
        try:
            check_origin(web.headers)
            if match is None:
                return await self._refuse(web, *self._no_route(path))
            return await self._answer(web, match)
        except Unauthorized as err:
            return await self._refuse(web, 401, Headed({"detail": str(err)}, CHALLENGE))
        except TooMany as err:
            return await self._refuse(web, 429, Headed({"detail": str(err)}, err.headers))
        except ApiError as err:
            return _failure(err, is_pfs(path))
        except HTTPException as err:  # a form that cannot be parsed
            return 400, {"detail": str(err.detail)}
        except ClientDisconnect:
            return 400, None
        except Exception:
            log.exception("%s %s failed", web.method, match.route.path if match else "?")
            return _failure(ApiError("Internal server error; see the server's log.", 500), is_pfs(path))

    async def _answer(self, web: WebRequest, match: Match) -> Reply:
        header = web.headers.get("authorization", "")
        checks_password = match.route.path == TOKEN or header[:6].lower() == "basic "
        pool = authn.login if checks_password else None
        identity = None
        if match.route.access is not RouteAccess.OPEN:
            identity = await self._pools.run(pool, self._identify, web, header)
        body = await (_raw(web, CHUNK_LIMIT, UPLOAD_SECONDS) if _is_chunk(match) else _body(web))
        try:
            request = Request(
                method=web.method,
                params=match.params,
                query={name: tuple(found) for name, found in parse_query(raw_query(web)).items()},
                headers=dict(web.headers),
                body=body,
                identity=identity,
                ports=_ports(web),
            )
            return await self._pools.run(pool, match.route.handler, self._context, request)
        finally:
            if isinstance(body, FormData):
                await body.close()

    def _identify(self, web: WebRequest, header: str) -> Identity:
        """Return the sender of ``Token <token>`` or of a user's name and password."""
        scheme, _, value = header.strip().partition(" ")
        if scheme.lower() == "token":
            user = self._records.user(value.strip())
            message = "Invalid token."
        elif scheme.lower() == "basic":
            user = self._basic_user(web, value.strip())
            message = "Invalid username/password."
        else:
            raise Unauthorized(NO_CREDENTIALS)
        account = self._context.accounts.user(user) if user else None
        if account is None:
            raise Unauthorized(message)
        return Identity(account.name, account.admin, False, "", 0, None, account)

    def _basic_user(self, web: WebRequest, value: str) -> str:
        try:
            user, _, password = base64.b64decode(value, validate=True).decode("utf-8").partition(":")
        except (binascii.Error, UnicodeDecodeError) as err:
            raise Unauthorized("Invalid basic header.") from err
        return user if self._context.check_password(caller_process(*_ports(web)), user, password) else ""

    def _no_route(self, path: str) -> Reply:
        methods = [method for method in ("GET", "POST", "DELETE") if self._router.match(method, path)]
        if methods:
            return 405, Headed({"detail": "Method not allowed."}, {"allow": ", ".join(methods)})
        return 404, {"detail": "Not found."}

    async def _refuse(self, web: WebRequest, status: int, body: Any) -> Reply:
        """Read what the caller is sending, so that it also reads the answer."""
        size = 0
        with anyio.move_on_after(bodies.SECONDS):
            async for piece in web.stream():
                size += len(piece)
                if size > PATIENCE:
                    break
        return status, Headed(body, {"connection": "close"}) if size > PATIENCE else body


def _is_chunk(match: Match) -> bool:
    """Whether the body is a chunk, which is parsed by its handler: it is binary, and has one part."""
    return match.route.path == CHUNKS and match.route.method == "POST"


def is_pfs(path: str) -> bool:
    return router.split(path.lower())[:3] == router.split(PFS)


def _ports(web: WebRequest) -> tuple[int, int]:
    return web.client.port if web.client else 0, (web.scope.get("server") or ("", 0))[1] or 0


def _failure(err: ApiError, pfs: bool) -> Reply:
    if err.status in bodies.UNREAD:
        return err.status, Headed({"detail": str(err)}, {"connection": "close"})
    if pfs:
        return 200, {"err": str(err), "results": None}
    return 200, {"code": err.status or 500, "msg": str(err)}


async def _body(web: WebRequest) -> Any:
    """Return a form with files, which are in temporary files, or the parsed JSON of any other body."""
    kind = web.headers.get("content-type", "").lower()
    if kind.startswith("multipart/"):
        try:
            with anyio.fail_after(UPLOAD_SECONDS):
                return await web.form(max_files=100, max_fields=100, max_part_size=FIELD_LIMIT)
        except TimeoutError as err:
            raise bodies.too_slow() from err
    raw = await _raw(web, JSON_LIMIT, bodies.SECONDS)
    if kind.startswith("application/x-www-form-urlencoded"):
        return bodies.parse(kind, raw)
    return bodies.parse("application/json", raw)


async def _raw(web: WebRequest, limit: int, seconds: float) -> bytes:
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
