"""Requests to the embedded cluster: queries and bodies of every route, of OpenPAI's and PaddleCloud's API."""

from __future__ import annotations

import asyncio
import atexit
import logging
import re
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from openpai_tasks.protocol import routes as paths
from openpai_tasks.server.accounts.users import Identity
from openpai_tasks.server.api import table
from openpai_tasks.server.api.app import RestApi
from openpai_tasks.server.api.formats.profiles import UNION
from openpai_tasks.server.api.pools import PASSWORDS
from openpai_tasks.server.api.rates import API, LIST, SUBMIT
from openpai_tasks.server.cluster import ClusterOptions, EmbeddedCluster
from openpai_tasks.server.paddlecloud import app as paddle
from tests.fuzz.target import Target
from tests.fuzz.targets.documents import V1
from tests.server.workshop import document, role

OTHERS = (paths.CLEAN_ORPHANS, paths.CLEAN_JOBS)  # it would end processes of this machine
NAMES = {
    "attempt": "0",
    "index": "0",
    "task_attempt": "0",
    "role": "main",
    "storage": "home",
    "file": "stdout",
}
KINDS = (b"application/json", b"application/x-www-form-urlencoded", b"text/yaml")
FORM = b"multipart/form-data; boundary=b"
LOG = "openpai_tasks.loopback.web", "openpai_tasks.server.paddlecloud.app"


class Failures(logging.Handler):
    """Raises what a dispatcher logs as an internal error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: BaseException | None = None

    def emit(self, record: logging.LogRecord) -> None:
        self.found = record.exc_info[1] if record.exc_info else None


class InlinePools:
    """Calls handlers in this thread, where the limits count."""

    async def run(self, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        return function(*arguments)


class Server:
    """A cluster that accepts jobs but never runs them, and its owner as the caller."""

    def __init__(self) -> None:
        home = Path(tempfile.mkdtemp(prefix="fuzz-"))
        atexit.register(shutil.rmtree, home, ignore_errors=True)
        context = EmbeddedCluster(ClusterOptions(home, rates=dict.fromkeys((API, LIST, SUBMIT)))).context
        account = context.accounts.user(context.owner.name)
        assert account
        self.user = context.owner.name
        caller = Identity(self.user, True, False, "t", 0, None, account)
        self.api: Any = RestApi(context)
        self.paddle: Any = paddle.PaddleCloudApp(context)
        for app in (self.api, self.paddle):
            app._identify, app._pools = lambda *_: caller, InlinePools()
        self.failures, self.loop = Failures(), asyncio.new_event_loop()
        for name in LOG:
            logging.getLogger(name).addHandler(self.failures)

    def call(self, app: Any, method: str, path: str, query: bytes, kind: bytes, body: bytes) -> int:
        """Return the status of the answer."""
        filled = re.sub(r"\{(\w+)\}", lambda found: NAMES.get(found[1], self.user), app.prefix + path)
        scope = {
            "type": "http",
            "method": method,
            "path": filled,
            "raw_path": filled.encode(),
            "query_string": query,
            "headers": [(b"host", b"127.0.0.1"), (b"content-type", kind)],
        }
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        self.failures.found = None
        self.loop.run_until_complete(app(scope, receive, send))
        if self.failures.found:
            raise self.failures.found
        return int(sent[0]["status"])


@cache
def server() -> Server:
    return Server()


ROUTES = [
    row
    for row in table.rows(UNION)
    if row.pool != PASSWORDS and row.path not in OTHERS and row.method != table.ANY
]


def split(data: bytes) -> tuple[int, int, bytes, bytes]:
    """Return the number of a route and of a content type, the query, and the body."""
    query, _, body = data[2:].partition(b"\n")
    return data[0] if data else 0, data[1] if len(data) > 1 else 0, query[:1000], body


def parse_api(data: bytes) -> None:
    number, kind, query, body = split(data)
    row = ROUTES[number % len(ROUTES)]
    server().call(server().api, row.method, row.path, query, KINDS[kind % len(KINDS)], body)


def parse_paddle(data: bytes) -> None:
    number, kind, query, body = split(data)
    row = paddle.ROUTES[1:][number % (len(paddle.ROUTES) - 1)]
    kinds = (*KINDS, FORM)
    server().call(server().paddle, row.method, row.path, query, kinds[kind % len(kinds)], body)


def _seeds(rows: list[Any], more: dict[str, tuple[int, bytes]]) -> tuple[bytes, ...]:
    found = []
    for at, row in enumerate(rows):
        kind, text = more.get(f"{row.method} {row.path}", (0, b"offset=0&limit=5\n{}"))
        found.append(bytes([at, kind]) + text)
    return tuple(found)


JOB = document("train", {"main": role("true")})
API_BODIES = {
    f"POST {paths.JOBS}": (2, b"\n" + JOB.encode()),
    f"POST {paths.USER_JOBS_V1}": (0, b"\n" + V1),
    f"GET {paths.JOBS}": (
        0,
        b"limit=5&state=RUNNING,WAITING&order=name,DESC&withTotalCount=true&keyword=a\n",
    ),
    f"PUT {paths.JOB_TAG}": (0, b'\n{"value": "a"}'),
    f"PUT {paths.JOB_EXECUTION}": (0, b'\n{"value": "STOP"}'),
    f"POST {paths.GROUPS}": (
        1,
        b"\ngroupname=a&description=b&extension[acls][admin]=true&extension[list][0]=1",
    ),
    f"PUT {paths.USER}/extension": (
        0,
        b'\n{"extension": {"sshKeys": [{"title": "a", "value": "ssh-rsa AAAA"}]}}',
    ),
    f"GET {paths.USAGE_REPORT}": (0, b"by=user&seconds=600&points=5\n"),
}
CHUNK = (
    b'--b\r\nContent-Disposition: form-data; name="chunk"; filename="path=%2Fpfs%2Flocal%2Fhome%2Fa&offset=0'
    b'&chunksize=5"\r\nContent-Type: application/octet-stream\r\n\r\nhello\r\n--b--\r\n'
)
PADDLE_JOB = b"""
{"name": "j", "image": "i", "entry": "true", "parallelism": 1, "cpu": 1, "memory": "1Gi", "pservers": 1}"""
PADDLE_BODIES = {
    "POST /api/v1/jobs": (0, PADDLE_JOB),
    f"POST {paddle.CHUNKS}": (3, b"\n" + CHUNK),
    f"GET {paddle.CHUNKS}": (0, b"path=/pfs/local/home/a/b&offset=0&chunksize=5\n"),
    f"GET {paddle.PFS}/files": (0, b"method=ls&r=false&arg=/pfs/local/home/a\n"),
    f"GET {paddle.PFS}/chunks": (0, b"method=GetChunkMeta&path=/pfs/local/home/a/b&offset=0&chunksize=5\n"),
    f"POST {paddle.PFS}/files": (0, b'\n{"method": "touch", "filesize": 5, "path": "/pfs/local/home/a/b"}'),
    f"DELETE {paddle.PFS}/files": (0, b'\n{"method": "rm", "r": true, "path": ["/pfs/local/home/a/b"]}'),
}
TARGETS = (
    Target("api-request", parse_api, _seeds(ROUTES, API_BODIES)),
    Target("paddle-request", parse_paddle, _seeds(paddle.ROUTES[1:], PADDLE_BODIES)),
)
