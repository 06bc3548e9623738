"""Connections of http.client on which every exchange ends.

http.client limits only the silence between two receives; here each send and receive is checked against an
``Exchange``. This relies on internals of http.client, seen in Python 3.10 to 3.14: connections create answers
with ``response_class(sock)``, and answers read only from ``sock.makefile("rb")``. A TLS handshake needs no
check: the timeout of its socket covers all of it.
"""

from __future__ import annotations

import http.client
import io
import select
import socket
import ssl
from typing import Any

from openpai_tasks.net.exchange import CONNECT_SECONDS, Exchange
from openpai_tasks.net.proxies import Proxy

SEND_PIECE = 1 << 16


class ConnectTimedOut(TimeoutError):
    """Raised when a server does not accept the connection in time."""


class TimedConnection(http.client.HTTPConnection):
    """A connection whose current exchange is ``exchange``; to an https address with a TLS context."""

    def __init__(
        self, address: tuple[str, int], exchange: Exchange, tls: ssl.SSLContext | None, proxy: Proxy | None
    ) -> None:
        host, port = address
        self.exchange, self._tls, self._proxy = exchange, tls, proxy
        self._server_name = host
        if proxy is None or proxy.is_socks:
            super().__init__(host, port)
        else:
            super().__init__(proxy.host, proxy.port)
            if tls is not None:
                self.set_tunnel(host, port, proxy.headers)

    def response_class(self, sock: socket.socket, *args: Any, **options: Any) -> TimedResponse:  # type: ignore[override]
        return TimedResponse(sock, self.exchange, *args, **options)

    def connect(self) -> None:
        self.timeout = min(CONNECT_SECONDS, self.exchange.patience())
        try:
            self.sock = self._open()
        except TimeoutError as err:
            raise ConnectTimedOut(str(err)) from err
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._tls is not None:
            if self._tunnel_host:  # type: ignore[attr-defined]
                self._tunnel()  # type: ignore[attr-defined]
            self.sock.settimeout(self.exchange.patience())
            self.sock = self._tls.wrap_socket(self.sock, server_hostname=self._server_name)

    def send(self, data: Any) -> None:
        if self.sock is None:
            self.connect()
        for start in range(0, len(data), SEND_PIECE):
            self.sock.settimeout(self.exchange.patience())
            self.sock.sendall(data[start : start + SEND_PIECE])

    def is_stale(self) -> bool:
        """Whether the server has closed the connection, or has sent something unasked."""
        if self.sock is None:
            return True
        poller = select.poll()
        poller.register(self.sock, select.POLLIN)
        return bool(poller.poll(0))

    def _open(self) -> socket.socket:
        if self._proxy is not None and self._proxy.is_socks:
            return self._proxy.open_socks((self.host, self.port), self.timeout or CONNECT_SECONDS)
        host: Any = self.host.encode() if self.host.isascii() else self.host  # bytes need no IDNA tables
        return socket.create_connection((host, self.port), self.timeout)


class TimedResponse(http.client.HTTPResponse):
    """An answer that is received within the limits of its exchange."""

    def __init__(self, sock: socket.socket, exchange: Exchange, *args: Any, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        self.fp: Any = io.BufferedReader(_Receiver(sock, self.fp.detach(), exchange))

    def _read_status(self) -> tuple[str, int, str]:
        """Skip interim answers (102, 103), which http.client mistakes for the final one."""
        while True:
            found: tuple[str, int, str] = super()._read_status()  # type: ignore[misc]
            if not 101 < found[1] < 200:
                return found
            http.client.parse_headers(self.fp)


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
