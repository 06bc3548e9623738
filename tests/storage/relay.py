"""A relay of bytes in front of a server, which counts the requests and can do what networks do."""

from __future__ import annotations

import contextlib
import re
import socket
import socketserver
import threading
from dataclasses import dataclass, field

REQUEST = re.compile(rb"(?:^|\r\n\r\n|(?<=\n))(GET|HEAD|PUT|POST|DELETE) (\S+) HTTP/1\.1\r\n")
BUSY = b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
BUFFER = 1 << 16


@dataclass
class Relay:
    """Use as a context; ``asked`` has the method and path of every request."""

    server: str
    damage: tuple[bytes, bytes] = (b"", b"")  # what is sent, and what arrives of it instead
    times: int = 0  # how often what goes wrong does
    busy: int = 0  # how many connections are answered with 503 at once
    cut_at: int = 0  # bytes of an answer after which the connection ends, ``times`` times
    asked: list[str] = field(default_factory=list)

    def __enter__(self) -> Relay:
        relay = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                with contextlib.suppress(OSError):
                    relay._serve(self.request)

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.host = f"127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _serve(self, client: socket.socket) -> None:
        if self.busy:
            self.busy -= 1
            self._note(client.recv(BUFFER))
            client.sendall(BUSY)
            return
        host, _, port = self.server.partition(":")
        with socket.create_connection((host, int(port))) as server:
            threading.Thread(target=self._up, args=(client, server), daemon=True).start()
            self._down(client, server)

    def _up(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := client.recv(BUFFER):
                self._note(piece)
                old, new = self.damage
                if self.times and old and old in piece:
                    self.times -= 1
                    piece = piece.replace(old, new)
                server.sendall(piece)
            server.shutdown(socket.SHUT_WR)

    def _down(self, client: socket.socket, server: socket.socket) -> None:
        moved = 0
        while piece := server.recv(BUFFER):
            moved += len(piece)
            if self.times and self.cut_at and moved > self.cut_at:
                self.times -= 1
                client.sendall(piece[: len(piece) - (moved - self.cut_at)])
                client.shutdown(socket.SHUT_RDWR)
                return
            client.sendall(piece)

    def _note(self, piece: bytes) -> None:
        self.asked += [f"{method.decode()} {path.decode()}" for method, path in REQUEST.findall(piece)]
