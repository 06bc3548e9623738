"""Whose process is at the other end of a connection on this machine, where the system shows it."""

from __future__ import annotations

import ipaddress
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

TCP_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_OWN_END, _FAR_END, _USER, _INODE = 1, 2, 7, 9  # columns
ANYONE, NOBODY = "anyone", "nobody"
MAPPED = bytes(10) + b"\xff\xff"  # before an IPv4 address in an IPv6 one

Address = tuple[str, int]
Connection = tuple[Address | None, Address | None]
"""The caller's end and ours."""


def connection(scope: Mapping[str, Any]) -> Connection:
    """Return the ends of the connection of an ASGI request."""
    return scope.get("client"), scope.get("server")


def caller_process(ends: Connection) -> str:
    """Return the user of the process that made a connection, as ``uid N``.

    ``anyone`` if the system does not show it; ``nobody`` if the process has closed its end already.
    """
    caller, server = ends
    if not caller or not server or not TCP_TABLES[0].exists():
        return ANYONE
    near, far = _forms(caller), _forms(server)
    for table in TCP_TABLES:
        for line in _lines(table):
            words = line.split()
            if words[_OWN_END] in near and words[_FAR_END] in far and words[_INODE] != "0":
                return f"uid {words[_USER]}"
    return NOBODY


def _lines(table: Path) -> list[str]:
    try:
        return table.read_text(encoding="ascii").splitlines()[1:]
    except (OSError, ValueError):
        return []


def _forms(address: Address) -> tuple[str, ...]:
    """Return an end of a connection as the tables show it; a program may use IPv6 to reach IPv4."""
    host, port = address
    try:
        packed = ipaddress.ip_address(host).packed
    except ValueError:  # a Unix socket
        return ()
    forms = (packed, MAPPED + packed) if len(packed) == 4 else (packed,)
    return tuple(f"{_hexadecimal(form)}:{port:04X}" for form in forms)


def _hexadecimal(packed: bytes) -> str:
    """Return an address as the numbers of 32 bits that the system has in memory."""
    words = (packed[start : start + 4] for start in range(0, len(packed), 4))
    return "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)
