"""The route table of PaddleCloud: a trailing slash does not matter."""

from __future__ import annotations

from collections.abc import Callable

from openpai_tasks.server.api.context import Context
from openpai_tasks.server.api.request import Reply, Request
from openpai_tasks.server.api.shapes.profiles import EVERY
from openpai_tasks.server.api.table import Route, RouteAccess
from openpai_tasks.server.paddlecloud import account, files, jobs, logs, quota, workers
from openpai_tasks.server.paddlecloud.pfs import handlers as pfs

TOKEN = "/api-token-auth"
PFS = "/api/v1/pfs"
CHUNKS = f"{PFS}/storage/chunks"


def rows() -> list[Route]:
    """Return all routes; the rows of ``/api/v1/pfs`` are a list of their own."""
    return [*OPEN, *JOBS, *FILES, *PFS_ROWS]


def _row(method: str, path: str, handler: Callable[[Context, Request], Reply]) -> Route:
    return Route(method, path, RouteAccess.USER, handler, EVERY)


OPEN = [
    Route("POST", TOKEN, RouteAccess.OPEN, account.get_token, EVERY),
    Route("GET", "/healthz", RouteAccess.OPEN, account.health, EVERY),
]
JOBS = [
    _row("GET", "/api/v1/token2user", account.get_user),
    _row("POST", "/api/v1/jobs", jobs.submit),
    _row("GET", "/api/v1/jobs", jobs.list_jobs),
    _row("DELETE", "/api/v1/jobs", jobs.kill),
    _row("DELETE", "/api/v1/jobs/{job}", jobs.kill),
    _row("GET", "/api/v1/pservers", workers.list_pservers),
    _row("GET", "/api/v1/workers", workers.list_workers),
    _row("GET", "/api/v1/logs", logs.read_logs),
    _row("GET", "/api/v1/quota", quota.get_quota),
]
FILES = [
    _row("POST", "/api/v1/file", files.upload),
    _row("GET", "/api/v1/file", files.download),
    _row("GET", "/api/v1/filelist", files.list_names),
]
PFS_ROWS = [
    _row("GET", f"{PFS}/files", pfs.get_files),
    _row("POST", f"{PFS}/files", pfs.change_files),
    _row("DELETE", f"{PFS}/files", pfs.change_files),
    _row("GET", f"{PFS}/chunks", pfs.get_chunk_meta),
    _row("GET", CHUNKS, pfs.get_chunk),
    _row("POST", CHUNKS, pfs.put_chunk),
]
"""The calls of PFS; failures have the shape ``{"err", "results"}``."""
