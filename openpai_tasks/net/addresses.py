"""Addresses of servers as people type them: what is none is told from what is."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import SplitResult, urlsplit

LAST_PORT = 65535
_SERVER = re.compile(r"(?:\[(.+)\]|([\w.-]+))(?::([0-9]+))?")


def server(text: str) -> tuple[str, int | None]:
    """``HOST``, ``HOST:PORT`` or ``[IPv6]:PORT``, the brackets kept; ValueError where it is none."""
    found = _SERVER.fullmatch(text)
    if not found:
        raise ValueError(f"{text!r} is no server")
    number, name, told = found.groups()
    host = f"[{ipaddress.IPv6Address(number)}]" if number else name.encode("idna").decode()
    return host, port(told) if told else None


def port(text: str) -> int:
    """ValueError where it is none."""
    number = int(text) if text.isascii() and text.isdigit() else 0
    if not 0 < number <= LAST_PORT:
        raise ValueError(f"{text!r} is no port")
    return number


def web_url(text: str) -> SplitResult:
    """``http[s]://HOST[:PORT][/PATH]``; ValueError where it is none."""
    scheme, mark, rest = text.partition("://")
    if scheme.lower() not in ("http", "https") or not mark:
        raise ValueError(f"{text!r} is no url")
    server(re.split("[/?#]", rest, maxsplit=1)[0])
    return urlsplit(text)
