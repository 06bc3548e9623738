"""Rules for following redirects."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlsplit

from openpai_tasks.net.web_address import PORTS

LONGEST_HOST = 300  # characters of a host in messages


class WebOrigin(NamedTuple):
    scheme: str
    host: str | None
    port: int


def may_follow(url: str, target: str, token: bool, any_host: bool) -> bool:
    """Whether a GET may follow a redirect to ``target``; a request with a token stays on the same host.

    A change from http to https on the default ports stays on the same server; a change from https to http is
    never safe.
    """
    try:
        here, there = _origin(url), _origin(target)
    except (KeyError, ValueError):  # another scheme, or an invalid port
        return False
    if (here.scheme, there.scheme) == ("https", "http"):
        return False
    if here.host != there.host:
        return any_host and not token
    upgraded = (here.scheme, here.port, there.scheme, there.port) == ("http", 80, "https", 443)
    return here == there or upgraded or not token


def is_same_server(url: str, target: str) -> bool:
    """Whether a login for ``url`` may be used at ``target``: the same server, or the same over https."""
    same_path = urlsplit(url).path.rstrip("/") == urlsplit(target).path.rstrip("/")
    return same_path and may_follow(url, target, token=True, any_host=False)


def origin(url: str) -> str:
    """Return the URL without its path and user, safe to show."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "an invalid address"
    host = parts.netloc.rpartition("@")[2][:LONGEST_HOST]
    return f"{parts.scheme}://{host}" if host else "an invalid address"


def _origin(url: str) -> WebOrigin:
    parts = urlsplit(url)
    return WebOrigin(parts.scheme, parts.hostname, parts.port or PORTS[parts.scheme])
