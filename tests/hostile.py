"""A server that sends raw bytes, which may be invalid HTTP or endless."""

from __future__ import annotations

import contextlib
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from openpai_tasks.backends.openpai import Client
from openpai_tasks.settings.credentials import Credentials
from openpai_tasks.settings.registry import Cluster

Answer = Callable[[bytes], Iterable[bytes]]
OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


class Hostile:
    """A context manager: the server answers each request with what ``answer(request)`` yields.

    ``pause`` is the number of seconds between two chunks. With ``is_eager`` it waits for no request.
    """

    def __init__(
        self, answer: Answer, pause: float = 0.0, certificate: str | None = None, is_eager: bool = False
    ) -> None:
        self._answer, self._pause, self._is_eager = answer, pause, is_eager
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if certificate else None
        if self._context and certificate:
            self._context.load_cert_chain(certificate)
        self.requests = 0
        self.connections = 0
        self.sent = 0
        self._closed = threading.Event()

    def __enter__(self) -> Hostile:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.uri = f"{'https' if self._context else 'http'}://127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.connections += 1
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError, ssl.SSLError), connection:
            if self._context:
                connection = self._context.wrap_socket(connection, server_side=True)
            while request := b"-" if self._is_eager else _request(connection):
                self.requests += 1
                for piece in self._answer(request):
                    connection.sendall(piece)
                    self.sent += len(piece)
                    if self._closed.wait(self._pause) if self._pause else self._closed.is_set():
                        return


def _request(connection: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        more = connection.recv(1 << 16)
        if not more:
            return b""
        data += more
    return data


def one_by_one(data: bytes) -> Iterator[bytes]:
    for number in range(len(data)):
        yield data[number : number + 1]


def drip(answer: bytes) -> Answer:
    """Answer byte by byte: use it with a pause."""
    return lambda request: (answer[place : place + 1] for place in range(len(answer)))


def for_ever(begin: bytes, again: bytes) -> Answer:
    """Answer with ``begin``, and then with ``again`` endlessly."""

    def answer(request: bytes) -> Iterator[bytes]:
        yield begin
        while True:
            yield again

    return answer


def client_of(server: Any, timeout: float = 60.0, **options: Any) -> Client:
    """Return a client for a server or an address."""
    uri = server if isinstance(server, str) else server.uri
    cluster = Cluster("lab", uri, user="alice", generation="1.8")
    return Client(cluster, Credentials(token="t0ken"), timeout=timeout, **options)


READ = """
import sys
from openpai_tasks.errors import PaiError
from tests.hostile import client_of
client = client_of(sys.argv[1], say=lambda line: print(line, flush=True))
try:
    client.user_info("alice")
except PaiError as err:
    print(err)
"""


def reading(server: Hostile) -> subprocess.Popen[str]:
    """Start a process that requests a user from the server."""
    argv = [sys.executable, "-c", READ, server.uri]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
