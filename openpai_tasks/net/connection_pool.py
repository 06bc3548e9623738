"""Connections to HTTP servers that threads share: opened directly or through a proxy, and kept for later."""

from __future__ import annotations

import errno
import os
import socket
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from openpai_tasks.net import tcp_tables
from openpai_tasks.net.certificates import ClientCertificate
from openpai_tasks.net.exchange import CONNECT_SECONDS, Exchange
from openpai_tasks.net.http1 import HttpAnswer, HttpConnection, ProtocolError, ServerKey, StreamedBody
from openpai_tasks.net.log_masking import log_request
from openpai_tasks.net.proxies import Proxy
from openpai_tasks.net.web_address import PORTS

if TYPE_CHECKING:
    import ssl

IDLE = 32  # connections kept for each server
IDLE_SECONDS = 4.0  # that one is kept: Node.js and uvicorn close it after 5, even if a request is under way


class ConnectTimeout(TimeoutError):
    """Raised when a server does not accept the connection in time."""


class ConnectionPool:
    """Connections that are kept for the next request; a forked process opens its own."""

    def __init__(
        self,
        timeout: float,
        verify: bool | str = True,
        proxy: Proxy | None = None,
        unix: str = "",
        certificate: ClientCertificate | None = None,
        users: frozenset[int] = frozenset(),
    ) -> None:
        """``verify`` may be a file or folder of certificates; ``proxy`` serves all servers of the pool.

        With ``unix``, all servers are reached by the Unix socket with that path. ``certificate`` is presented
        to servers that ask for one. With ``users``, the servers are programs of these users on this machine.
        """
        self._timeout, self._verify, self._proxy, self._unix = timeout, verify, proxy, unix
        self._certificate, self._users = certificate, users
        self._tls: ssl.SSLContext | None = None
        self._idle: dict[ServerKey, list[HttpConnection]] = {}
        self._forget()

    def request(
        self,
        method: str,
        server: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes | StreamedBody = b"",
        exchange: Exchange | None = None,
        repeats: bool = False,
    ) -> HttpAnswer:
        """Send a request to a server (``SCHEME://HOST[:PORT]``) and return its answer.

        ``target`` is escaped. With ``repeats``, a request without a body is sent again if the server closed
        the connection while it was idle.
        """
        url, parts = server + target, urlsplit(server)
        headers = {"Host": parts.netloc, **headers}
        if parts.scheme == "http" and self._proxy and not self._proxy.is_socks:
            target, headers = url, {**headers, **self._proxy.headers}
        key = parts.scheme, parts.hostname or "", parts.port or PORTS[parts.scheme]
        while True:
            connection = self._acquire(key, exchange or Exchange(self._timeout))
            try:
                connection.request(method, target, headers, body)
                answer = HttpAnswer(connection, self._keep, url)
            except BaseException as err:
                connection.close()
                was_idle = connection.used and isinstance(err, OSError) and not isinstance(err, TimeoutError)
                if not (repeats and was_idle and body == b""):
                    raise
            else:
                size = len(body) if isinstance(body, bytes) else body.size
                shown = server if exchange and exchange.is_secret else url
                log_request(method, shown, size, answer.status_code)
                return answer

    def _acquire(self, key: ServerKey, exchange: Exchange) -> HttpConnection:
        if self._process != os.getpid():
            self._forget()
        while True:
            with self._lock:
                idle = self._idle.get(key)
                connection = idle.pop() if idle else None
            if connection is None:
                return self._connect(key, exchange)
            if time.monotonic() - connection.idle_since < IDLE_SECONDS and not connection.is_stale():
                connection.exchange = exchange
                connection.set_timeout(exchange.silence)  # the last answer may have used most of it
                return connection
            connection.close()

    def _keep(self, connection: HttpConnection) -> None:
        with self._lock:
            idle = self._idle.setdefault(connection.key, [])
            if len(idle) < IDLE:
                connection.used, connection.idle_since = True, time.monotonic()
                idle.append(connection)
                return
        connection.close()

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, {}
        for connection in [one for some in idle.values() for one in some]:
            connection.close()

    def _forget(self) -> None:
        self._process, self._lock = os.getpid(), threading.Lock()
        self._idle = {}

    def _connect(self, key: ServerKey, exchange: Exchange) -> HttpConnection:
        scheme, host, port = key
        try:
            stream = self._open_socket(host, port, min(exchange.time_left(), CONNECT_SECONDS))
        except TimeoutError as err:
            raise ConnectTimeout(str(err)) from err
        connection = HttpConnection(stream, key, exchange)
        try:
            if not self._unix:
                stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if scheme == "https":
                if self._proxy is not None and not self._proxy.is_socks:
                    _tunnel(connection, self._proxy, host, port)
                connection.set_timeout(exchange.time_left())
                connection.stream = self._tls_context().wrap_socket(stream, server_hostname=host)
            connection.set_timeout(exchange.silence)
        except BaseException:
            connection.close()
            raise
        return connection

    def _open_socket(self, host: str, port: int, seconds: float) -> socket.socket:
        if self._unix:
            return _connect_unix(self._unix, seconds)
        if self._proxy is not None and self._proxy.is_socks:
            return self._proxy.open_socks((host, port), seconds)
        to, port = (self._proxy.host, self._proxy.port) if self._proxy else (host, port)
        place: Any = to.encode() if to.isascii() else to  # bytes need no IDNA tables, which take long to load
        stream = socket.create_connection((place, port), timeout=seconds)
        if self._users and not self._proxy and not _is_served_by(self._users, port):
            stream.close()
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"port {port} is used by another user's program")
        return stream

    def _tls_context(self) -> ssl.SSLContext:
        import ssl  # loads OpenSSL, which the embedded cluster does not need

        with self._lock:  # connections that are opened side by side share it
            if self._tls is None:
                path = self._verify if isinstance(self._verify, str) else None
                file, folder = (None, path) if path and os.path.isdir(path) else (path, None)
                try:
                    context = ssl.create_default_context(cafile=file, capath=folder)
                except FileNotFoundError:
                    raise OSError(f"no certificates at {path}: no such file") from None
                if self._verify is False:
                    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
                if self._certificate:
                    self._certificate.load(context)
                self._tls = context
            return self._tls


def _is_served_by(users: frozenset[int], port: int) -> bool:
    """Whether only these users accept connections at the port of this machine, where the system shows it.

    Others can take the port of a server that has ended, and must not get what is sent to it.
    """
    found = tcp_tables.listening_users(port)
    return users.issuperset(found) and (bool(found) or not tcp_tables.is_shown())


def _connect_unix(path: str, seconds: float) -> socket.socket:
    stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        stream.settimeout(seconds)
        stream.connect(path)
    except BaseException:
        stream.close()
        raise
    return stream


def _tunnel(connection: HttpConnection, proxy: Proxy, host: str, port: int) -> None:
    """Ask the proxy for a tunnel to the server."""
    server = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    connection.request("CONNECT", server, {"Host": server, **proxy.headers})
    head = connection.head()
    if not 200 <= head.status_code < 300:
        reason = head.reason.decode("latin-1")
        raise ProtocolError(f"the proxy {proxy.host} opens no tunnel: {head.status_code} {reason}")
