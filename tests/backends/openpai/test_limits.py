"""Every request ends in time, however slowly or endlessly a server answers, over real sockets."""

import gzip
import threading
import time
from types import SimpleNamespace

import pytest

from openpai_tasks.backends.openpai import Client
from openpai_tasks.errors import ApiError, Unreachable
from openpai_tasks.net import connection_pool, exchange
from openpai_tasks.settings.credentials import Credentials
from openpai_tasks.settings.registry import Cluster
from tests.hostile import CHUNKED, OK, Hostile, client_of, for_ever, one_by_one
from tests.sdk.clusters.test_known import certificate  # noqa: F401

TIMEOUT = 0.2
OFTEN = 0.03  # seconds between two bytes: never silent, never finished
LONG = 60.0  # seconds: a timeout that even a slow machine does not reach
MB = 1 << 20


def ends_unreachable(server, act):
    begun = time.monotonic()
    with pytest.raises(Unreachable, match="cluster 'lab'") as caught:
        act()
    assert time.monotonic() - begun < LONG
    assert "\n" not in str(caught.value)
    assert server.requests <= 1
    return str(caught.value)


DRIPS = {
    "in the status line": (b"HTTP/1.1 200 ", b"x"),
    "in a header": (OK + b"X-Long: ", b"x"),
    "between headers": (OK, b"X: 1\r\n"),
    "in the content": (OK + b"Content-Length: 100000\r\n\r\n", b" "),
    "in content without a length": (OK + b"\r\n", b" "),
    "in the size of a chunk": (CHUNKED + b"5;", b"x"),
    "between chunks": (CHUNKED, b"1\r\n \r\n"),
    "in the trailers": (CHUNKED + b"0\r\n", b"X: 1\r\n"),
    "between interim answers": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "between early hints": (b"", b"HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n"),
    "in the content of an error": (b"HTTP/1.1 500 Oh\r\nContent-Length: 100000\r\n\r\n", b" "),
}
FLOODS = {
    "headers": (OK, b"X: 1\r\n" * 1000),
    "one header": (OK + b"X-Long: ", b"x" * 8192),
    "the size of a chunk": (CHUNKED + b"5;", b"x" * 8192),
    "trailers": (CHUNKED + b"0\r\n", b"X: 1\r\n" * 1000),
    "interim answers": (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 400),
    "early hints": (b"", b"HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n" * 200),
}


@pytest.mark.parametrize("begin, again", DRIPS.values(), ids=DRIPS)
def test_dripping_response_times_out(begin, again):
    with Hostile(for_ever(begin, again), OFTEN) as server:
        ends_unreachable(server, lambda: client_of(server, TIMEOUT).user_info("alice"))


def test_timeout_error_names_the_total_time_limit(monkeypatch):
    Clock(monkeypatch, LONG / 10)
    with Hostile(for_ever(OK + b"X-Long: ", b"x"), 0.01) as server:
        message = ends_unreachable(server, lambda: client_of(server, LONG).user_info("alice"))
    assert message.endswith("no complete answer within 240 s (4 times the setting http-timeout)")


@pytest.mark.parametrize("begin, again", FLOODS.values(), ids=FLOODS)
def test_endless_headers_chunk_sizes_or_interim_responses_are_cut_off(begin, again):
    with Hostile(for_ever(begin, again)) as server:
        with pytest.raises(Unreachable, match="cluster 'lab'"):
            client_of(server, 5.0).user_info("alice")
        assert server.sent < 64 * MB


def test_trailers_may_be_as_long_as_headers():
    with (
        Hostile(for_ever(*FLOODS["trailers"])) as server,
        pytest.raises(Unreachable, match="invalid HTTP answer: Receive buffer too long"),
    ):
        client_of(server, LONG).user_info("alice")


def test_submit_times_out_on_a_dripping_response():
    with Hostile(for_ever(OK + b"X-Long: ", b"x"), OFTEN) as server:
        ends_unreachable(server, lambda: client_of(server, TIMEOUT).submit("name: x\n"))


def test_early_hints_are_skipped():
    answer = b"HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n" + OK + b"Content-Length: 2\r\n\r\n{}"
    with Hostile(lambda request: [answer]) as server:
        assert client_of(server, LONG).user_info("alice") == {}


def test_unrequested_protocol_switch_is_an_error():
    with (
        Hostile(lambda request: [b"HTTP/1.1 101 Switching Protocols\r\n\r\n"]) as server,
        pytest.raises(Unreachable, match="invalid HTTP answer"),
    ):
        client_of(server, LONG).submit("name: x\n")


def test_redirects_share_the_time_limit_of_one_request():
    def answer(request):
        return one_by_one(b"HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n")

    with Hostile(answer, 0.02) as server:
        with pytest.raises(Unreachable):
            client_of(server, TIMEOUT).user_info("alice")
        assert server.requests < 5


@pytest.mark.parametrize(
    "target", ["http://[", "http://[::1", "//[x]/", "", "http://pai:port/", "javascript:1", "http://\x01/"]
)
def test_redirect_to_an_invalid_address_is_a_one_line_error(target):
    moved = f"HTTP/1.1 302 Found\r\nLocation: {target}\r\nContent-Length: 0\r\n\r\n".encode()
    with Hostile(lambda request: [moved]) as server:
        for act in (lambda c: c.user_info("alice"), lambda c: c.submit("x")):
            with pytest.raises((ApiError, Unreachable)) as caught:
                act(client_of(server, LONG))
            assert "\n" not in str(caught.value)


@pytest.mark.parametrize("size", [b"-1", b"-5", b"zz", b"", b"1_0", b"f" * 100, b"x" * 70000])
def test_invalid_chunk_size_is_an_error(size):
    with (
        Hostile(lambda request: [CHUNKED + size + b"\r\n{}\r\n0\r\n\r\n"]) as server,
        pytest.raises((ApiError, Unreachable)),
    ):
        client_of(server, TIMEOUT).submit("x")


def test_dripping_tls_handshake_times_out():
    record = b"\x16\x03\x03\x40\x00" + b"\x02\x00\x3f\xfc" + bytes(1 << 14)
    with Hostile(lambda request: one_by_one(record), OFTEN, is_eager=True) as server:
        client = client_of(f"https://127.0.0.1:{server.port}", TIMEOUT)
        ends_unreachable(server, lambda: client.user_info("alice"))


@pytest.mark.parametrize("place", ["in the status line", "in the content", "in the size of a chunk"])
def test_dripping_https_response_times_out(certificate, place):  # noqa: F811
    begin, again = DRIPS[place]
    with Hostile(for_ever(begin, again), OFTEN, certificate) as server:
        cluster = Cluster("lab", server.uri, user="alice", generation="1.8", verify=certificate)
        client = Client(cluster, Credentials(token="t0ken"), timeout=0.5)
        ends_unreachable(server, lambda: client.user_info("alice"))


@pytest.mark.parametrize("begin, again", [(b"HTTP/1.1 200 ", b"x"), (OK, b"X: 1\r\n")])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_dripping_proxy_times_out(monkeypatch, scheme, begin, again):
    clock = Clock(monkeypatch)

    def answer(request):
        clock.step = LONG / 10  # from now on: on a slow machine, the request may take long to get here
        return for_ever(begin, again)(request)

    with Hostile(answer, OFTEN) as proxy:
        for name in ("http_proxy", "https_proxy", "no_proxy"):
            monkeypatch.delenv(name.upper(), raising=False)
            monkeypatch.setenv(name, "" if name == "no_proxy" else proxy.uri)
        client = client_of(f"{scheme}://pai.invalid", LONG)
        ends_unreachable(proxy, lambda: client.user_info("alice"))
        assert proxy.requests == 1


def test_connections_are_reused(monkeypatch):
    monkeypatch.setattr(connection_pool, "time", SimpleNamespace(monotonic=lambda: 1000.0))
    answer = OK + b"Content-Length: 2\r\n\r\n{}"
    with Hostile(lambda request: [answer]) as server:
        client = client_of(server, LONG)
        for _ in range(5):
            assert client.user_info("alice") == {}
        assert (server.requests, server.connections) == (5, 1)


def test_a_connection_is_not_reused_when_its_server_may_be_about_to_close_it(monkeypatch):
    """Many servers close one that is idle for 5 s, without regard to a request that is on its way."""
    clock = SimpleNamespace(monotonic=lambda: 1000.0)
    monkeypatch.setattr(connection_pool, "time", clock)
    with Hostile(lambda request: [OK + b"Content-Length: 2\r\n\r\n{}"]) as server:
        client = client_of(server, LONG)
        client.user_info("alice")
        clock.monotonic = lambda: 1004.9
        client.user_info("alice")
        assert (server.requests, server.connections) == (2, 2)


class Clock:
    """A clock for exchanges that moves on by ``step`` at each look, and for the thread ``late`` is ahead."""

    def __init__(self, monkeypatch, step=0.0):
        self.now, self.step, self.late = 1000.0, step, None
        monkeypatch.setattr(exchange, "time", self)

    def monotonic(self):
        self.now += self.step
        return self.now + (100 * LONG if threading.current_thread() is self.late else 0)


def test_dripping_response_in_one_thread_does_not_affect_other_threads(monkeypatch):
    """A thread with a dripping response uses up none of the time limit of the others."""
    clock, dripping = Clock(monkeypatch), threading.Event()

    def answer(request):
        if b"/drip" in request:
            dripping.set()
            return for_ever(OK + b"X-Long: ", b"x")(request)
        return [OK + b"Content-Length: 2\r\n\r\n{}"]

    with Hostile(answer, 0.01) as server:
        client, failed = client_of(server, LONG), []

        def drip():
            try:
                client.user_info("drip")
            except Unreachable:
                failed.append(1)

        slow = threading.Thread(target=drip)
        slow.start()
        assert dripping.wait(LONG) and client.user_info("alice") == {}
        clock.late = slow
        while slow.is_alive():
            assert client.user_info("alice") == {}
        slow.join()
    assert failed == [1]


def log_of(server, offset=0, timeout=TIMEOUT):
    return client_of(server, timeout).read_log(f"{server.uri}/log", offset)


@pytest.mark.parametrize("place", DRIPS, ids=DRIPS)
def test_dripping_log_ends_with_an_error(place):
    with Hostile(for_ever(*DRIPS[place]), OFTEN) as server, pytest.raises((Unreachable, ApiError)):
        for _ in log_of(server):
            pass


@pytest.mark.parametrize("place", ["the size of a chunk", "trailers"])
def test_endless_chunk_size_or_trailers_of_a_log_are_cut_off(place):
    with Hostile(for_ever(*FLOODS[place])) as server, pytest.raises(Unreachable):
        list(log_of(server, timeout=5.0))


def test_log_may_exceed_the_total_time_limit_while_data_arrives(monkeypatch):
    monkeypatch.setattr(exchange, "TOTAL", 1)
    clock = Clock(monkeypatch, 1.0)
    count, part = 100, b"x" * exchange.STREAM_STEP
    head = OK + b"Content-Length: %d\r\n\r\n" % (count * len(part))
    with Hostile(lambda request: [head, *[part] * count]) as server:
        begun = clock.now
        got = sum(map(len, log_of(server, timeout=LONG)))
    assert got == count * len(part)
    assert clock.now - begun > LONG


def test_slow_reader_of_a_log_is_not_cut_off(monkeypatch):
    clock = Clock(monkeypatch)
    part = b"x" * (1 << 16)
    head = OK + b"Content-Length: %d\r\n\r\n" % (40 * len(part))
    with Hostile(lambda request: [head, part * 40]) as server:
        pieces = log_of(server, timeout=LONG)
        got = len(next(pieces))
        clock.now += 100 * LONG  # `pai job.logs | less`
        got += sum(map(len, pieces))
    assert got == 40 * len(part)


def test_beginning_of_a_log_is_yielded_before_the_rest_arrives():
    shown = threading.Event()

    def answer(request):
        yield OK + b"Content-Length: 10\r\n\r\nfirst"
        assert shown.wait(LONG)
        yield b"-last"

    with Hostile(answer) as server:
        pieces = log_of(server, timeout=LONG)
        assert next(pieces) == b"first"
        shown.set()
        assert b"".join(pieces) == b"-last"


def test_log_that_ends_early_raises_unreachable():
    def answer(request):
        yield OK + b"Content-Length: 10\r\n\r\nfirst"
        raise OSError  # hangs up

    with Hostile(answer) as server, pytest.raises(Unreachable):
        list(log_of(server, timeout=LONG))


def test_broken_chunk_in_a_log_raises_unreachable():
    with (
        Hostile(lambda request: [CHUNKED + b"5\r\nhello\r\n", b"oops\r\n"]) as server,
        pytest.raises(Unreachable),
    ):
        list(log_of(server, timeout=LONG))


def test_log_with_an_unrequested_content_encoding_is_refused():
    bomb = gzip.compress(bytes(MB))
    head = OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb)
    with Hostile(lambda request: [head + bomb]) as server, pytest.raises(ApiError, match="content encoding"):
        list(log_of(server, timeout=LONG))
