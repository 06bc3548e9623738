"""Log addresses derived from ``containerLog``, for servers without an endpoint for logs."""

from __future__ import annotations

import re

FILES = {"stdout": "user.pai.stdout", "stderr": "user.pai.stderr", "all": "user.pai.all"}

_LOG_MANAGER = re.compile(r"(/log-manager(?:/[^/]+:[0-9]+)?)/tail/")
_ON_NODE = re.compile(r"/log-manager/((?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5})(/.*)", re.DOTALL)
_PAGES = "/containerlogs/"
_BEGINS = re.compile(r"<pre[^<>]*>", re.IGNORECASE)
_ENDS = ("</pre>", "</PRE>")
_CUT = "�"  # replaces a character whose last bytes have not been written yet


def addresses(container_log: str) -> dict[str, str]:
    """Return the addresses of the complete logs by name; none if the server has to be asked for them.

    OpenPAI 0.18 has a log manager, which serves the end of a log under ``tail`` and all of it under ``full``.
    OpenPAI 0.14 has a page of YARN's NodeManager for each log, and no page for both streams together.
    """
    folder = container_log.rstrip("/")
    if _LOG_MANAGER.search(container_log):
        whole = _LOG_MANAGER.sub(r"\1/full/", folder, count=1)
        return {name: f"{whole}/{file}" for name, file in FILES.items()}
    if is_page(container_log):
        return {name: f"{folder}/{file}/" for name, file in FILES.items() if name != "all"}
    return {}


def on_node(uri: str) -> str:
    """Return the address of a log on its node for an address behind the reverse proxy, or ""."""
    found = _ON_NODE.fullmatch(uri)
    return f"http://{found[1]}{found[2]}" if found else ""


def is_page(url: str) -> bool:
    """Whether an address is an HTML page that shows a log."""
    return _PAGES in url


def page(url: str, start: int) -> str:
    """Return the URL of the log from byte ``start`` on.

    Without ``start``, a page shows only the last 4 KB.
    """
    return f"{url}?start={start}"


def text_of_page(source: str) -> bytes:
    """Return the log in such a page; empty if the page only reports that there is no log."""
    begins, end = _BEGINS.search(source), max(map(source.rfind, _ENDS))
    from html import unescape

    return unescape(source[begins.end() : end]).rstrip(_CUT).encode() if begins and end >= 0 else b""
