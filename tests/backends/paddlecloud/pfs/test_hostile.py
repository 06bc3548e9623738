"""Servers that answer with nonsense: each call ends with one clear error, in bounded time and memory."""

from __future__ import annotations

import json

import pytest

from openpai_tasks.backends.paddlecloud.pfs.connection import CHUNK
from openpai_tasks.errors import PaiError, PathError, Unreachable
from openpai_tasks.storage import retry
from openpai_tasks.storage.location import open_storage
from openpai_tasks.storage.store import StorageSpec
from tests.hostile import CHUNKED, OK, Hostile, for_ever

ROW = {"Path": "/pfs/dc1/home/ann/f", "ModTime": 1, "Size": 3, "IsDir": False}
BOUNDARY = "8d7b0e5709d756e21e971ff4d9ac3b20"


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(retry, "FIRST_PAUSE", 0.001)


def opened(server: Hostile):
    data = {"endpoint": server.uri, "datacenter": "dc1", "user": "ann", "token": "s3cret"}
    return open_storage(StorageSpec("dc1", "pfs", "pfs", data))


def answering(body: bytes, head: bytes = OK):
    return Hostile(lambda request: [head + b"Content-Length: %d\r\n\r\n" % len(body) + body])


def document(results, err="") -> bytes:
    return json.dumps({"err": err, "results": results}).encode()


CALLS = {
    "stat": lambda store: store.stat("/home/ann/f"),
    "list": lambda store: list(store.list("/home/ann")),
    "read": lambda store: b"".join(store.read("/home/ann/f")),
    "read_checked": lambda store: b"".join(store.read_checked("/home/ann/f", 3)),
    "write": lambda store: store.write("/home/ann/f", [b"abc"], 3),
    "digest": lambda store: store.digest("/home/ann/f"),
    "remove": lambda store: store.remove("/home/ann/f"),
    "make_folder": lambda store: store.make_folder("/home/ann/d"),
}
BODIES = [
    b"",
    b"<html>",
    b"null",
    b"[]",
    b"{}",
    b'{"err": 1, "results": null}',
    b'{"err": null, "results": []}',
    b'{"err": "", "results": %s}' % (b"9" * 5000),
    b'{"err": "", "results": {"Path": 1, "Size": "x", "ModTime": null, "IsDir": 3}}',
    b'{"err": "", "results": [[]]}',
    b"[" * 100_000,
    b"\xff\xfe{",
    document({**ROW, "Size": -1}),
    document({**ROW, "Size": 1 << 70}),
    document({**ROW, "ModTime": "now"}),
    document({**ROW, "Path": "elsewhere"}),
    document([{**ROW, "Path": "/pfs/dc1/home/ann/../../x"}]),
    document([{**ROW, "Path": "/pfs/dc1/home/ann/a/b"}]),
    document([{**ROW, "Path": "/pfs/dc1/home/ann/"}]),
    document([{**ROW, "Path": "/pfs/dc1/home/bob/x"}]),
    document(None, "strange\nfailure " * 500),
]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
def test_odd_answers_are_one_clear_line(call, body):
    with answering(body) as server, pytest.raises(PaiError) as caught:
        CALLS[call](opened(server))
    text = str(caught.value)
    assert "\n" not in text and len(text) < 500 and "s3cret" not in text


@pytest.mark.parametrize(
    "status", [b"301 Moved", b"400 Bad", b"403 Forbidden", b"404 Not Found", b"405 Not Allowed"]
)
def test_refusals_are_not_retried(status):
    head = b"HTTP/1.1 " + status + b"\r\nLocation: http://127.0.0.1:9/\r\n"
    with answering(b'{"detail": "no"}', head) as server:
        with pytest.raises(PaiError):
            opened(server).stat("/home/ann/f")
        assert server.requests == 1


def test_failures_of_the_server_are_retried_and_end():
    with answering(b"busy", b"HTTP/1.1 503 Busy\r\n") as server:
        with pytest.raises(Unreachable, match="503"):
            opened(server).stat("/home/ann/f")
        assert server.requests > 2


@pytest.mark.parametrize("call", ["stat", "read_checked"])
def test_endless_answers_are_given_up(call):
    with Hostile(for_ever(CHUNKED, b"10000\r\n" + b"x" * 0x10000 + b"\r\n")) as server:
        with pytest.raises(Unreachable):
            CALLS[call](opened(server))
        assert server.sent < 100 << 20


def chunk(data: bytes, boundary: str = BOUNDARY) -> bytes:
    head = f'--{boundary}\r\nContent-Disposition: form-data; name="chunk"; filename="x"\r\n\r\n'
    return head.encode() + data + f"\r\n--{boundary}--\r\n".encode()


@pytest.mark.parametrize(
    "body",
    [
        chunk(b"abcd"),
        chunk(b"xyz"),
        chunk(b"abc", "other"),
        chunk(b"abc")[:60],
        chunk(b"abc")[:-45],
        chunk(b""),
    ],
    ids=["longer", "other", "boundary", "head", "end", "empty"],
)
def test_wrong_chunks_are_never_taken_for_the_file(body):
    md5 = b"X-Pfs-Md5: 900150983cd24fb0d6963f7d28e17f72\r\n"  # of abc
    with answering(body, OK + md5) as server, pytest.raises(PathError):
        b"".join(opened(server).read_checked("/home/ann/f", 3))


def test_a_chunk_that_the_server_reports_differently_is_an_error():
    def answer(request: bytes):
        body = document(ROW) if b"stat" in request else document({"len": 3, "checksum": "0" * 32})
        yield OK + b"Content-Length: %d\r\n\r\n" % len(body) + body

    with Hostile(answer) as server, pytest.raises(PathError, match="damaged in transit"):
        opened(server).write("/home/ann/f", [b"abc"], 3)


def test_a_file_that_claims_to_be_huge_costs_no_memory():
    body = document({**ROW, "Size": 1 << 60})
    with answering(body) as server:
        pieces = opened(server).read("/home/ann/f")
        with pytest.raises(PaiError):
            next(pieces)
    assert CHUNK == 4 << 20
