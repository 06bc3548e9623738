"""Parse the addresses of servers that users type."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import SplitResult, urlsplit

LAST_PORT = 65535
_SERVER = re.compile(r"(?:\[(.+)\]|([\w.-]+))(?::([0-9]+))?")


def parse_server(text: str) -> tuple[str, int | None]:
    """Parse ``HOST``, ``HOST:PORT`` or ``[IPv6]:PORT``, keeping the brackets; ValueError if it is invalid."""
    found = _SERVER.fullmatch(text)
    if not found:
        raise ValueError(f"invalid server {text!r}: expected HOST or HOST:PORT")
    number, name, port = found.groups()
    host = f"[{ipaddress.IPv6Address(number)}]" if number else name.encode("idna").decode()
    return host, parse_port(port) if port else None


def parse_port(text: str) -> int:
    """Parse a port number; ValueError if it is invalid."""
    number = int(text) if text.isascii() and text.isdigit() else 0
    if not 0 < number <= LAST_PORT:
        raise ValueError(f"invalid port {text!r}: expected 1 to {LAST_PORT}")
    return number


def parse_url(text: str) -> SplitResult:
    """Parse ``http[s]://HOST[:PORT][/PATH]``; ValueError if it is invalid."""
    scheme, mark, rest = text.partition("://")
    if scheme.lower() not in ("http", "https") or not mark:
        raise ValueError(f"invalid URL {text!r}: expected http[s]://HOST[:PORT][/PATH]")
    parse_server(re.split("[/?#]", rest, maxsplit=1)[0])
    return urlsplit(text)
