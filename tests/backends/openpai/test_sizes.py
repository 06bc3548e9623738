"""Responses larger than their endpoint needs are refused, compressed or not, and cost little memory."""

import gzip
import zlib

import pytest

from openpai_tasks.errors import ApiError, NotFound
from tests import memory
from tests.hostile import CHUNKED, OK, Hostile, client_of, for_ever, reading
from tests.scripted import Reply, Scripted

MB = 1 << 20
JOBS = "/rest-server/api/v2/jobs"
USER = "/rest-server/api/v1/user/alice"

CALLS = {
    "login": lambda client: client.login("alice", "s3cret"),
    "user": lambda client: client.user_info("alice"),
    "job": lambda client: client.job("alice~x"),
    "jobs": lambda client: client.jobs(limit=100),
    "all jobs": lambda client: client.jobs(),
    "config": lambda client: client.job_config("alice~x"),
    "events": lambda client: client.job_events("alice~x"),
    "storages": lambda client: client.storages(),
    "nodes": lambda client: client.nodes(),
    "virtual clusters": lambda client: client.virtual_clusters(),
    "logs": lambda client: client.log_locations("alice~x", 0, "main", 0, 0),
    "log page": lambda client: list(client.read_log("/yarn/x/node/containerlogs/c/alice/stdout/")),
    "probe": lambda client: client.probe("/api/v2/info"),
    "submit": lambda client: client.submit("name: x\n"),
    "key": lambda client: client.ssh_key("/key"),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_endless_response_is_refused(call):
    with Hostile(for_ever(OK + b"\r\n", b"[" * (1 << 16))) as server:
        with pytest.raises(ApiError, match=r"is refused: it is larger than [0-9.]+ MB") as caught:
            call(client_of(server))
        assert "\n" not in str(caught.value)


def test_response_of_the_usual_size_is_accepted():
    rows = [{"name": f"job-{number}", "username": "alice", "state": "RUNNING"} for number in range(5000)]
    server = Scripted({f"GET {JOBS}": {"totalCount": 5000, "data": rows}})
    try:
        assert len(client_of(server).jobs()) == 5000
    finally:
        server.close()


def test_too_deeply_nested_response_is_an_error():
    answer = OK + b"Content-Length: 500000\r\n\r\n" + b"[" * 500000
    with Hostile(lambda request: [answer]) as server:
        with pytest.raises(ApiError, match="with JSON"):
            client_of(server).virtual_clusters()
        assert client_of(server).probe("/api/v2/info").status == 200


def test_response_without_a_charset_is_decoded_as_utf_8():
    text = "\ufeffname: \u00e4\u6f22\n" + "\u6f22" * 300000
    data = text.encode()
    with Hostile(lambda request: [OK + b"Content-Length: %d\r\n\r\n" % len(data) + data]) as server:
        assert client_of(server).job_config("alice~x") == text.removeprefix("\ufeff")


def gzipped(data):
    return OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(data) + data


@pytest.mark.parametrize("members", [1, 3])
def test_gzip_response_is_read(members):
    parts = [b"{" + b" " * 1000, b" " * 300000, b"}"][:members] if members > 1 else [b"{}"]
    with Hostile(lambda request: [gzipped(b"".join(map(gzip.compress, parts)))]) as server:
        assert client_of(server).user_info("alice") == {}


def bomb(megabytes):
    return gzip.compress(bytes(megabytes * MB), 1)  # better compression takes three times as long


INVALID = {  # made when the test runs, not when it is collected
    "bomb": ("gzip", lambda: bomb(8)),
    "bomb in a bomb": ("gzip, gzip", lambda: gzip.compress(bomb(64))),
    "deflate": ("deflate", lambda: zlib.compress(bytes(8 * MB))),
    "unknown": ("br", lambda: b"x"),
    "cut": ("gzip", lambda: gzip.compress(b"{}")[:-4]),
    "no gzip": ("gzip", lambda: b"{}"),
}


@pytest.mark.parametrize("encoding, make", INVALID.values(), ids=INVALID)
def test_decompression_bomb_or_invalid_encoding_is_refused(encoding, make):
    data = make()
    head = OK + b"Content-Encoding: %b\r\nContent-Length: %d\r\n\r\n" % (encoding.encode(), len(data))
    with Hostile(lambda request: [head + data]) as server, pytest.raises(ApiError, match="is refused"):
        client_of(server).user_info("alice")


@pytest.mark.parametrize("status, kind", [(404, NotFound), (400, ApiError)])
def test_oversized_error_response_keeps_its_error_class(status, kind):
    body = b'{"code": "X", "message": "' + b"x" * MB
    head = f"HTTP/1.1 {status} Oh no\r\nContent-Length: {1 << 40}\r\n\r\n".encode()
    with (
        Hostile(lambda request: [head, body]) as server,
        pytest.raises(kind, match=f"HTTP {status} Oh no$"),
    ):
        client_of(server).user_info("alice")


def test_long_error_message_is_truncated():
    server = Scripted({f"GET {USER}": Reply({"message": "x " * 20000}, 400)})
    try:
        with pytest.raises(ApiError) as caught:
            client_of(server).user_info("alice")
    finally:
        server.close()
    assert len(str(caught.value)) < 3000


HEAVY = {
    "a long answer": lambda request: [
        OK + b"Content-Length: %d\r\n\r\n" % (90 * MB),
        *[b"[[]," * 4096] * 5760,
    ],
    "a bomb": lambda request: [gzipped(bomb(256))],
    "an error": lambda request: [
        b"HTTP/1.1 400 Oh\r\nContent-Length: %d\r\n\r\n" % (90 * MB),
        *[b" " * MB] * 90,
    ],
    "a redirect": lambda request: [
        b"HTTP/1.1 302 Found\r\nLocation: /rest-server/x\r\nContent-Length: %d\r\n\r\n" % (90 * MB),
        *[b" " * MB] * 90,
    ],
    "the size of a chunk": for_ever(CHUNKED + b"5;", b"x" * (1 << 16)),
    "deep nesting": lambda request: [OK + b"Content-Length: %d\r\n\r\n" % 500000, b"[" * 500000],
}


@memory.measurable
@pytest.mark.parametrize("answer", HEAVY.values(), ids=HEAVY)
def test_refused_response_costs_little_memory(answer):
    with Hostile(answer) as server:
        process = reading(server)
        highest = memory.peak(process)
        output, _ = process.communicate()
    assert "Traceback" not in output
    assert output.count("\n") == 1, output
    assert "lab" in output
    assert highest < 100 * MB
