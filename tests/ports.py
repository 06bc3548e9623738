"""Ports for test servers, which bind them some time after they are chosen."""

from __future__ import annotations

import fcntl
import functools
import os
import socket
import tempfile

FIRST, COUNT = 10_000, 5_000
"""Below the ports of the embedded cluster's tasks and the ephemeral ports of the system, which may be taken
at any time."""
_given: set[int] = set()


def free_ports(count: int) -> list[int]:
    """Return free ports that no other call returns, in this or another test process."""
    return [_free_port() for _ in range(count)]


def free_port() -> int:
    return free_ports(1)[0]


def _free_port() -> int:
    begin = os.getpid() * 97 % COUNT
    for step in range(COUNT):
        port = FIRST + (begin + step) % COUNT
        if port not in _given and _is_reserved(port) and _is_free(port):
            _given.add(port)
            return port
    raise AssertionError("no port is free")


def _is_reserved(port: int) -> bool:
    """Reserve the port for this process by a lock on its byte of a file, which ends with the process."""
    try:
        fcntl.lockf(_locks(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    return True


@functools.cache
def _locks() -> int:
    path = os.path.join(tempfile.gettempdir(), f"openpai-tasks-test-ports-{os.getuid()}")
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
