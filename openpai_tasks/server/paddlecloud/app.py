"""PaddleCloud's API as a web application: check the caller, read the body, and shape errors as it does.

Failures of a call have the status 200, since the original client reads the body of no other: the body's
``code`` or ``err`` tells. Only missing credentials, unknown routes and unreadable bodies have another status.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import logging
from collections.abc import Callable
from typing import Any

import anyio
from starlette.datastructures import FormData
from starlette.requests import ClientDisconnect
from starlette.requests import Request as WebRequest
from starlette.responses import JSONResponse, Response

from openpai_tasks.errors import ApiError, PaiError
from openpai_tasks.loopback.callers import caller_process, connection
from openpai_tasks.loopback.web import (
    CLOSE,
    READ_LIMIT,
    SECONDS,
    Dispatcher,
    Match,
    RefusedCall,
    Router,
    internal_error,
    read_body,
    read_small_form,
    split,
    too_slow,
)
from openpai_tasks.protocol.routes import PADDLECLOUD_PREFIX
from openpai_tasks.server.accounts.users import Identity
from openpai_tasks.server.api import bodies
from openpai_tasks.server.api.app import make_request
from openpai_tasks.server.api.context import Context
from openpai_tasks.server.api.formats.profiles import EVERY
from openpai_tasks.server.api.pools import PASSWORDS, ThreadPools
from openpai_tasks.server.api.rates import RateLimited
from openpai_tasks.server.api.request import Reply, Request, to_response
from openpai_tasks.server.api.table import Route, RouteAccess
from openpai_tasks.server.paddlecloud import account, files, jobs, pods
from openpai_tasks.server.paddlecloud.pfs import handlers as pfs
from openpai_tasks.server.paddlecloud.pfs.chunks import MOST
from openpai_tasks.server.paddlecloud.records import PaddleRecords

log = logging.getLogger(__name__)

TOKEN = "/api-token-auth"
PFS = "/api/v1/pfs"
CHUNKS = f"{PFS}/storage/chunks"
JSON_LIMIT = 4 << 20  # bytes
CHUNK_LIMIT = MOST + (64 << 10)
FIELD_LIMIT = 1 << 20  # bytes of a form's field that is not a file
MOST_PARTS = 20
UPLOAD_SECONDS = 3600.0
CHALLENGE = {"www-authenticate": 'Basic realm="api"'}
NO_CREDENTIALS = "Authentication credentials were not provided."


def _row(method: str, path: str, handler: Callable[[Context, Request], Reply]) -> Route:
    return Route(method, path, RouteAccess.USER, handler, EVERY)


ROUTES = [
    Route("POST", TOKEN, RouteAccess.OPEN, account.get_token, EVERY),
    Route("GET", "/healthz", RouteAccess.OPEN, account.health, EVERY),
    _row("GET", "/api/v1/token2user", account.get_user),
    _row("POST", "/api/v1/jobs", jobs.submit),
    _row("GET", "/api/v1/jobs", jobs.list_jobs),
    _row("DELETE", "/api/v1/jobs", jobs.kill),
    _row("DELETE", "/api/v1/jobs/{job}", jobs.kill),
    _row("GET", "/api/v1/pservers", pods.list_pservers),
    _row("GET", "/api/v1/workers", pods.list_workers),
    _row("GET", "/api/v1/logs", pods.read_logs),
    _row("GET", "/api/v1/quota", account.get_quota),
    _row("POST", "/api/v1/file", files.upload),
    _row("GET", "/api/v1/file", files.download),
    _row("GET", "/api/v1/filelist", files.list_names),
    _row("GET", f"{PFS}/files", pfs.get_files),
    _row("POST", f"{PFS}/files", pfs.change_files),
    _row("DELETE", f"{PFS}/files", pfs.change_files),
    _row("GET", f"{PFS}/chunks", pfs.get_chunk_meta),
    _row("GET", CHUNKS, pfs.get_chunk),
    _row("POST", CHUNKS, pfs.put_chunk),
]


def unauthorized(message: str) -> RefusedCall:
    return RefusedCall(message, 401, headers=CHALLENGE)


class PaddleCloudApp(Dispatcher[Route]):
    prefix = PADDLECLOUD_PREFIX

    def __init__(self, context: Context) -> None:
        super().__init__(Router(ROUTES))
        self._context = context
        self._records = PaddleRecords(context.state.database)
        self._pools = ThreadPools()

    async def answer(self, web: WebRequest, path: str, match: Match[Route] | None) -> Response:
        if match is None:
            raise self._no_route(path)
        header = web.headers.get("authorization", "")
        checks_password = match.route.path == TOKEN or header[:6].lower() == "basic "
        pool = PASSWORDS if checks_password else ""
        identity = None
        if match.route.access is not RouteAccess.OPEN:
            identity = await self._pools.run(pool, self._identify, web, header)
        body = await (_body(web, _is_chunk(match)) if identity else _small_body(web))
        try:
            request = make_request(web, match, body, identity)
            return to_response(await self._pools.run(pool, match.route.handler, self._context, request))
        except RateLimited:
            raise
        except ApiError as err:
            return _failure(err, path)
        except OSError as err:
            log.warning("%s %s: %s", web.method, match.route.path, err)
            return _failure(ApiError(err.strerror or "the file system failed", 500), path)
        except Exception as err:
            log.exception("%s %s failed", web.method, match.route.path)
            return _failure(internal_error(err), path)
        finally:
            if isinstance(body, FormData):
                await body.close()

    async def refuse(self, web: WebRequest, err: PaiError) -> Response:
        """Read what the caller is still sending, so that it also reads the answer."""
        assert isinstance(err, ApiError)
        headers, size = err.headers if isinstance(err, RefusedCall) else {}, 0
        with (
            contextlib.suppress(asyncio.CancelledError),  # the server ends
            anyio.move_on_after(SECONDS),
            contextlib.suppress(RuntimeError, ClientDisconnect),  # it was read, or nobody waits
        ):
            async for piece in web.stream():
                size += len(piece)
                if size > READ_LIMIT:
                    headers = {**headers, **CLOSE}
                    break
        return JSONResponse({"detail": str(err)}, err.status or 400, headers)

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
        methods = [method for method in ("GET", "POST", "DELETE") if self.router.match(method, path)]
        if methods:
            return RefusedCall("Method not allowed.", 405, headers={"allow": ", ".join(methods)})
        return RefusedCall("Not found.", 404)


def _is_chunk(match: Match[Route]) -> bool:
    """Whether the body is a chunk, which is parsed by its handler: it is binary, and has one part."""
    return match.route.path == CHUNKS and match.route.method == "POST"


def _failure(err: ApiError, path: str) -> Response:
    if split(path.lower())[:3] == split(PFS):
        return JSONResponse({"err": str(err), "results": None}, headers=pfs.EXTENSIONS)
    return JSONResponse({"code": err.status or 500, "msg": str(err)})


async def _small_body(web: WebRequest) -> Any:
    """Return the body of a caller who has not signed in."""
    if web.headers.get("content-type", "").lower().startswith("multipart/"):
        return await read_small_form(web, bodies.LIMIT)
    return await _parsed_body(web, bodies.LIMIT)


async def _body(web: WebRequest, is_chunk: bool) -> Any:
    """Return the bytes of a chunk, a form with files, which are in temporary files, or any other's JSON."""
    if is_chunk:
        return await read_body(web, CHUNK_LIMIT, UPLOAD_SECONDS)
    if not web.headers.get("content-type", "").lower().startswith("multipart/"):
        return await _parsed_body(web, JSON_LIMIT)
    try:
        with anyio.fail_after(UPLOAD_SECONDS):
            return await web.form(max_files=MOST_PARTS, max_fields=MOST_PARTS, max_part_size=FIELD_LIMIT)
    except TimeoutError as err:
        raise too_slow(UPLOAD_SECONDS) from err


async def _parsed_body(web: WebRequest, limit: int) -> Any:
    kind = web.headers.get("content-type", "").lower()
    is_form = kind.startswith("application/x-www-form-urlencoded")
    return bodies.parse(kind if is_form else "application/json", await read_body(web, limit))
