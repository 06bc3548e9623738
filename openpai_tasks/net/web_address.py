"""Validate and normalise the addresses of REST servers."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, unquote, urlsplit

from openpai_tasks.net.ssh_address import SSH, parse_ssh

PORTS = {"http": 80, "https": 443}
_FORBIDDEN = re.compile(r"[\s\\\x00-\x1f\x7f]")
_HOST = re.compile(r"[\w.-]+|[0-9A-Fa-f:.]+(%25[\w.-]+)?")
_PREFIX = re.compile(r"(/[A-Za-z0-9._~-]+)*")


def split(text: str) -> SplitResult:
    """Split ``http[s]://HOST[:PORT][/PATH]``; ValueError with the reason for anything else.

    The error never quotes the address, which may contain a password.
    """
    if _FORBIDDEN.search(text):
        raise ValueError("it contains a space, a backslash or a control character")
    try:
        parts = urlsplit(text)
        parts.port  # noqa: B018  (reading it is the check)
    except ValueError:
        raise ValueError("its host or port is not valid") from None
    if parts.scheme not in PORTS:
        raise ValueError("it must begin with https:// or http://")
    if "@" in parts.netloc:
        raise ValueError("it must not contain a user or password")
    if not parts.hostname or not _HOST.fullmatch(parts.hostname):
        raise ValueError("it has no valid host; expected something like https://pai.example.com")
    if parts.port == 0:
        raise ValueError("its port must not be 0")
    if any(unquote(part) in (".", "..") for part in parts.path.split("/")):
        raise ValueError("it must not contain . or .. between slashes")
    return parts


def base(text: str) -> SplitResult:
    """Split an address that paths are appended to: one without ``?`` and ``#``, or one for ssh."""
    if text.startswith(SSH):
        return urlsplit(parse_ssh(text).uri)
    parts = split(text)
    if "?" in text or "#" in text:
        raise ValueError("it must not contain ? or #")
    return parts


def check_prefix(uri: str, prefix: str) -> None:
    """Raise ValueError unless requests below ``uri + prefix`` go to the server of ``uri``."""
    if not _PREFIX.fullmatch(prefix):
        raise ValueError("it must be empty or a path such as /rest-server: letters, digits and . _ ~ - only")
    if uri.startswith(SSH):
        return
    here, there = base(uri), base(uri + prefix)
    if (here.scheme, here.netloc) != (there.scheme, there.netloc):
        raise ValueError(f"it points to another server than {normal(uri)}")


def normal(text: str) -> str:
    """Normalise an address for comparisons: lower case, no default port, no slash at the end."""
    if text.startswith(SSH):
        return text.rstrip("/")
    parts = base(text)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    port = "" if parts.port in (None, PORTS[parts.scheme]) else f":{parts.port}"
    return f"{parts.scheme}://{host}{port}{parts.path.rstrip('/')}"
