"""A name node or data node that drips, floods or never ends is given up, over real sockets."""

import contextlib
import time

import pytest

from openpai_tasks.errors import Unreachable
from openpai_tasks.net.retry import RetryPolicy
from openpai_tasks.storage.hdfs.native.stream import Stream
from openpai_tasks.storage.hdfs.store import HdfsStore
from tests.hostile import CHUNKED, OK, Hostile, drip, for_ever

ONCE = RetryPolicy(1, 0.2)
TIMEOUT = 0.2
STATUS = b'{"FileStatus": {"type": "FILE", "length": 200000, "modificationTime": 0, "pathSuffix": ""}}'
DRIPS = {
    "in the status line": (b"HTTP/1.1 200 ", b"x"),
    "in a header": (OK + b"X-Long: ", b"x"),
    "in the content": (OK + b"Content-Length: 100000\r\n\r\n", b" "),
    "in the size of a chunk": (CHUNKED + b"5;", b"x"),
    "between chunks": (CHUNKED, b"1\r\n \r\n"),
    "in the trailers": (CHUNKED + b"0\r\n", b"X: 1\r\n"),
    "between interim answers": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "in the content of an error": (b"HTTP/1.1 403 No\r\nContent-Length: 100000\r\n\r\n", b" "),
}
FLOODS = {
    "headers": (OK, b"X: 1\r\n" * 1000),
    "the size of a chunk": (CHUNKED + b"5;", b"x" * 8192),
    "trailers": (CHUNKED + b"0\r\n", b"X: 1\r\n" * 1000),
    "interim answers": (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 400),
    "an error": (b"HTTP/1.1 403 No\r\n\r\n", b" " * 8192),
}


def store_of(server, timeout=TIMEOUT):
    return HdfsStore([f"127.0.0.1:{server.port}"], "root", timeout=timeout, retries=ONCE)


@pytest.mark.parametrize("begin, again", DRIPS.values(), ids=DRIPS)
def test_dripping_name_node_is_given_up(begin, again):
    with Hostile(for_ever(begin, again), 0.03) as server, pytest.raises(Unreachable):
        store_of(server).stat("/f")


@pytest.mark.parametrize("begin, again", FLOODS.values(), ids=FLOODS)
def test_flooding_name_node_is_given_up(begin, again):
    with Hostile(for_ever(begin, again)) as server:
        with pytest.raises(Unreachable):
            store_of(server, 0.5).stat("/f")
        assert server.sent < 1 << 26


@pytest.mark.parametrize("begin, again", DRIPS.values(), ids=DRIPS)
def test_dripping_data_node_is_given_up(begin, again):
    drip = for_ever(begin, again)

    def answer(request):
        if b"op=OPEN" in request and b"/data" not in request:
            there = f"http://127.0.0.1:{server.port}/data?op=OPEN"
            return [f"HTTP/1.1 307 Go\r\nLocation: {there}\r\nContent-Length: 0\r\n\r\n".encode()]
        if b"/data" in request:
            return drip(request)
        return [OK + b"Content-Length: %d\r\n\r\n" % len(STATUS) + STATUS]

    with Hostile(answer, 0.03) as server, pytest.raises(Unreachable):
        begun = time.monotonic()
        for _ in store_of(server).read("/f"):
            assert time.monotonic() - begun < 60


def test_native_answer_that_comes_byte_by_byte_is_given_up():
    with (
        Hostile(drip(b"x" * 50), 0.05, is_eager=True) as server,
        contextlib.closing(Stream("127.0.0.1", server.port, 0.5)) as stream,
        pytest.raises(TimeoutError),  # of the whole answer, or of one byte on a busy machine
    ):
        stream.view(50)
