"""Which addresses are valid, and when two of them are the same."""

import pytest

from openpai_tasks.net import web_address


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("https://pai.example.com", "https://pai.example.com"),
        ("HTTPS://PAI.example.com:443/", "https://pai.example.com"),
        ("http://10.0.0.1:80/pai/", "http://10.0.0.1/pai"),
        ("http://10.0.0.1:443", "http://10.0.0.1:443"),
        ("http://[::1]:9186/x", "http://[::1]:9186/x"),
        ("https://gw/A/b", "https://gw/A/b"),
    ],
)
def test_address_is_normalized(address, expected):
    assert web_address.normal(address) == expected


INVALID = [
    "",
    "lab",
    "//lab",
    "ftp://lab",
    "http://",
    "http://:80",
    "http://alice@lab",
    "http://alice:pw123@lab",
    "http://lab\\@evil",
    "http://lab evil",
    "http://lab\tevil",
    "http://lab\x00",
    "http://lab%40evil",
    "http://lab:99999",
    "http://lab:port",
    "http://lab:0",
    "http://[::1",
    "http://pw123\u2100.com",
    "http://lab?x=",
    "http://lab#x",
    "http://lab/?",
    "http://lab/a/../b",
    "http://lab/a/%2e%2E/b",
    "http://lab/./b",
]


def test_invalid_base_address_is_refused_without_quoting_it():
    for address in INVALID:
        with pytest.raises(ValueError, match=r"^it") as raised:
            web_address.base(address)
        assert "pw123" not in str(raised.value)


@pytest.mark.parametrize("prefix", ["", "/rest-server", "/pai/rest-server", "/v1.8/~pai_1"])
def test_valid_prefix_is_accepted(prefix):
    web_address.check_prefix("https://lab:8443/base", prefix)


UNSAFE = [
    "rest-server",
    "@127.0.0.1:18082",
    ":18082",
    ".evil.com",
    "0",
    "/..",
    "/../x",
    "/./x",
    "/%2e%2e/x",
    "//evil",
    "/x//y",
    "/x@y",
    "/x\\y",
    "\\@evil",
    "/x y",
    "/x\ty",
    "/x\x00",
    "/x\n",
    "/x?y",
    "/x#y",
    "?",
    "#",
    "/",
]


def test_prefix_that_could_change_the_host_or_leave_the_path_is_refused():
    for prefix in UNSAFE:
        with pytest.raises(ValueError, match="it must"):
            web_address.check_prefix("https://lab", prefix)
