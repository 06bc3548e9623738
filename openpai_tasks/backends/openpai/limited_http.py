"""A ``requests`` session in which every exchange ends.

requests and urllib3 limit only the silence between two receives. Here each send and receive is checked
against an ``Exchange``, which is passed as the ``timeout`` of a request. Only this module relies on internals
of requests 2.34, urllib3 2.8 and http.client of Python 3.11: pools create connections with ``ConnectionCls``,
connections create answers with ``response_class(sock)``, and answers read only from ``sock.makefile("rb")``.
A TLS handshake needs no check: the timeout of its socket covers all of it.
"""

from __future__ import annotations

import functools
import http.client
import io
import socket
import threading
from typing import Any

import requests
from requests.adapters import HTTPAdapter

from openpai_tasks.net.exchange import CONNECT_SECONDS, Exchange

SEND_PIECE = 1 << 16

_current = threading.local()
"""The current exchange of each thread."""


class LimitedSession(requests.Session):
    """A session without redirects, whose requests take an Exchange as their ``timeout``."""

    def __init__(self) -> None:
        super().__init__()
        self.headers["Accept-Encoding"] = "gzip"  # bodies.py decodes gzip, within a limit
        for scheme in ("http://", "https://"):
            self.mount(scheme, _Adapter())

    def get_redirect_target(self, resp: requests.Response) -> None:
        """Return None: requests would read the whole body of a redirect, however large."""


class _Adapter(HTTPAdapter):
    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        super().init_poolmanager(*args, **options)
        _limit_pools(self.poolmanager)

    def proxy_manager_for(self, *args: Any, **options: Any) -> Any:
        manager = super().proxy_manager_for(*args, **options)
        _limit_pools(manager)
        return manager

    def send(self, request: requests.PreparedRequest, *args: Any, **options: Any) -> requests.Response:
        exchange: Exchange = options["timeout"]
        patience = exchange.patience()
        options["timeout"] = (min(CONNECT_SECONDS, patience), patience)
        _current.exchange = exchange
        try:
            return super().send(request, *args, **options)
        finally:
            _current.exchange = None


def _limit_pools(manager: Any) -> None:
    classes = manager.pool_classes_by_scheme
    manager.pool_classes_by_scheme = {scheme: _limited_pool(pool) for scheme, pool in classes.items()}


@functools.cache
def _limited_pool(pool: type[Any]) -> type[Any]:
    """Return a subclass of the pool whose connections check their exchange, also through proxies."""
    if issubclass(pool.ConnectionCls, _Connection):
        return pool
    connection = type(f"Limited{pool.ConnectionCls.__name__}", (_Connection, pool.ConnectionCls), {})
    return type(f"Limited{pool.__name__}", (pool,), {"ConnectionCls": connection})


class _Response(http.client.HTTPResponse):
    """An answer that is received within the limits of its exchange."""

    def __init__(self, sock: socket.socket, *args: Any, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        self.fp: Any = io.BufferedReader(_Receiver(sock, self.fp.detach(), _current.exchange))

    def _read_status(self) -> tuple[str, int, str]:
        """Skip interim answers (102, 103), which http.client mistakes for the final one."""
        while True:
            found: tuple[str, int, str] = super()._read_status()  # type: ignore[misc]
            if not 101 < found[1] < 200:
                return found
            http.client.parse_headers(self.fp)


class _Connection:
    """A mixin for the connection classes of urllib3."""

    response_class = _Response
    sock: socket.socket | None

    def send(self, data: Any) -> None:
        exchange: Exchange = _current.exchange
        if self.sock is None or not isinstance(data, bytes):
            super().send(data)  # type: ignore[misc]
            return
        for start in range(0, len(data), SEND_PIECE):
            self.sock.settimeout(exchange.patience())
            super().send(data[start : start + SEND_PIECE])  # type: ignore[misc]


class _Receiver(io.RawIOBase):
    """The bytes from a socket; each receive may take the time that is left."""

    def __init__(self, sock: socket.socket, raw: io.RawIOBase, exchange: Exchange) -> None:
        self._sock, self._raw, self._exchange = sock, raw, exchange

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._sock.settimeout(self._exchange.patience())
        try:
            count: int | None = self._raw.readinto(buffer)
        except TimeoutError:
            self._exchange.patience()  # raises if the total time is over, not only the time of silence
            raise
        self._exchange.received(count or 0)
        return count

    def fileno(self) -> int:
        return self._raw.fileno()

    def close(self) -> None:
        self._raw.close()
        super().close()
