"""Faults of real clusters that an embedded one never has, in front of the servers that tests start.

`tests.forked_server` puts `Faults` around the application of each server that it forks. A test calls `switch`
while the server runs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import sqlite3
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import anyio.to_thread
import pytest
from starlette.datastructures import Headers
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from openpai_tasks.errors import ApiError, Denied
from openpai_tasks.protocol.routes import PREFIX
from openpai_tasks.server import api_errors
from openpai_tasks.server.api import rates
from openpai_tasks.server.api.app import build as build_server
from openpai_tasks.server.api.context import Context
from openpai_tasks.settings.home import write_private

FILE = "faults.json"
JOBS = re.compile(r"/api/v[12]/(user/[^/]+/)?jobs(?P<job>/[^/]+)?(?P<rest>/.*)?")
TASK_LOGS = re.compile(r".*/taskRoles/([^/]+)/taskIndex/(\d+)/attempts/\d+/logs")
LOGINS = ("/token", "/tokens", "/login")
LOG_FILES = ("/log-manager/", "/yarn/")
PAGE = "<html>\n<head><title>{0}</title></head>\n<body><center><h1>{0}</h1></center></body>\n</html>\n"
TITLES = {502: "502 Bad Gateway", 503: "503 Service Temporarily Unavailable", 504: "504 Gateway Time-out"}


@dataclasses.dataclass
class Switches:
    """The faults that are on."""

    late_tokens: float = 0  # seconds until the token of a login is stored; if used sooner, it never is
    logs: int | Mapping[str, int] = 0  # 404 or 500 instead of addresses of logs, or by ROLE/INDEX
    log_files: int = 0  # such a status instead of a log's content, from the proxy
    database: bool = False  # calls about jobs fail to reach the database
    gateway: int = 0  # 502, 503 or 504 instead of every answer of the API, from the proxy
    lost_submit: int = 0  # such a status, or 500, after a job was accepted
    full_retry_after: bool = False  # Retry-After of a list is the whole window; X-RateLimit-Reset is right
    calls: int = 0  # the number of answers to replace before all faults end; 0 is unlimited


OFF = Switches()


def switch(folder: Path, **switches: object) -> None:
    """Enable exactly these faults from the next call on; ``folder`` is the server's folder."""
    if switches and not hasattr(os, "pidfd_open"):
        pytest.skip("servers are not forked here, so they have no faults")
    on = Switches(**switches)  # type: ignore[arg-type]
    write_private(folder / FILE, json.dumps(dataclasses.asdict(on)))


def build(context: Context, others: Mapping[str, ASGIApp] | None = None) -> ASGIApp:
    """Return the application of a server, with faults in front of it."""
    return Faults(build_server(context, others), context)


class Faults:
    """An application that replaces or changes answers of another one."""

    def __init__(self, app: ASGIApp, context: Context) -> None:
        self._app = app
        self._context = context
        self._path = context.state.folder.parent / FILE
        self._lock = threading.Lock()
        self._stamp = (0, 0)
        self._on = OFF
        self._late = LateTokens(context)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        on = self._read()
        raw: bytes = scope["raw_path"]
        path = raw.partition(b"?")[0].decode("latin-1").removeprefix(PREFIX)
        authorization = Headers(scope=scope).get("authorization", "")
        if self._late.pending:
            await anyio.to_thread.run_sync(self._late.note_use, authorization)
        if on == OFF:
            return await self._app(scope, receive, send)
        response = await anyio.to_thread.run_sync(self._instead, on, path, authorization)
        if response is None:
            response = await recorded(self._app, scope, receive)
            response = await anyio.to_thread.run_sync(self._changed, on, scope["method"], path, response)
        await response(scope, receive, send)

    def _instead(self, on: Switches, path: str, authorization: str) -> Response | None:
        """Return the answer to a call that does not reach the server, or its database."""
        if on.gateway and path.startswith("/api"):
            return self._page(on.gateway)
        if on.log_files and path.startswith(LOG_FILES):
            return self._page(on.log_files)
        if on.database and JOBS.fullmatch(path) and self._is_known(authorization):
            return self._refusal(ApiError("connect ECONNREFUSED 127.0.0.1:5432", 500, "ECONNREFUSED"))
        if on.logs and (task := TASK_LOGS.fullmatch(path)):
            status = on.logs if isinstance(on.logs, int) else on.logs.get("/".join(task.groups()))
            if status:
                failed = (
                    api_errors.no_log() if status == 404 else api_errors.unknown("Failed to get log list")
                )
                return self._refusal(failed)
        return None

    def _changed(self, on: Switches, method: str, path: str, response: Response) -> Response:
        """Return the server's answer, with the fault in it."""
        job = JOBS.fullmatch(path)
        is_submission = job and not job["rest"] and method in ("POST", "PUT")
        if on.late_tokens and method == "POST" and path.endswith(LOGINS) and response.status_code == 200:
            self._late.postpone(json.loads(response.body)["token"], on.late_tokens)
        if on.lost_submit and is_submission and response.status_code < 300:
            if on.lost_submit != 500:
                return self._page(on.lost_submit)
            return self._refusal(api_errors.unknown("Unexpected end of JSON input"))
        if on.full_retry_after and job and response.status_code == 429:
            response.headers["retry-after"] = f"{self._context.rates[rates.LIST].seconds:.0f}"
        return response

    def _is_known(self, authorization: str) -> bool:
        try:
            self._context.tokens.identify(authorization)
        except Denied:
            return False
        return True

    def _refusal(self, err: ApiError) -> Response:
        self._count()
        return JSONResponse({"code": err.code, "message": str(err)}, err.status)

    def _page(self, status: int) -> Response:
        self._count()
        return HTMLResponse(PAGE.format(TITLES.get(status, status)), status, {"content-type": "text/html"})

    def _count(self) -> None:
        """Count a replaced answer; after the last one, end all faults."""
        with self._lock:
            if self._on.calls == 1:
                self._on = OFF
            elif self._on.calls:
                self._on = dataclasses.replace(self._on, calls=self._on.calls - 1)

    def _read(self) -> Switches:
        """Return the faults in the file, which is read again after a change."""
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return OFF
        with self._lock:
            if self._stamp != (stamp := (found.st_mtime_ns, found.st_ino)):
                self._stamp, self._on = stamp, Switches(**json.loads(self._path.read_text()))
            return self._on


async def recorded(app: ASGIApp, scope: Scope, receive: Receive) -> Response:
    """Return the whole answer of an application."""
    messages: list[Message] = []

    async def record(message: Message) -> None:
        messages.append(message)

    await app(scope, receive, record)
    head, *pieces = messages
    response = Response(b"".join(piece.get("body", b"") for piece in pieces), head["status"])
    response.raw_headers = list(head["headers"])
    return response


@dataclasses.dataclass(frozen=True)
class LateToken:
    """A token to store at the time ``due``; those in ``unknown`` are then revoked."""

    row: sqlite3.Row
    due: float
    unknown: tuple[str, ...]


class LateTokens:
    """Issued tokens that are not stored yet."""

    def __init__(self, context: Context) -> None:
        self._database, self._tokens = context.state.database, context.tokens
        self._lock = threading.Lock()
        self.pending: dict[str, LateToken] = {}

    def postpone(self, token: str, seconds: float) -> None:
        """Store a token later, and then revoke this user's tokens that were pending at the login."""
        row = self._database.row("SELECT * FROM account_tokens WHERE token = ?", [token])
        if row is None:
            return
        self._tokens.forget(row["id"])
        with self._lock:
            unknown = [one.row["id"] for one in self.pending.values() if one.row["user"] == row["user"]]
            self.pending[token] = LateToken(row, time.monotonic() + seconds, tuple(unknown))
        timer = threading.Timer(seconds, self._store, [token])
        timer.daemon = True
        timer.start()

    def note_use(self, authorization: str) -> None:
        """Drop a token for good if it is used before it is due; a timer that is late does not count."""
        token = authorization.rpartition(" ")[2]
        late = self.pending.get(token)
        if late is None:
            return
        if time.monotonic() < late.due:
            with self._lock:
                self.pending.pop(token, None)
        else:
            self._store(token)

    def _store(self, token: str) -> None:
        """Store a token, and before it those that were due earlier, whose timers may be late."""
        with self._lock, contextlib.suppress(sqlite3.ProgrammingError):  # the server has ended meanwhile
            if token not in self.pending:
                return
            due = self.pending[token].due
            for key, late in sorted(self.pending.items(), key=lambda one: one[1].due):
                if late.due <= due:
                    values = tuple(late.row)
                    holes = ", ".join("?" * len(values))
                    self._database.write(f"INSERT INTO account_tokens VALUES ({holes})", values)
                    for other in late.unknown:  # logins at the same time overwrite each other
                        self._tokens.forget(other)
                    del self.pending[key]
