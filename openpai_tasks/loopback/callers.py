"""Whose process is at the other end of a connection on this machine, where the system shows it."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any

from openpai_tasks.net import tcp_tables

ANYONE, NOBODY = "anyone", "nobody"

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
    if not caller or not server or not tcp_tables.is_shown():
        return ANYONE
    near, far = _forms(caller), _forms(server)
    for row in tcp_tables.rows():
        is_ours = row[tcp_tables.OWN_END] in near and row[tcp_tables.FAR_END] in far
        if is_ours and row[tcp_tables.INODE] != "0":
            return f"uid {row[tcp_tables.USER]}"
    return NOBODY


def _forms(address: Address) -> tuple[str, ...]:
    """Return an end of a connection as the tables show it."""
    host, port = address
    try:
        return tcp_tables.forms(ipaddress.ip_address(host).packed, port)
    except ValueError:  # a Unix socket
        return ()
