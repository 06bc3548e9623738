"""Connections on which the bytes of an input arrive, and then the end of the stream."""

from __future__ import annotations

import contextlib
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from openpai_tasks.net.connection_pool import ConnectionPool
from openpai_tasks.net.exchange import Exchange
from openpai_tasks.net.http1 import HttpAnswer, HttpConnection, StreamedBody
from openpai_tasks.net.web_address import PORTS

OK = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nContent-Type: %s\r\n\r\n%s"
SECONDS = 1.0


class FedSocket(socket.socket):
    """One end of a pair of sockets, with the options of TCP; what it sends is read by nobody."""

    def __init__(self, data: bytes) -> None:
        ours, self._other = socket.socketpair()
        super().__init__(fileno=ours.detach())
        self._other.sendall(data)
        self._other.shutdown(socket.SHUT_WR)

    def setsockopt(self, *_: Any) -> None:
        pass

    def close(self) -> None:
        self._other.close()
        super().close()


@contextlib.contextmanager
def replacing(holder: Any, name: str, value: Any) -> Iterator[None]:
    """Replace an attribute; quicker than ``unittest.mock``."""
    before = getattr(holder, name)
    setattr(holder, name, value)
    try:
        yield
    finally:
        setattr(holder, name, before)


def connections(data: Callable[[Any], bytes]) -> contextlib.AbstractContextManager[None]:
    """Feed ``data(address)`` to each new connection."""

    def connect(address: tuple[str | bytes, int], *_: Any, **__: Any) -> FedSocket:
        with contextlib.suppress(socket.gaierror):  # raises for what cannot be an address at all
            socket.getaddrinfo(*address, flags=socket.AI_NUMERICHOST)
        if not 0 <= address[1] < 1 << 16:
            raise OverflowError("getsockaddrarg: port must be 0-65535.")
        return FedSocket(data(address))

    return replacing(socket, "create_connection", connect)


def http_answers(answer: Callable[[str, str], bytes]) -> contextlib.AbstractContextManager[None]:
    """Answer each HTTP request with the bytes of ``answer(method, target)``, status line included."""

    def request(
        self: ConnectionPool,
        method: str,
        server: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes | StreamedBody = b"",
        exchange: Exchange | None = None,
        repeats: bool = False,
    ) -> HttpAnswer:
        parts = urlsplit(server)
        key = parts.scheme, parts.hostname or "", parts.port or PORTS[parts.scheme]
        connection = HttpConnection(FedSocket(answer(method, target)), key, exchange or Exchange(SECONDS))
        try:
            connection.request(method, target, {"Host": parts.netloc, **headers}, body)
            return HttpAnswer(connection, HttpConnection.close, server + target)
        except BaseException:
            connection.close()
            raise

    return replacing(ConnectionPool, "request", request)


def ok(body: bytes, kind: bytes = b"application/json") -> bytes:
    """Return a successful answer with this body."""
    return OK % (len(body), kind, body)


@contextlib.contextmanager
def programs(*answers: tuple[int, bytes, bytes]) -> Iterator[None]:
    """Answer ``subprocess.run`` with these exit codes, outputs and errors; the last one is repeated."""
    left = list(answers)

    def run(words: Any, **options: Any) -> subprocess.CompletedProcess[Any]:
        code, out, err = left.pop(0) if len(left) > 1 else left[0]
        if hasattr(options.get("stdout"), "write"):
            options["stdout"].write(out)
        found: list[Any] = [out, err]
        if options.get("text") or options.get("encoding") or options.get("errors"):
            how = options.get("encoding") or "utf-8", options.get("errors") or "strict"
            found = [one.decode(*how) for one in found]
        if options.get("check") and code:
            raise subprocess.CalledProcessError(code, words, *found)
        return subprocess.CompletedProcess(words, code, *found)

    with replacing(subprocess, "run", run):
        yield
