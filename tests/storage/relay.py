"""A byte relay in front of any server, which counts the traffic and simulates network faults."""

from __future__ import annotations

import contextlib
import re
import socket
import socketserver
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

TO_SERVER, TO_CLIENT = "to server", "to client"
REQUEST = re.compile(rb"(?:^|\r\n\r\n|(?<=\n))(GET|HEAD|PUT|POST|DELETE) (\S+) HTTP/1\.1\r\n")
BUSY = b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
BUFFER = 1 << 16
STALL = 60.0  # seconds, unless the relay is closed earlier


@dataclass
class Fault:
    """What goes wrong, ``times`` times: at a byte of one way of a connection, or where ``old`` passes."""

    act: str  # cut, flip, stall, drip, swap; busy: a connection's first request gets 503
    way: str = TO_SERVER
    at: int = 0
    times: int = 1
    old: bytes = b""
    new: bytes = b""


@dataclass
class Relay:
    """Use as a context manager; ``faults`` has those that are still to come."""

    server: str  # host:port
    faults: list[Fault] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)  # method and path of every request, where they are HTTP's
    moved: dict[str, int] = field(default_factory=lambda: {TO_SERVER: 0, TO_CLIENT: 0})
    connections: int = 0
    listen: tuple[str, int] = ("127.0.0.1", 0)

    def __enter__(self) -> Relay:
        relay = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                with contextlib.suppress(OSError):
                    relay._serve(self.request)

        self._lock, self._closed = threading.Lock(), threading.Event()
        self._listener = socketserver.ThreadingTCPServer(self.listen, Handler)
        self._listener.daemon_threads = True
        self.address: tuple[str, int] = (self.listen[0], self._listener.server_address[1])
        self.host = f"{self.address[0]}:{self.address[1]}"
        self._thread = threading.Thread(target=self._listener.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._listener.shutdown()
        self._listener.server_close()
        self._thread.join()

    def _serve(self, client: socket.socket) -> None:
        with self._lock:
            self.connections += 1
            is_busy = self._take(next((fault for fault in self.faults if fault.act == "busy"), None))
        if is_busy:
            self._note(client.recv(BUFFER))
            client.sendall(BUSY)
            return
        host, _, port = self.server.rpartition(":")
        with socket.create_connection((host, int(port))) as server:
            up = threading.Thread(target=self._pump, args=(client, server, TO_SERVER), daemon=True)
            up.start()
            self._pump(server, client, TO_CLIENT)
            up.join()

    def _pump(self, source: socket.socket, target: socket.socket, way: str) -> None:
        count, drips = 0, False
        with contextlib.suppress(OSError):
            for piece in received(source):
                if way == TO_SERVER:
                    self._note(piece)
                fault, where = self._due(way, count, piece)
                act = fault.act if fault else ""
                if act in ("cut", "stall"):
                    self._send(target, piece[:where], way, drips)
                    if act == "stall":
                        self._closed.wait(STALL)
                    break
                if act == "flip":
                    piece = piece[:where] + bytes([piece[where] ^ 1]) + piece[where + 1 :]
                if fault and act == "swap":
                    piece = piece.replace(fault.old, fault.new)
                drips = drips or act == "drip"
                count += len(piece)
                self._send(target, piece, way, drips)
        reset(source)
        reset(target)

    def _send(self, target: socket.socket, piece: bytes, way: str, drips: bool) -> None:
        with self._lock:
            self.moved[way] += len(piece)
        for part in [piece[i : i + 1] for i in range(len(piece))] if drips else [piece]:
            target.sendall(part)

    def _due(self, way: str, count: int, piece: bytes) -> tuple[Fault | None, int]:
        """The fault that meets this piece, and at which of its bytes."""
        with self._lock:
            for fault in self.faults:
                where = piece.find(fault.old) if fault.old else fault.at - count
                if fault.act != "busy" and fault.way == way and 0 <= where < len(piece):
                    self._take(fault)
                    return fault, where
        return None, 0

    def _take(self, fault: Fault | None) -> bool:
        if fault is None:
            return False
        fault.times -= 1
        if not fault.times:
            self.faults.remove(fault)
        return True

    def _note(self, piece: bytes) -> None:
        self.asked += [f"{method.decode()} {path.decode()}" for method, path in REQUEST.findall(piece)]


def received(stream: socket.socket, first: bytes = b"") -> Iterator[bytes]:
    """Yield what was read already, and then everything that arrives."""
    piece = first or stream.recv(BUFFER)
    while piece:
        yield piece
        piece = stream.recv(BUFFER)


def reset(stream: socket.socket) -> None:
    """Close the connection abruptly, with a reset."""
    with contextlib.suppress(OSError):
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    with contextlib.suppress(OSError):
        stream.shutdown(socket.SHUT_RDWR)
    stream.close()
