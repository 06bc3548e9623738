"""Addresses of login nodes, which become words of an ssh command."""

import pytest

from openpai_tasks.net import web_address
from openpai_tasks.net.ssh_address import parse_ssh


@pytest.mark.parametrize(
    ("typed", "uri", "words"),
    [
        ("login.example.org", "ssh://login.example.org", ["--", "login.example.org"]),
        ("ann@login:2222", "ssh://ann@login:2222", ["-l", "ann", "-p", "2222", "--", "login"]),
        ("ssh://ann@uni.org@hpc/", "ssh://ann@uni.org@hpc", ["-l", "ann@uni.org", "--", "hpc"]),
        ("[::1]:22", "ssh://[::1]:22", ["-p", "22", "--", "::1"]),
    ],
)
def test_an_address_becomes_words_of_ssh(typed, uri, words):
    address = parse_ssh(typed)
    assert (address.uri, address.words) == (uri, words)
    assert parse_ssh(address.uri) == address and web_address.normal(address.uri) == uri


@pytest.mark.parametrize(
    "typed",
    [
        "",
        "-oProxyCommand=touch x",
        "ann@-x",
        "-l@x",
        "two words",
        "h:0",
        "h:65536",
        "h;id",
        "h\nx",
        "[x]",
        "$(id)",
    ],
)
def test_what_ssh_could_take_for_an_option_or_a_command_is_refused(typed):
    with pytest.raises(ValueError):
        parse_ssh(typed)
