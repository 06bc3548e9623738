"""Routes of our web applications, and what nobody sends: forms without end, before anyone has signed in."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.requests import Request

from openpai_tasks.errors import ConfigError
from openpai_tasks.loopback import web as loopback
from openpai_tasks.portal import app as portal
from openpai_tasks.server.paddlecloud import app as paddlecloud

BOUNDARY = b"--x\r\nContent-Disposition: form-data; name=a\r\n\r\n"
FILE = BOUNDARY.replace(b"=a", b"=a; filename=f")
ENDLESS = {
    "one field": ("application/x-www-form-urlencoded", [b"user="], [b"x" * 65536]),
    "many fields": ("application/x-www-form-urlencoded", [], [b"a=b&" * 16384]),
    "one part": ("multipart/form-data; boundary=x", [BOUNDARY], [b"x" * 65536]),
    "many parts": ("multipart/form-data; boundary=x", [], [(BOUNDARY + b"y\r\n") * 1000]),
    "a file": ("multipart/form-data; boundary=x", [FILE], [b"x" * 65536]),
    "JSON": ("application/json", [b'{"user": "'], [b"x" * 65536]),
}


class Sender:
    """A caller that sends without end, and counts it."""

    def __init__(self, name: str) -> None:
        self.kind, first, rest = ENDLESS[name]
        self._pieces = itertools.chain(first, itertools.cycle(rest))
        self.sent = 0
        self.answers: list[Any] = []

    def scope(self, path: str) -> dict[str, Any]:
        headers = [(b"host", b"127.0.0.1:80"), (b"content-type", self.kind.encode())]
        address = {"server": ("127.0.0.1", 80), "client": None, "scheme": "http"}
        request = {
            "type": "http",
            "method": "POST",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
        }
        return {**request, **address, "headers": headers}

    async def receive(self) -> dict[str, Any]:
        piece = next(self._pieces)
        self.sent += len(piece)
        assert self.sent < 64 << 20, "it is read without end"
        return {"type": "http.request", "body": piece, "more_body": True}

    async def send(self, message: Any) -> None:
        self.answers.append(message)


@pytest.mark.parametrize("name", ENDLESS)
@pytest.mark.parametrize("path", ["/sign-in", "/c/local/jobs", "/sign-out"])
def test_portal_reads_little_of_a_form_from_nobody(tmp_path, name, path):
    sender = Sender(name)
    app = portal.Portal(tmp_path / "portal", tmp_path)
    asyncio.run(app(sender.scope(path), sender.receive, sender.send))
    assert sender.answers[0]["status"] in (400, 401, 403, 413)
    assert sender.sent < 1 << 20


@pytest.mark.parametrize("name", ["one part", "many parts", "a file"])
def test_paddlecloud_reads_little_from_a_caller_without_a_token(name):
    sender = Sender(name)
    web = Request(sender.scope("/api-token-auth/"), sender.receive)
    with pytest.raises(loopback.RefusedCall, match="too large"):
        asyncio.run(paddlecloud._small_body(web))
    assert sender.sent < 1 << 20


def test_form_that_comes_too_slowly_is_given_up(monkeypatch):
    async def never() -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(loopback, "SECONDS", 0.01)
    with pytest.raises(loopback.RefusedCall, match=r"did not arrive within 0\.01 s"):
        asyncio.run(loopback.read_small_form(Request(Sender("one field").scope("/"), never), 1024))


@pytest.mark.parametrize("name", ["portal", "paddlecloud"])
def test_a_request_that_the_end_of_the_server_cancels_is_answered(tmp_path, name):
    """Found by ``inv endure --engine process --seed 72012`` and 397776294: the log had a traceback."""
    sender = Sender("one field")
    if name == "portal":
        app, path = portal.Portal(tmp_path / "portal", tmp_path), "/sign-in"
    else:
        app = paddlecloud.PaddleCloudApp(SimpleNamespace(state=SimpleNamespace(database=None)))
        path = f"{app.prefix}/api-token-auth/"

    async def cancelled() -> None:
        waits = asyncio.Event()

        async def receive() -> dict[str, Any]:
            waits.set()
            return await asyncio.Event().wait()

        call = asyncio.create_task(app(sender.scope(path), receive, sender.send))
        while not call.done():  # the end of the event loop cancels it a second time
            waits.clear()
            reads = asyncio.create_task(waits.wait())
            await asyncio.wait({call, reads}, return_when=asyncio.FIRST_COMPLETED)
            reads.cancel()
            call.cancel()
        await call

    asyncio.run(cancelled())
    assert sender.answers[0]["status"] == 503 and b"This server is ending" in sender.answers[1]["body"]


def test_small_form_is_read():
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"user=a&password=b", "more_body": False}

    form = asyncio.run(loopback.read_small_form(Request(Sender("one field").scope("/"), receive), 1024))
    assert dict(form) == {"user": "a", "password": "b"}


@dataclass(frozen=True)
class Row:
    path: str
    method: str = "GET"


TABLE = [
    Row("/jobs"),
    Row("/jobs/{job}"),
    Row("/jobs/{job}", "PUT"),
    Row("/files/{store}/*"),
    Row("/any", "ANY"),
]


@pytest.mark.parametrize(
    "method, path, found",
    [
        ("GET", "/jobs", ("/jobs", {})),
        ("HEAD", "/jobs", ("/jobs", {})),
        ("PATCH", "/any", ("/any", {})),
        ("POST", "/jobs", None),
        ("PUT", "/jobs/a%2Fb", ("/jobs/{job}", {"job": "a/b"})),
        ("GET", "/files/home/a/b%20c", ("/files/{store}/*", {"store": "home", "rest": "a/b c"})),
        ("GET", "/files/home/", ("/files/{store}/*", {"store": "home", "rest": ""})),
        ("GET", "/files/home/a%2Fb", None),
        ("GET", "/files/home", None),
        ("GET", "/jobs/", None),
        ("GET", "/JOBS", None),
        ("GET", "*", None),
    ],
)
def test_an_exact_router_finds_the_first_matching_row(method, path, found):
    match = loopback.Router(TABLE, exact=True).match(method, path)
    assert (match and (match.route.path, match.params)) == found


def test_as_in_express_case_and_a_trailing_slash_do_not_matter():
    router = loopback.Router(TABLE)
    assert router.match("GET", "/Jobs/").route is TABLE[0]
    assert router.match("GET", "/JOBS/A%ff/").params == {"job": "A\ufffd"}


def test_an_address_that_is_not_text_is_refused():
    with pytest.raises(ConfigError, match="not valid text"):
        loopback.Router(TABLE, exact=True).match("GET", "/jobs/%ff")
