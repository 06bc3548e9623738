"""Odd, broken and hostile answers of HTTP servers, and what is sent to them, over real sockets."""

import contextlib
import socket
import threading

import pytest

from openpai_tasks.net import connection_pool
from openpai_tasks.net.connection_pool import ConnectionPool
from openpai_tasks.net.exchange import Exchange
from openpai_tasks.net.http1 import ProtocolError, StreamedBody
from tests.hostile import CHUNKED, OK, Hostile

HELLO = (200, b"hello")
ACCEPTED = {
    "a length": OK + b"Content-Length: 5\r\n\r\nhello",
    "chunks": CHUNKED + b"2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\nX: trailer\r\n\r\n",
    "chunk sizes with zeros": CHUNKED + b"0005\r\nhello\r\n000\r\n\r\n",
    "names in capitals": b"HTTP/1.1 200 OK\r\nCONTENT-LENGTH: 5\r\n\r\nhello",
    "no reason": b"HTTP/1.1 200\r\nContent-Length: 5\r\n\r\nhello",
    "line feeds only": b"HTTP/1.1 200 OK\nContent-Length: 5\n\nhello",
    "a folded header": OK + b"X: a\r\n b\r\nContent-Length: 5\r\n\r\nhello",
    "a header that is not ASCII": OK + b"X: \xfc\r\nContent-Length: 5\r\n\r\nhello",
    "an empty header": OK + b"X:\r\nContent-Length: 5\r\n\r\nhello",
    "the same length twice": OK + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
    "the same length in a list": OK + b"Content-Length: 5, 5\r\n\r\nhello",
    "chunks and a length": OK
    + b"Content-Length: 9\r\nTransfer-Encoding: Chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "interim answers": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 X\r\nA: b\r\n\r\n"
    + OK
    + b"Content-Length: 5\r\n\r\nhello",
}
UNTIL_THE_END = {
    "no length": OK + b"\r\nhello",
    "HTTP/1.0": b"HTTP/1.0 200 OK\r\n\r\nhello",
    "HTTP/1.0 with a length": b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    "a last answer": OK + b"Connection: Close\r\nContent-Length: 5\r\n\r\nhello",
    "more than the length": OK + b"Content-Length: 5\r\n\r\nhello, world",
}
REFUSED = {
    "two lengths": OK + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
    "two lengths in a list": OK + b"Content-Length: 5, 6\r\n\r\nhello!",
    "a negative length": OK + b"Content-Length: -5\r\n\r\nhello",
    "a length with a sign": OK + b"Content-Length: +5\r\n\r\nhello",
    "a hexadecimal length": OK + b"Content-Length: 0x5\r\n\r\nhello",
    "an endless length": OK + b"Content-Length: " + b"9" * 40 + b"\r\n\r\nhello",
    "another coding": OK + b"Transfer-Encoding: gzip\r\n\r\nhello",
    "two codings": OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "the coding twice": OK + b"Transfer-Encoding: chunked\r\n" * 2 + b"\r\n5\r\nhello\r\n0\r\n\r\n",
    "a negative chunk": CHUNKED + b"-5\r\nhello\r\n0\r\n\r\n",
    "a chunk with a prefix": CHUNKED + b"0x5\r\nhello\r\n0\r\n\r\n",
    "a chunk with an underscore": CHUNKED + b"1_0\r\nhello\r\n0\r\n\r\n",
    "a chunk of an endless size": CHUNKED + b"f" * 100 + b"\r\nhello\r\n0\r\n\r\n",
    "a chunk without a size": CHUNKED + b"\r\nhello\r\n0\r\n\r\n",
    "a longer chunk": CHUNKED + b"4\r\nhello\r\n0\r\n\r\n",
    "trailers that are no headers": CHUNKED + b"5\r\nhello\r\n0\r\nhello\r\n\r\n",
    "a header without a colon": OK + b"hello\r\nContent-Length: 5\r\n\r\nhello",
    "a space before the colon": OK + b"Content-Length : 5\r\n\r\nhello",
    "a header with a NUL": OK + b"X: \0\r\nContent-Length: 5\r\n\r\nhello",
    "a fold before the first header": OK + b" X: a\r\nContent-Length: 5\r\n\r\nhello",
    "no status": b"hello\r\n\r\n",
    "HTTP/2": b"HTTP/2 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    "a short status": b"HTTP/1.1 20 OK\r\nContent-Length: 5\r\n\r\nhello",
    "a status in words": b"HTTP/1.1 two OK\r\nContent-Length: 5\r\n\r\nhello",
    "another protocol": b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\nhello",
    "a large head": OK + b"X: 1\r\n" * 200_000 + b"\r\n",
    "a large header": OK + b"X: " + b"x" * 1_000_000 + b"\r\n\r\n",
    "large trailers": CHUNKED + b"0\r\n" + b"X: 1\r\n" * 200_000 + b"\r\n",
    "a large extension of a chunk": CHUNKED + b"5;" + b"x" * 1_000_000 + b"\r\nhello\r\n0\r\n\r\n",
    "TLS": b"\x15\x03\x01\x00\x02\x02\x46" * 10,
    "an end in the status": b"HTTP/1.1 2",
    "an end in the head": OK + b"X: y\r\n",
    "an end in the content": OK + b"Content-Length: 9\r\n\r\nhello",
    "an end in a chunk": CHUNKED + b"9\r\nhello",
    "an end between chunks": CHUNKED + b"5\r\nhello\r\n",
    "an end in the trailers": CHUNKED + b"5\r\nhello\r\n0\r\nX: y\r\n",
}


@pytest.fixture
def pool(monkeypatch):
    monkeypatch.setattr(connection_pool, "IDLE_SECONDS", 600.0)  # a machine may stand still for some seconds
    with contextlib.closing(ConnectionPool(60.0)) as pool:
        yield pool


def get(pool, server, method="GET"):
    answer = pool.request(method, server.uri, "/", {}, exchange=Exchange(60.0))
    return answer.status_code, answer.content


def then_close(answer):
    def send(request):
        yield answer
        raise OSError  # the server closes the connection

    return send


def test_unusual_answers_are_read_and_their_connection_is_used_again(pool):
    found = {}
    for name, answer in ACCEPTED.items():
        with Hostile(lambda request, answer=answer: [answer]) as server:
            found[name] = [get(pool, server) for _ in range(3)], server.connections
    assert found == {name: ([HELLO] * 3, 1) for name in ACCEPTED}


def test_connection_is_not_used_again_after_its_last_answer(pool):
    found = {}
    for name, answer in UNTIL_THE_END.items():
        with Hostile(then_close(answer)) as server:
            found[name] = [get(pool, server) for _ in range(2)], server.connections
    assert found == {name: ([HELLO] * 2, 2) for name in UNTIL_THE_END}


def test_invalid_and_incomplete_answers_are_refused(pool):
    accepted = []
    for name, answer in REFUSED.items():
        with Hostile(then_close(answer)) as server, contextlib.suppress(ProtocolError):
            accepted.append((name, get(pool, server)))
    assert accepted == []


def test_error_about_an_invalid_answer_is_one_short_line(pool):
    answer = then_close(b"no\x1b[31m HTTP" * 1000 + b"\r\n\r\n")
    with Hostile(answer) as server, pytest.raises(ProtocolError, match=r"^invalid HTTP answer: ") as caught:
        get(pool, server)
    assert str(caught.value).isprintable() and len(str(caught.value)) < 200


@pytest.mark.parametrize(
    "method, head", [("HEAD", OK), ("GET", b"HTTP/1.1 204 X\r\n"), ("GET", b"HTTP/1.1 304 X\r\n")]
)
def test_answers_without_content_may_have_a_length(pool, method, head):
    with Hostile(lambda request: [head + b"Content-Length: 5\r\n\r\n"]) as server:
        assert [get(pool, server, method)[1] for _ in range(2)] == [b"", b""]
        assert server.connections == 1


def test_line_breaks_in_a_request_are_refused_without_quoting_them(pool):
    with Hostile(lambda request: [ACCEPTED["a length"]]) as server:
        for target, headers in (
            ("/a b", {}),
            ("/a\r\nX: secret", {}),
            ("/", {"X": "secret\r\nY: z"}),
            ("/", {"X\r\nY": "secret"}),
        ):
            with pytest.raises(ValueError) as caught:
                pool.request("GET", server.uri, target, headers)
            assert "secret" not in str(caught.value) and caught.value.__suppress_context__
        assert server.requests == 0


@contextlib.contextmanager
def receiver(answer, wanted):
    """A server that answers once it has received some bytes, and hangs up; yields its address and them."""
    received = bytearray()

    def serve():
        connection, _ = listener.accept()
        with connection:
            while wanted not in received:
                received.extend(connection.recv(1 << 16))
            connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", received
        thread.join()


def test_bodies_are_sent_with_their_length_or_in_chunks(pool):
    for size, ending in ((7, b"one two"), (None, b"4\r\none \r\n3\r\ntwo\r\n0\r\n\r\n")):
        with receiver(ACCEPTED["a length"], ending) as (server, received):
            pieces = iter([b"one ", b"", b"two"])
            assert pool.request("PUT", server, "/", {}, StreamedBody(pieces, size)).content == b"hello"
        head = b"Content-Length: 7" if size else b"Transfer-Encoding: chunked"
        assert head in received and received.endswith(b"\r\n\r\n" + ending)


@pytest.mark.parametrize(
    "body", [bytes(64 << 20), StreamedBody([bytes(1 << 20)] * 64, None)], ids=["whole", "stream"]
)
def test_server_that_refuses_a_body_unread_is_heard(pool, body):
    refusal = b"HTTP/1.1 413 Too large\r\nContent-Length: 4\r\n\r\nless"
    with receiver(refusal, b"\r\n\r\n") as (server, _):
        answer = pool.request("PUT", server, "/", {}, body)
        assert (answer.status_code, answer.content) == (413, b"less")


def test_success_that_comes_before_the_body_is_an_error(pool):
    with receiver(ACCEPTED["a length"], b"\r\n\r\n") as (server, _), pytest.raises(OSError):
        pool.request("PUT", server, "/", {}, bytes(64 << 20))


def test_error_of_the_source_of_a_body_is_passed_on(pool):
    def pieces():
        yield b"a"
        raise BlockingIOError("the disk")

    with Hostile(lambda request: []) as server, pytest.raises(BlockingIOError, match=r"^the disk$"):
        pool.request("PUT", server.uri, "/", {}, StreamedBody(pieces(), None))
