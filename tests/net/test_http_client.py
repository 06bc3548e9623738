"""The HTTP client: addresses, TLS and proxies, over real sockets."""

import os
import sys

import pytest

from openpai_tasks.net.exchange import Exchange
from openpai_tasks.net.http_client import HttpClient
from openpai_tasks.net.proxies import Proxy, proxy_for
from tests.certificates import make_certificate
from tests.hostile import OK, Hostile
from tests.proxies import socks_proxy, tunnelling_proxy
from tests.scripted import Scripted
from tests.storage.relay import Relay

PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch):
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def get(client, url, **options):
    """Send a GET, and return its status and its content."""
    exchange = Exchange(60.0)
    with client.request("GET", url, exchange, **options) as answer:
        exchange.allow(1 << 20)
        return answer.status_code, b"".join(answer.stream(1 << 16))


def test_a_connection_is_closed_if_content_is_left():
    with Hostile(lambda request: [OK + b"Content-Length: 5\r\n\r\nhello"]) as server:
        client = HttpClient()
        for _ in range(2):
            client.request("GET", server.uri, Exchange(60.0)).close()
        assert server.connections == 2


def test_queries_and_odd_addresses_are_escaped(serve):
    server = serve({"GET /a%20b/%C3%BC": "found"})
    status, content = get(HttpClient(), f"{server.uri}/a b/ü?x=1", params={"y": "ä&b", "z": None})
    assert (status, content) == (200, b"found") and server.seen[0].query == {"x": "1", "y": "ä&b"}


def test_nothing_is_sent_to_a_server_of_another_user(serve):
    server = serve({"GET /x": "found"})
    assert get(HttpClient(users=frozenset([os.geteuid()])), f"{server.uri}/x")[0] == 200
    with pytest.raises(ConnectionRefusedError, match="is used by another user's program"):
        HttpClient(users=frozenset([os.geteuid() + 1])).request("GET", f"{server.uri}/x", Exchange(60.0))
    assert len(server.seen) == 1


@pytest.mark.parametrize("url", ["ftp://host/", "http://", "//host/", "http://host:x/"])
def test_an_invalid_address_is_a_value_error(url):
    with pytest.raises(ValueError):
        HttpClient().request("GET", url, Exchange(1.0))


def test_encrypted_requests_go_through_a_tunnel_of_the_proxy(tmp_path, monkeypatch):
    certificate = make_certificate(tmp_path / "ca.pem")
    server = Scripted({"GET /x": "found"}, certificate)
    try:
        with tunnelling_proxy() as (address, heads):
            monkeypatch.setenv("https_proxy", f"http://ann:p%40ss@{address}")
            client = HttpClient()
            assert get(client, f"{server.uri}/x", verify=str(certificate)) == (200, b"found")
            assert get(HttpClient(uses_proxies=False), f"{server.uri}/x", verify=str(certificate))[0] == 200
            assert len(heads) == 1
        assert heads[0][0].startswith(f"CONNECT 127.0.0.1:{server.port} ")
        assert "Proxy-Authorization: Basic YW5uOnBAc3M=" in heads[0]
    finally:
        server.close()


def test_plain_requests_name_their_server_to_the_proxy(serve, monkeypatch):
    server = serve({"GET /x": "found", "GET http://pai.example:8080/x": "found"})
    asked = []
    with Relay(f"127.0.0.1:{server.port}", asked=asked) as relay:
        monkeypatch.setenv("http_proxy", f"http://{relay.host}")
        get(HttpClient(), "http://pai.example:8080/x")
        assert asked == ["GET http://pai.example:8080/x"]
        monkeypatch.setenv("no_proxy", "127.0.0.0/8")
        assert get(HttpClient(), f"{server.uri}/x")[0] == 200 and len(asked) == 1


def test_the_bundle_of_the_environment_is_used(tmp_path, monkeypatch):
    certificate = make_certificate(tmp_path / "ca.pem")
    server = Scripted({"GET /x": "found"}, certificate)
    try:
        with pytest.raises(OSError, match="certificate"):
            get(HttpClient(), f"{server.uri}/x")
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
        assert get(HttpClient(), f"{server.uri}/x") == (200, b"found")
        with pytest.raises(OSError, match="no certificates at"):
            get(HttpClient(), f"{server.uri}/x", verify=str(tmp_path / "none.pem"))
    finally:
        server.close()


@pytest.mark.parametrize(
    ("named", "proxy"),
    [
        ("http://proxy.example", Proxy("http", "proxy.example", 80)),
        ("proxy.example:3128", Proxy("http", "proxy.example", 3128)),
        ("socks5h://ann:x@127.0.0.1", Proxy("socks5h", "127.0.0.1", 1080, "ann", "x")),
    ],
)
def test_proxies_of_the_environment_are_understood(monkeypatch, named, proxy):
    monkeypatch.setenv("all_proxy", named)
    assert proxy_for("https://pai.example/x") == proxy


def test_an_unknown_kind_of_proxy_is_an_error(monkeypatch):
    monkeypatch.setenv("https_proxy", "gopher://proxy.example")
    with pytest.raises(OSError, match="must be one of http, socks4"):
        proxy_for("https://pai.example/x")


def test_requests_go_through_a_socks_proxy_which_may_resolve_names(serve, monkeypatch):
    server = serve({"GET /x": "found"})
    with socks_proxy() as (address, heads):
        for scheme, host in (("socks5", "127.0.0.1"), ("socks5h", "pai.example")):
            monkeypatch.setenv("all_proxy", f"{scheme}://ann:pass@{address}")
            assert get(HttpClient(), f"http://{host}:{server.port}/x") == (200, b"found")
    port = str(server.port)
    assert heads == [["ann", "pass", "127.0.0.1", port], ["ann", "pass", "pai.example", port]]


def test_a_socks_proxy_needs_a_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "socks", None)
    monkeypatch.setenv("all_proxy", "socks5://127.0.0.1:9")
    with pytest.raises(OSError, match="needs PySocks: `pip install pysocks`"):
        get(HttpClient(), "http://pai.example/")
