"""Faults of real clusters, for tests of clients; ``faults.json`` in the server's folder enables them.

The file may be changed while the server runs; without it nothing here has an effect.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import math
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from openpai_tasks.errors import ApiError
from openpai_tasks.protocol import dump, routes
from openpai_tasks.server import refusals
from openpai_tasks.server.api.context import Context
from openpai_tasks.server.api.limits.rates import TooMany
from openpai_tasks.server.api.request import Reply, Request, TextBody
from openpai_tasks.server.api.router import Match, is_api
from openpai_tasks.server.state.state import STOP, State

log = logging.getLogger(__name__)

FILE = "faults.json"
# Seconds until the token of a login is stored; if used sooner, it is never stored.
LATE_TOKENS = "late_tokens"
SLOW_STOP = "slow_stop"  # seconds that a job continues to run after its stop was accepted
LOGS = "logs"  # 404 or 500 instead of the addresses of logs; or such a status by ROLE/INDEX of a task
LOG_FILES = "log_files"  # such a status instead of a log's content, from the proxy
DATABASE = "database"  # true: calls about jobs fail to reach the database
GATEWAY = "gateway"  # 502, 503 or 504 instead of every answer of the API, from the proxy
LOST_SUBMIT = "lost_submit"  # such a status, or 500, after a job was accepted
LONG_DIAGNOSTICS = "long_diagnostics"  # true: a failure is explained in dozens of lines of YAML
FULL_RETRY_AFTER = (
    "full_retry_after"  # true: Retry-After is the whole window, only X-RateLimit-Reset is right
)
CALLS = "calls"  # the number of answers to replace; unlimited if missing
NAMES = {LATE_TOKENS, SLOW_STOP, LOGS, LOG_FILES, DATABASE, GATEWAY, LOST_SUBMIT, LONG_DIAGNOSTICS}
NAMES |= {FULL_RETRY_AFTER, CALLS}

PAGE = "<html>\n<head><title>{0}</title></head>\n<body><center><h1>{0}</h1></center></body>\n</html>\n"
TITLES = {502: "502 Bad Gateway", 503: "503 Service Temporarily Unavailable", 504: "504 Gateway Time-out"}
JOB_PATHS = ("/api/v2/jobs", "/api/v1/jobs", "/api/v1/user/{user}/jobs", "/api/v2/user/{user}/jobs")
LOG_FILE_PATHS = ("/log-manager/", "/yarn/")
RUNTIME_LOG = "".join(f"[openpai-runtime] step {number} of the runtime\n" for number in range(1, 13))


class Faults:
    """The enabled faults."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._stamp: tuple[int, int, int] | None = None
        self._on: dict[str, Any] = {}
        self._late = LateTokens()

    def instead(self, path: str, match: Match | None) -> Reply | None:
        """Return the answer of a proxy that cannot reach the server, or None."""
        on = self._read()
        if GATEWAY in on and is_api(path):
            return self._page(on[GATEWAY])
        if LOG_FILES in on and match and match.route.path.startswith(LOG_FILE_PATHS):
            return self._page(on[LOG_FILES])
        return None

    def note_use(self, context: Context, authorization: str) -> None:
        """Check whether a token is used before it is stored."""
        self._late.note_use(context, authorization)

    def answer(self, context: Context, match: Match, request: Request) -> Reply:
        """Return the handler's answer, or the fault in its place."""
        on, name = self._read(), match.route.handler.__name__
        if not on:
            return match.route.handler(context, request)
        self._fail(on, match, request)
        if SLOW_STOP in on:
            context = dataclasses.replace(context, state=SlowStops(context.state, on[SLOW_STOP]))
        status, body = match.route.handler(context, request)
        if LATE_TOKENS in on and name == "login" and isinstance(body, dict):
            self._late.postpone(context, body["token"], on[LATE_TOKENS])
        if LOST_SUBMIT in on and name.startswith("submit"):
            return self._lost(on[LOST_SUBMIT])
        if LONG_DIAGNOSTICS in on and status == 200:
            lengthen(body)
        return status, body

    def retry_after(self, err: TooMany) -> dict[str, str]:
        """Return the headers of a refusal for too many calls."""
        full = {"retry-after": str(math.ceil(err.window))} if FULL_RETRY_AFTER in self._read() else {}
        return {**err.headers, **full}

    def _fail(self, on: Mapping[str, Any], match: Match, request: Request) -> None:
        if DATABASE in on and match.route.path.startswith(JOB_PATHS):
            self._count()
            raise ApiError("connect ECONNREFUSED 127.0.0.1:5432", 500, "ECONNREFUSED")
        if LOGS in on and match.route.path == routes.TASK_LOGS:
            task = f"{request.params['role']}/{request.params['index']}"
            status = on[LOGS].get(task) if isinstance(on[LOGS], dict) else on[LOGS]
            if status:
                self._count()
                raise refusals.no_log() if status == 404 else refusals.unknown("Failed to get log list")

    def _lost(self, status: int) -> Reply:
        if status == 500:
            self._count()
            return 500, {"code": "UnknownError", "message": "Unexpected end of JSON input"}
        return self._page(status)

    def _page(self, status: int) -> Reply:
        self._count()
        return status, TextBody(PAGE.format(TITLES.get(status, str(status))), "text/html")

    def _count(self) -> None:
        """Count a replaced answer; after the last one, disable all faults."""
        with self._lock:
            if CALLS in self._on:
                self._on[CALLS] -= 1
                if self._on[CALLS] <= 0:
                    self._on = {}

    def _read(self) -> dict[str, Any]:
        """Return the faults in the file, which is read again after a change."""
        try:
            found = os.stat(self._path)
            stamp = (found.st_mtime_ns, found.st_ino, found.st_size)
        except OSError:
            stamp = None
        with self._lock:
            if stamp != self._stamp:
                self._stamp, self._on = stamp, _switches(self._path) if stamp else {}
                log.warning("faults switched on: %s", ", ".join(sorted(self._on)) or "none")
            return self._on


@dataclasses.dataclass(frozen=True)
class LateToken:
    """A token to store at the time ``due``; those in ``unknown`` are then revoked."""

    row: sqlite3.Row
    due: float
    unknown: tuple[str, ...]


class LateTokens:
    """Issued tokens that are not stored yet."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pending: dict[str, LateToken] = {}

    def postpone(self, context: Context, token: str, seconds: float) -> None:
        """Store a token later, and then revoke this user's tokens that were pending at the login."""
        row = context.state.database.row("SELECT * FROM account_tokens WHERE token = ?", [token])
        if row is None:
            return
        context.tokens.forget(row["id"])
        with self._lock:
            unknown = [one.row["id"] for one in self._pending.values() if one.row["user"] == row["user"]]
            self._pending[token] = LateToken(row, time.monotonic() + seconds, tuple(unknown))
        _later(seconds, lambda: self._store(context, token))

    def note_use(self, context: Context, authorization: str) -> None:
        """Drop a token for good if it is used before it is due; a timer that is late does not count."""
        token = authorization.rpartition(" ")[2]
        late = self._pending.get(token)
        if late is None:
            return
        if time.monotonic() < late.due:
            with self._lock:
                self._pending.pop(token, None)
        else:
            self._store(context, token)

    def _store(self, context: Context, token: str) -> None:
        with self._lock:
            late = self._pending.get(token)
            if late is None:
                return
            values = tuple(late.row)
            holes = ", ".join("?" * len(values))
            context.state.database.write(f"INSERT INTO account_tokens VALUES ({holes})", values)
            for other in late.unknown:  # logins at the same time overwrite each other
                context.tokens.forget(other)
            del self._pending[token]


class SlowStops(State):
    """A state that delays stops."""

    def __init__(self, state: State, seconds: float) -> None:
        self.__dict__.update(vars(state))
        self._seconds = seconds

    def set_execution(self, key: str, value: str) -> None:
        if value != STOP:
            return super().set_execution(key, value)
        self.database.write("UPDATE jobs SET execution = ? WHERE key = ?", [value, key])
        _later(self._seconds, lambda: self._stop(key))

    def _stop(self, key: str) -> None:
        job = self.job(key)
        if job is not None and job.execution == STOP:
            super().set_execution(key, STOP)


def lengthen(body: Any) -> None:
    """Explain failures like the framework controller: with the pod's status in YAML."""
    if isinstance(body, list):
        for one in body:
            lengthen(one)
    elif isinstance(body, dict):
        runtime = (body.get("appExitMessages") or {}).get("runtime")
        if runtime:
            body["appExitDiagnostics"] = _long_diagnostics(runtime)
        for below in body.values():
            lengthen(below)


def _long_diagnostics(runtime: Mapping[str, Any]) -> str:
    shown = {key: value for key, value in runtime.items() if key != "name"}
    shown["errorLogs"] = {**shown["errorLogs"], "platform": RUNTIME_LOG}
    message = f"[PAI_RUNTIME_ERROR_START]\n{dump(shown)}[PAI_RUNTIME_ERROR_END]\n"
    code = runtime.get("exitCode", runtime.get("exitcode"))
    pod = {"containers": [{"name": "app", "reason": "Error", "message": message, "code": code}]}
    return f"PodPattern matched:\n{dump(pod)}"


def _later(seconds: float, action: Callable[[], object]) -> None:
    def run() -> None:
        with contextlib.suppress(sqlite3.ProgrammingError):  # the server has ended in the meantime
            action()

    timer = threading.Timer(seconds, run)
    timer.daemon = True
    timer.start()


def _switches(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as err:
        log.warning("%s is not used: %s", path.name, err)
        return {}
    if not isinstance(found, dict) or not found.keys() <= NAMES:
        log.warning("%s is not used: expected an object with keys of %s", path.name, ", ".join(sorted(NAMES)))
        return {}
    return {name: value for name, value in found.items() if value}
