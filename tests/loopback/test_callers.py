"""Whose process has made a connection."""

import os
import socket

import pytest

from openpai_tasks.loopback.callers import caller_process
from openpai_tasks.net.tcp_tables import TCP_TABLES

pytestmark = pytest.mark.skipif(not TCP_TABLES[0].exists(), reason="the system does not show it")
ME = f"uid {os.getuid()}"


@pytest.mark.parametrize(
    ("host", "target"), [("127.0.0.1", None), ("::1", None), ("127.0.0.1", "::ffff:127.0.0.1")]
)
def test_the_caller_is_the_owner_of_the_process(host, target):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    if family == socket.AF_INET6 and not TCP_TABLES[1].exists():
        pytest.skip("this machine has no IPv6")
    with socket.create_server((host, 0), family=family) as listening:
        server = listening.getsockname()[:2]
        caller = socket.create_connection((target or host, server[1]))
        accepted, address = listening.accept()
        with accepted:
            assert caller_process((address[:2], server)) == ME
            other_port, other_host = (server[0], 1), ("127.0.0.2", server[1])
            assert (
                caller_process((address[:2], other_port))
                == caller_process((address[:2], other_host))
                == "nobody"
            )
            caller.close()
            assert caller_process((address[:2], server)) == "nobody"  # its user is shown as root then


def test_unix_sockets_and_unknown_ends_belong_to_anyone():
    assert caller_process((None, ("127.0.0.1", 80))) == "anyone"
    assert caller_process((("127.0.0.1", 80), None)) == "anyone"
