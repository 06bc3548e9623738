"""Ports for servers of tests, which bind them a while after they were chosen."""

from __future__ import annotations

import os
import socket

FIRST, EACH, SHARES = 10_000, 250, 20
"""Below those of the embedded cluster's tasks and those that the system gives to whoever connects: such a one
may be taken at any time. Each process that runs tests begins in a share of its own."""
_given: set[int] = set()


def free_ports(count: int) -> list[int]:
    """Ports that nobody has, and that no other call is given."""
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
