"""Requests to a REST API, by URL: kept connections, TLS, and proxies of the environment.

Redirects, logins, retries and decoding belong to the caller. requests, which it replaces here, takes longer
to load than most commands take to run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import SplitResult, quote, urlencode, urlsplit

from openpai_tasks import __version__
from openpai_tasks.net.certificates import ClientCertificate
from openpai_tasks.net.connection_pool import ConnectionPool
from openpai_tasks.net.exchange import Exchange
from openpai_tasks.net.http1 import HttpAnswer
from openpai_tasks.net.proxies import Proxy, proxy_for
from openpai_tasks.net.web_address import PORTS

SAFE = "!$%&'()*+,/:;=?@[]~"  # in targets: what is escaped already, or need not be
BUNDLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
USUAL_SECONDS = 60.0
AGENT = f"openpai-tasks/{__version__}"


class HttpClient:
    """Sends requests; ``uses_proxies`` says whether the environment's proxies count.

    With ``unix``, all requests are sent to the Unix socket with that path; with ``users``, only to programs
    of these users on this machine.
    """

    def __init__(
        self, uses_proxies: bool = True, unix: str = "", users: frozenset[int] = frozenset()
    ) -> None:
        self._uses_proxies, self._unix, self._users = uses_proxies and not unix, unix, users

    def request(
        self,
        method: str,
        url: str,
        exchange: Exchange,
        verify: object = True,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        data: bytes | Mapping[str, str] | None = None,
        json: Any = None,
        certificate: ClientCertificate | None = None,
    ) -> HttpAnswer:
        """Send a request and return its answer; ``verify`` may be a file or folder of certificates.

        ``certificate`` is presented to a server that asks for one.
        """
        url = _with_query(url, params)
        parts = _split(url)
        proxy = proxy_for(url) if self._uses_proxies else None
        body, kind = _body(data, json)
        server = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        lines = {"User-Agent": AGENT, "Accept": "*/*", "Accept-Encoding": "gzip", **kind, **(headers or {})}
        is_secure = parts.scheme == "https"
        trusted, certificate = (_certificates(verify), certificate) if is_secure else ("", None)
        pool = _pool(proxy, trusted, self._unix, certificate, self._users)
        answer = pool.request(method, server, _target(parts), lines, body, exchange)
        answer.url = url
        return answer


_pools: dict[tuple[object, ...], ConnectionPool] = {}
"""All clients share them: a program may have thousands, one for each of its jobs."""


def _pool(
    proxy: Proxy | None,
    certificates: str,
    unix: str,
    own: ClientCertificate | None,
    users: frozenset[int],
) -> ConnectionPool:
    changed = (_mtime(certificates) if certificates else 0, own.changed if own else ())
    key = (proxy, unix, certificates, own, users, changed)
    return _pools.get(key) or _pools.setdefault(
        key, ConnectionPool(USUAL_SECONDS, certificates or True, proxy, unix, own, users)
    )


def _mtime(path: str) -> int:
    """Return when a file was changed; 0 if it is missing, which the connection reports."""
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def _certificates(verify: object) -> str:
    """Return the file or folder of the certificates to trust: given, the environment's or certifi's."""
    named = next(filter(None, map(os.environ.get, BUNDLES)), "") if verify is True else str(verify)
    if named:
        return named
    import certifi

    return certifi.where()


def _with_query(url: str, params: Mapping[str, Any] | None) -> str:
    given = {name: value for name, value in (params or {}).items() if value is not None}
    if not given:
        return url
    return f"{url}{'&' if '?' in url else '?'}{urlencode(given, doseq=True)}"


def _split(url: str) -> SplitResult:
    parts = urlsplit(url)
    if parts.scheme not in PORTS or not parts.hostname or " " in parts.netloc:
        raise ValueError("the address must begin with https:// or http:// and a host")
    if parts.netloc.isascii():
        return parts
    return parts._replace(netloc=parts.netloc.encode("idna").decode("ascii"))


def _target(parts: SplitResult) -> str:
    return quote(parts.path or "/", safe=SAFE) + (f"?{quote(parts.query, safe=SAFE)}" if parts.query else "")


def _body(data: bytes | Mapping[str, str] | None, value: Any) -> tuple[bytes, dict[str, str]]:
    if value is not None:
        return json.dumps(value, allow_nan=False).encode(), {"Content-Type": "application/json"}
    if data is None or isinstance(data, bytes):
        return data or b"", {}
    return urlencode(data).encode(), {"Content-Type": "application/x-www-form-urlencoded"}
