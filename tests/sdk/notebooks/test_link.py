"""The question whether Jupyter answers: its token stays with its server, and no answer is endless."""

from __future__ import annotations

import itertools
import json
import urllib.error
from pathlib import Path

import pytest

from openpai_tasks.errors import Denied
from openpai_tasks.sdk.notebooks.link import Link
from openpai_tasks.sdk.payloads import notebook_server
from openpai_tasks.sdk.payloads.notebook_server import Flavour, JupyterServer
from tests.hostile import CHUNKED, OK, Hostile, drip

TOKEN = "s3cret-token"
FLAVOUR = Flavour("jupyterlab", "ServerApp", "x.json", "IdentityProvider")


def answers(server: Hostile) -> bool:
    return Link(None, "job", server.uri).answers(TOKEN)


def content(data: bytes) -> bytes:
    return OK + b"Content-Length: %d\r\n\r\n%s" % (len(data), data)


def redirect(server: Hostile, code: int) -> bytes:
    return b"HTTP/1.1 %d Found\r\nLocation: %s/api/status\r\nContent-Length: 0\r\n\r\n" % (
        code,
        server.uri.encode(),
    )


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_redirect_to_another_server_does_not_get_the_token(code):
    with (
        Hostile(lambda request: [content(b'{"kernels": 0}')]) as other,
        Hostile(lambda request: [redirect(other, code)]) as server,
    ):
        assert not answers(server)
        Link(None, "job", server.uri).address(TOKEN, "a.ipynb")
        assert server.requests and not other.requests


@pytest.mark.parametrize("code", [302, 307])
def test_server_in_the_job_does_not_pass_the_token_on_either(code):
    with (
        Hostile(lambda request: [content(b'{"last_activity": 0}')]) as other,
        Hostile(lambda request: [redirect(other, code)]) as server,
    ):
        jupyter = JupyterServer(FLAVOUR, "127.0.0.1", server.port, TOKEN, Path("/"))
        assert not jupyter.is_up() and not jupyter.is_open()
        with pytest.raises(urllib.error.HTTPError):
            jupyter.get("/api/status")
        assert server.requests and not other.requests


def test_jupyter_that_answers_byte_by_byte_is_given_up_in_the_job(monkeypatch):
    monkeypatch.setattr(notebook_server, "ANSWER_SECONDS", 0.1)
    with Hostile(drip(content(b'{"last_activity": 0}' + b" " * 10_000)), 0.01) as server:
        jupyter = JupyterServer(FLAVOUR, "127.0.0.1", server.port, TOKEN, Path("/"))
        with pytest.raises(TimeoutError, match=r"no complete answer within 0\.1 s"):
            jupyter.get("/api/status")


def test_endless_answer_ends():
    endless = itertools.repeat(b"10000\r\n" + b" " * 0x10000 + b"\r\n")
    with Hostile(lambda request: itertools.chain([CHUNKED], endless)) as server:
        assert not answers(server)
        assert server.sent < 64 << 20


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff", b'{"kernel": 1}', b"[" * 50_000])
def test_answers_of_other_servers_are_not_mistaken(body):
    with Hostile(lambda request: [content(body)]) as server:
        assert not answers(server)


def test_server_answers_or_refuses():
    with Hostile(lambda request: [content(json.dumps({"kernels": 1}).encode())]) as server:
        assert answers(server)
    with (
        Hostile(lambda request: [b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"]) as server,
        pytest.raises(Denied, match="refuses the token"),
    ):
        answers(server)
