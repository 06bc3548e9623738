"""Whole requests to our web applications: methods, addresses, headers, cookies and bodies."""

from __future__ import annotations

import asyncio
import logging
from functools import cache
from typing import Any, cast
from urllib.parse import unquote

import anyio.to_thread
import h11

from openpai_tasks.errors import Denied
from openpai_tasks.loopback.callers import ANYONE
from openpai_tasks.loopback.web import Router
from openpai_tasks.portal import app
from openpai_tasks.portal.app import Portal
from openpai_tasks.portal.sessions import Session
from tests.fuzz.feeding import http_answers, replacing
from tests.fuzz.scratch import empty_folder
from tests.fuzz.target import Target
from tests.fuzz.targets import requests
from tests.fuzz.targets.openpai import client_of
from tests.fuzz.targets.portal import PAGES, Storages, answer

_LOOP = asyncio.new_event_loop()
HOST = b"0" * 32 + b".localhost:80"


def _scope(head: bytes) -> dict[str, Any] | None:
    """Return a request as uvicorn passes it on; None if it answers such a head by itself."""
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(head)
    try:
        event = connection.next_event()
    except h11.RemoteProtocolError:
        return None
    if not isinstance(event, h11.Request):
        return None
    path, _, query = bytes(event.target).partition(b"?")
    return {
        "type": "http",
        "method": event.method.decode("ascii"),
        "scheme": "http",
        "path": unquote(path.decode("ascii")),
        "raw_path": path,
        "query_string": query,
        "headers": [(bytes(name), bytes(value)) for name, value in event.headers],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }


def _call(application: Any, data: bytes) -> int:
    """Return the status of the answer."""
    head, end, body = data.partition(b"\r\n\r\n")
    scope = _scope(head + end)
    if scope is None:
        return 400
    pieces = [body[:50], body[50:]]
    sent: list[Any] = []

    async def receive() -> Any:
        piece = pieces.pop(0) if pieces else b""
        return {"type": "http.request", "body": piece, "more_body": bool(pieces)}

    async def send(message: Any) -> None:
        sent.append(message)

    async def inline(function: Any, *arguments: Any, **_: Any) -> Any:
        return function(*arguments)  # in this thread, where the limits count

    with replacing(anyio.to_thread, "run_sync", inline):
        _LOOP.run_until_complete(application(scope, receive, send))
    return int(sent[0]["status"]) if sent else 0


@cache
def _portal() -> tuple[Portal, Any]:
    """Return a portal without live pages, and what its log has caught."""
    failures = requests.Failures()
    for name in requests.LOG:
        logging.getLogger(name).addHandler(failures)
    portal = Portal(empty_folder("portal-home"), empty_folder("portal-project"))
    portal.router = Router(PAGES, exact=True)
    portal._log_in = _refuse_login  # type: ignore[method-assign]
    return portal, failures


def _refuse_login(form: dict[str, str], caller: str) -> Session:
    raise Denied("wrong password", 403)


def _ask_portal(data: bytes) -> None:
    """Ask the portal, as a browser that is signed in if its cookie says so."""
    portal, failures = _portal()
    project = empty_folder("portal")
    (project / "a.txt").write_text("a")
    storages = {"lab": cast(Any, Storages(project))}
    session = Session(lambda alias: client_of(), storages=storages, id="id", csrf="token", caller=ANYONE)
    session.host = HOST.partition(b":")[0].decode()
    portal._sessions._known = {"id": session}
    failures.found = None
    with http_answers(answer), replacing(app, "caller_process", lambda ends: ANYONE):
        _call(portal, data)
    if failures.found:
        raise failures.found


def _ask_server(data: bytes) -> None:
    """Ask the embedded cluster with any head; the first byte chooses its API."""
    server = requests.server()
    server.failures.found = None
    _call(server.paddle if data[:1] == b"\1" else server.api, data[1:])
    if server.failures.found:
        raise server.failures.found


COOKIE = b"Host: " + HOST + b"\r\nCookie: a=b; pai_portal_80=id\r\nAccept: text/html\r\n"
FORM = b'--b\r\nContent-Disposition: form-data; name="%b"%b\r\n\r\n%b\r\n'
SAFE = b"POST %b HTTP/1.1\r\n" + COOKIE + b"X-CSRF-Token: token\r\n"
MULTIPART = SAFE + b"Content-Type: multipart/form-data; boundary=b\r\n\r\n%b--b--\r\n"
PORTAL = (
    b"GET / HTTP/1.1\r\n" + COOKIE + b"\r\n",
    b"GET /c/lab/jobs?state=RUNNING HTTP/1.1\r\n" + COOKIE + b"\r\n",
    MULTIPART
    % (
        b"/c/lab/submit/upload",
        FORM % (b"draft", b"", b"d") + FORM % (b"files", b'; filename="a/b.txt"', b"text"),
    ),
    SAFE % b"/c/lab/submit" + b"Content-Type: application/x-www-form-urlencoded\r\n\r\ncommand=true&gpu=1",
    b"POST /sign-in HTTP/1.1\r\nHost: localhost:80\r\n\r\ncluster=lab&user=a&password=b",
    b"GET /open/token?next=/ HTTP/1.1\r\nHost: localhost:80\r\nSec-Fetch-Site: none\r\n\r\n",
)
HEAD = b"Host: 127.0.0.1\r\nAuthorization: Bearer abc\r\nRange: bytes=0-4\r\nOrigin: http://localhost\r\n"
SERVER = (
    b"\0GET /api/v2/jobs?limit=5 HTTP/1.1\r\n" + HEAD + b"\r\n",
    b"\0POST /api/v2/jobs HTTP/1.1\r\n" + HEAD + b"Content-Type: text/yaml; charset=x\r\n\r\nname: a",
    b"\1GET /api/v1/jobs/ HTTP/1.1\r\n" + HEAD + b"\r\n",
    b"\1POST /api/v1/file/?path=/pfs/local/home/a/b HTTP/1.1\r\n"
    + HEAD
    + b"Content-Type: multipart/form-data; boundary=b\r\n\r\n"
    + FORM % (b"file", b'; filename="a"', b"text")
    + b"--b--\r\n",
)
TARGETS = (Target("portal-http", _ask_portal, PORTAL), Target("server-http", _ask_server, SERVER))
