"""The web application: find the route, check the caller, read the body, and shape errors as PaddleCloud does.

Failures of a call have the status 200, since the original client reads the body of no other: the body's
``code`` or ``err`` tells. Only missing credentials, unknown routes and unreadable bodies have another status.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import logging
import time
from collections.abc import Mapping
from typing import Any

import anyio
from starlette.datastructures import FormData
from starlette.formparsers import MultiPartException
from starlette.requests import ClientDisconnect
from starlette.requests import Request as WebRequest
from starlette.types import Receive, Scope, Send

from openpai_tasks.errors import ApiError
from openpai_tasks.loopback.bodies import read_small_form
from openpai_tasks.loopback.callers import caller_process, connection
from openpai_tasks.protocol.routes import PADDLECLOUD_PREFIX
from openpai_tasks.server.accounts.identity import Identity
from openpai_tasks.server.api import bodies, router
from openpai_tasks.server.api.app import (
    PATIENCE,
    check_origin,
    note_call,
    parse_query,
    raw_path,
    raw_query,
    read_body,
    to_response,
)
from openpai_tasks.server.api.context import Context
from openpai_tasks.server.api.handlers import authn
from openpai_tasks.server.api.limits.rates import TooMany
from openpai_tasks.server.api.pools import Pools
from openpai_tasks.server.api.request import Headed, Reply, Request
from openpai_tasks.server.api.router import Match, RouteAccess, Router
from openpai_tasks.server.paddlecloud.pfs.chunks import MOST
from openpai_tasks.server.paddlecloud.records import PaddleRecords
from openpai_tasks.server.paddlecloud.table import CHUNKS, PFS, TOKEN, rows

log = logging.getLogger(__name__)

JSON_LIMIT = 4 << 20  # bytes
CHUNK_LIMIT = MOST + (64 << 10)
FIELD_LIMIT = 1 << 20  # bytes of a form's field that is not a file
MOST_PARTS = 20
UPLOAD_SECONDS = 3600.0
CHALLENGE = {"www-authenticate": 'Basic realm="api"'}
NO_CREDENTIALS = "Authentication credentials were not provided."


class RefusedCall(ApiError):
    """Raised before a handler is called, so that the status of the answer tells."""

    def __init__(self, message: str, status: int, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message, status)
        self.headers = headers or {}


def unauthorized(message: str) -> RefusedCall:
    return RefusedCall(message, 401, CHALLENGE)


class PaddleCloudApp:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._records = PaddleRecords(context.state.database)
        self._router = Router(rows())
        self._pools = Pools()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        web = WebRequest(scope, receive, send)
        path, begun = raw_path(web)[len(PADDLECLOUD_PREFIX) :], time.monotonic()
        match = self._router.match(web.method, path)
        status, body = await self._reply(web, path, match)
        note_call(web.method, match, status, time.monotonic() - begun)
        await to_response(status, body)(scope, receive, send)

    async def _reply(self, web: WebRequest, path: str, match: Match | None) -> Reply:
        pfs = is_pfs(path)
        try:
            _check_origin(web)
            if match is None:
                raise self._no_route(path)
            return await self._answer(web, match)
        except RefusedCall as err:
            return await _refuse(web, err.status or 400, str(err), err.headers)
        except TooMany as err:
            return await _refuse(web, 429, str(err), err.headers)
        except ApiError as err:
            return _failure(err, pfs)
        except OSError as err:
            log.warning("%s %s: %s", web.method, match.route.path if match else "?", err)
            return _failure(ApiError(err.strerror or "the file system failed", 500), pfs)
        except ClientDisconnect:
            return 400, None
        except Exception:
            log.exception("%s %s failed", web.method, match.route.path if match else "?")
            return _failure(ApiError("Internal server error; see the server's log.", 500), pfs)

    async def _answer(self, web: WebRequest, match: Match) -> Reply:
        header = web.headers.get("authorization", "")
        checks_password = match.route.path == TOKEN or header[:6].lower() == "basic "
        pool = authn.login if checks_password else None
        identity = None
        if match.route.access is not RouteAccess.OPEN:
            identity = await self._pools.run(pool, self._identify, web, header)
        body = await (_body(web, _is_chunk(match)) if identity else _small_body(web))
        try:
            request = Request(
                method=web.method,
                params=match.params,
                query={name: tuple(found) for name, found in parse_query(raw_query(web)).items()},
                headers=dict(web.headers),
                body=body,
                identity=identity,
                connection=connection(web.scope),
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
            raise unauthorized(NO_CREDENTIALS)
        account = self._context.accounts.user(user) if user else None
        if account is None:
            raise unauthorized(message)
        return Identity(account.name, account.admin, False, "", 0, None, account)

    def _basic_user(self, web: WebRequest, value: str) -> str:
        try:
            user, _, password = base64.b64decode(value, validate=True).decode("utf-8").partition(":")
        except (binascii.Error, UnicodeDecodeError) as err:
            raise unauthorized("Invalid basic header.") from err
        process = caller_process(connection(web.scope))
        return user if self._context.check_password(process, user, password) else ""

    def _no_route(self, path: str) -> RefusedCall:
        methods = [method for method in ("GET", "POST", "DELETE") if self._router.match(method, path)]
        if methods:
            return RefusedCall("Method not allowed.", 405, {"allow": ", ".join(methods)})
        return RefusedCall("Not found.", 404)


async def _refuse(web: WebRequest, status: int, message: str, headers: Mapping[str, str]) -> Reply:
    """Read what the caller is still sending, so that it also reads the answer."""
    size = 0
    with anyio.move_on_after(bodies.SECONDS):
        with contextlib.suppress(RuntimeError, ClientDisconnect):  # it was read, or nobody waits
            async for piece in web.stream():
                size += len(piece)
                if size > PATIENCE:
                    break
    closing = {"connection": "close"} if size > PATIENCE or status in bodies.UNREAD else {}
    return status, Headed({"detail": message}, {**headers, **closing})


def _check_origin(web: WebRequest) -> None:
    try:
        check_origin(web.headers)
    except ApiError as err:
        raise RefusedCall(str(err), 403) from err


def _is_chunk(match: Match) -> bool:
    """Whether the body is a chunk, which is parsed by its handler: it is binary, and has one part."""
    return match.route.path == CHUNKS and match.route.method == "POST"


def is_pfs(path: str) -> bool:
    return router.split(path.lower())[:3] == router.split(PFS)


def _failure(err: ApiError, pfs: bool) -> Reply:
    if pfs:
        return 200, {"err": str(err), "results": None}
    return 200, {"code": err.status or 500, "msg": str(err)}


async def _small_body(web: WebRequest) -> Any:
    """Return the body of a caller who has not signed in."""
    kind = web.headers.get("content-type", "").lower()
    try:
        if kind.startswith("multipart/"):
            return await read_small_form(web, bodies.LIMIT)
        is_form = kind.startswith("application/x-www-form-urlencoded")
        return bodies.parse(kind if is_form else "application/json", await read_body(web, bodies.LIMIT))
    except MultiPartException as err:
        raise RefusedCall(err.message, 413) from err
    except ApiError as err:
        raise RefusedCall(str(err), err.status or 400) from err


async def _body(web: WebRequest, is_chunk: bool) -> Any:
    """Return the bytes of a chunk, a form with files, which are in temporary files, or any other's JSON."""
    kind = web.headers.get("content-type", "").lower()
    is_form = kind.startswith("application/x-www-form-urlencoded")
    try:
        if is_chunk:
            return await read_body(web, CHUNK_LIMIT, UPLOAD_SECONDS)
        if kind.startswith("multipart/"):
            with anyio.fail_after(UPLOAD_SECONDS):
                return await web.form(max_files=MOST_PARTS, max_fields=MOST_PARTS, max_part_size=FIELD_LIMIT)
        return bodies.parse(kind if is_form else "application/json", await read_body(web, JSON_LIMIT))
    except MultiPartException as err:
        raise RefusedCall(err.message, 400) from err
    except TimeoutError as err:
        raise RefusedCall("the body did not arrive in time", 408) from err
    except ApiError as err:
        raise RefusedCall(str(err), err.status or 400) from err
