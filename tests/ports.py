"""Ports for test servers, which bind them some time after they are chosen."""

from __future__ import annotations

import os
import socket

FIRST, EACH, SHARES = 10_000, 250, 20
"""Below the ports of the embedded cluster's tasks and the ephemeral ports of the system, which may be taken
at any time. Each test process starts in a different share."""
_given: set[int] = set()


def free_ports(count: int) -> list[int]:
    """Return free ports that no other call returns."""
    return [_free_port() for _ in range(count)]


def free_port() -> int:
    return free_ports(1)[0]


def _free_port() -> int:
    begin = os.getpid() % SHARES * EACH
    for step in range(EACH * SHARES):
        port = FIRST + (begin + step) % (EACH * SHARES)
        if port not in _given and _is_free(port):
            _given.add(port)
            return port
    raise AssertionError("no port is free")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
