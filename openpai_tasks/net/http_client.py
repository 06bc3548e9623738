"""A small HTTP client: kept-alive connections that threads share, TLS, and proxies of the environment.

It does what the REST API needs and no more: redirects, logins, retries and decoding belong to its caller.
requests, which it replaces here, takes longer to load than most commands take to run.
"""

from __future__ import annotations

import functools
import http.client
import json
import logging
import os
import ssl
import threading
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import SplitResult, quote, urlencode, urlsplit

from openpai_tasks import __version__
from openpai_tasks.net.exchange import Exchange
from openpai_tasks.net.http_connection import TimedConnection, TimedResponse
from openpai_tasks.net.log_masking import mask_keys
from openpai_tasks.net.proxies import Proxy, proxy_for
from openpai_tasks.net.web_address import PORTS

REDIRECTS = (301, 302, 303, 307, 308)
IDLE = 10  # connections kept for each server
SAFE = "!$%&'()*+,/:;=?@[]~"  # in targets: what is escaped already, or need not be
BUNDLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")

log = logging.getLogger(__name__)

_Key = tuple[str, str, int, "Proxy | None", "str | bool"]


class HttpAnswer:
    """An answer whose content has not been read; ``content`` is for what the caller reads of it."""

    def __init__(self, url: str, response: TimedResponse, release: Any) -> None:
        self.url = url
        self.status_code, self.reason, self.headers = response.status, response.reason, response.headers
        self.content = b""
        self._response, self._release = response, release

    def __enter__(self) -> HttpAnswer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_redirect(self) -> bool:
        return self.status_code in REDIRECTS and "Location" in self.headers

    @property
    def text(self) -> str:
        charset = self.headers.get_content_charset("utf-8-sig")
        try:
            return self.content.decode(charset, "replace")
        except LookupError:  # an unknown charset
            return self.content.decode("utf-8-sig", "replace")

    def stream(self, size: int) -> Iterator[bytes]:
        """Yield the content as it arrives, at most so much at once; raise if it ends early."""
        response = self._response
        if response.length is None:
            yield from iter(lambda: response.read1(size), b"")
            return
        while response.length:  # read1 of Python 3.11 does not count it down
            piece = response.fp.read1(min(size, response.length))
            if not piece:
                raise http.client.IncompleteRead(b"", response.length)
            response.length -= len(piece)
            yield piece
        response.read(1)  # closes it, so that the connection can be used again

    def close(self) -> None:
        """Give the connection back; content that has not been read is given up."""
        release, self._release = self._release, None
        if release:
            release(is_reusable=self._response.isclosed() and not self._response.will_close)


class HttpClient:
    """Sends requests; ``uses_proxies`` says whether the environment's proxies count."""

    def __init__(self, uses_proxies: bool = True) -> None:
        self._uses_proxies = uses_proxies
        self._idle: dict[_Key, list[TimedConnection]] = {}
        self._lock = threading.Lock()

    def request(
        self,
        method: str,
        url: str,
        exchange: Exchange,
        verify: str | bool = True,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        data: bytes | Mapping[str, str] | None = None,
        json: Any = None,
    ) -> HttpAnswer:
        """Send a request and return its answer, whose content is not read yet."""
        url = _with_query(url, params)
        parts = _split(url)
        proxy = proxy_for(url) if self._uses_proxies else None
        port = parts.port or PORTS[parts.scheme]
        key = (parts.scheme, parts.hostname or "", port, proxy, verify)
        body, kind = _body(data, json)
        lines = {"User-Agent": f"openpai-tasks/{__version__}", "Accept": "*/*", "Accept-Encoding": "gzip"}
        if proxy and not proxy.is_socks and parts.scheme == "http":
            lines |= proxy.headers
        target = _target(parts, bool(proxy and not proxy.is_socks))
        connection = self._connection(key, exchange)
        try:
            connection.request(method, target, body, {**lines, **kind, **(headers or {})})
            response = connection.getresponse()
        except BaseException:
            connection.close()
            raise
        if log.isEnabledFor(logging.DEBUG):
            log.debug("%s", mask_keys(f"{method} {url} -> {response.status}"))
        return HttpAnswer(url, response, functools.partial(self._release, key, connection))  # type: ignore[arg-type]

    def _connection(self, key: _Key, exchange: Exchange) -> TimedConnection:
        while True:
            with self._lock:
                idle = self._idle.get(key)
                connection = idle.pop() if idle else None
            if connection is None:
                break
            if not connection.is_stale():
                connection.exchange = exchange
                return connection
            connection.close()
        scheme, host, port, proxy, verify = key
        return TimedConnection((host, port), exchange, _tls(verify) if scheme == "https" else None, proxy)

    def _release(self, key: _Key, connection: TimedConnection, is_reusable: bool) -> None:
        if is_reusable:
            with self._lock:
                idle = self._idle.setdefault(key, [])
                if len(idle) < IDLE:
                    idle.append(connection)
                    return
        connection.close()


@functools.cache
def _tls(verify: str | bool) -> ssl.SSLContext:
    """Return a context that trusts the certificates in a file or folder, or else the usual ones."""
    named = next(filter(None, map(os.environ.get, BUNDLES)), "") if verify is True else str(verify)
    if not named:
        import certifi

        named = certifi.where()
    is_folder = os.path.isdir(named)
    try:
        return ssl.create_default_context(
            cafile=None if is_folder else named, capath=named if is_folder else None
        )
    except FileNotFoundError:
        raise OSError(f"no certificates at {named}: no such file") from None


def _with_query(url: str, params: Mapping[str, Any] | None) -> str:
    given = {name: value for name, value in (params or {}).items() if value is not None}
    if not given:
        return url
    return f"{url}{'&' if '?' in url else '?'}{urlencode(given, doseq=True)}"


def _split(url: str) -> SplitResult:
    parts = urlsplit(url)
    if parts.scheme not in PORTS or not parts.hostname:
        raise ValueError("the address must begin with https:// or http:// and a host")
    return parts


def _target(parts: SplitResult, is_absolute: bool) -> str:
    """Return the target of the request line; a proxy for http needs the whole URL."""
    path = quote(parts.path or "/", safe=SAFE) + (f"?{quote(parts.query, safe=SAFE)}" if parts.query else "")
    return f"http://{parts.netloc}{path}" if is_absolute and parts.scheme == "http" else path


def _body(data: bytes | Mapping[str, str] | None, value: Any) -> tuple[bytes | None, dict[str, str]]:
    if value is not None:
        return json.dumps(value, allow_nan=False).encode(), {"Content-Type": "application/json"}
    if data is None or isinstance(data, bytes):
        return data, {}
    return urlencode(data).encode(), {"Content-Type": "application/x-www-form-urlencoded"}
