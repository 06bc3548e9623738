"""All addresses of a location on a server with several names."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit


def resolved_addresses(address: str, above: bool) -> set[str]:
    """Return the address with each IP address of its host; ``above``: also those of all parent folders."""
    parts = urlsplit(address)
    paths = [parts.path.rstrip("/")]
    while above and paths[-1]:
        paths.append(paths[-1].rpartition("/")[0])
    return {f"{host}:{parts.port}{path}" for host in _numbers(parts.hostname or "") for path in paths}


def _numbers(host: str) -> set[str]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM) if host else []
    except (OSError, UnicodeError):  # unknown name: connecting to it gives a better message
        return set()
    return {str(row[4][0]) for row in found}
