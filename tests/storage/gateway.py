"""A small real reverse proxy in front of HDFS, like OpenPAI's, which can also simulate network faults.

``/webhdfs/api/v1/...`` goes to the name node, whose redirects are rewritten to ``/a/<data node>/...``.
"""

from __future__ import annotations

import re
import socket
import socketserver
import ssl
import threading
from contextlib import suppress
from dataclasses import dataclass, field

from tests.storage.relay import BUFFER, received, reset

END = b"\r\n\r\n"
STANDBY = (
    b'{"RemoteException": {"exception": "StandbyException", "javaClassName": "x", "message": "standby"}}'
)
REDIRECTED = ("OPEN", "CREATE", "APPEND", "GETFILECHECKSUM")
ANSWERS = {
    "refuse": b"HTTP/1.1 503 Busy\r\nConnection: close\r\n\r\nbusy",
    "standby": b"HTTP/1.1 403 Forbidden\r\nConnection: close\r\n\r\n" + STANDBY,
}


@dataclass
class Fault:
    """What goes wrong with the next ``times`` requests for ``op`` on their way through."""

    op: str
    act: str  # cut, stall, drip, flip, shorten, swap, refuse, lose, standby
    at: int = 0  # the byte of the body where it happens
    times: int = 1
    is_upload: bool = False
    old: bytes = b""
    new: bytes = b""


@dataclass
class Gateway:
    """Use as a context; ``asked`` has every request's method and op in order."""

    name_node: str
    faults: list[Fault] = field(default_factory=list)
    lies: bool = False  # announces that it keeps the connection, and closes it
    tls: ssl.SSLContext | None = None
    rewrite: tuple[str, str] = ("", "")  # in the request target
    is_standby: bool = False
    asked: list[str] = field(default_factory=list)

    def __enter__(self) -> Gateway:
        gateway = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                with suppress(OSError, EOFError):
                    gateway._serve(self.request)

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler, bind_and_activate=False)
        self._server.daemon_threads = True
        self._server.server_bind()
        self._server.server_activate()
        self.host = f"127.0.0.1:{self._server.server_address[1]}"
        self.uri = f"{'https' if self.tls else 'http'}://{self.host}"
        self._lock, self._closed = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def count(self, op: str) -> int:
        return sum(asked.endswith(op) for asked in self.asked)

    def _serve(self, client: socket.socket) -> None:
        if self.tls:
            client = self.tls.wrap_socket(client, server_side=True)
        head, rest = _head(client)
        method, target, _ = head.split(b"\r\n")[0].decode().split(" ", 2)
        found = re.search(r"[?&]op=(\w+)", target, re.I)
        op = found[1].upper() if found else ""
        self.asked.append(f"{method} {op}")
        fault = self._fault(op, target.startswith("/a/") or op not in REDIRECTED)
        act = "standby" if self.is_standby else fault.act if fault else ""
        if act in ANSWERS:
            client.sendall(ANSWERS[act])
            return
        host, target = self._backend(target.replace(*self.rewrite))
        with socket.create_connection(host.split(":"), timeout=60) as server:
            lines = [line for line in head.split(b"\r\n")[1:] if not line.lower().startswith(b"connection:")]
            first = f"{method} {target} HTTP/1.1".encode()
            server.sendall(b"\r\n".join([first, *lines, b"Connection: close"]) + END)
            up = threading.Thread(target=self._upload, args=(client, server, rest, fault), daemon=True)
            up.start()
            self._download(client, server, fault)

    def _fault(self, op: str, is_data: bool) -> Fault | None:
        with self._lock:
            for fault in self.faults:
                if is_data and fault.op == op and fault.times > 0:
                    fault.times -= 1
                    return fault
        return None

    def _backend(self, target: str) -> tuple[str, str]:
        if target.startswith("/a/"):
            host, _, path = target.removeprefix("/a/").partition("/")
            return host, f"/{path}"
        if not target.startswith(("/webhdfs/api/v1", "/webhdfs/v1")):
            raise EOFError
        return self.name_node, target.replace("/webhdfs/api/v1", "/webhdfs/v1", 1)

    def _upload(self, client: socket.socket, server: socket.socket, rest: bytes, fault: Fault | None) -> None:
        moved = 0
        with suppress(OSError):
            for piece in received(client, rest):
                moved += len(piece)
                if fault and fault.is_upload and moved > fault.at:
                    reset(client)
                    break
                server.sendall(piece)
        reset(server)  # the client has gone

    def _download(self, client: socket.socket, server: socket.socket, fault: Fault | None) -> None:
        head, rest = _head(server)
        head = re.sub(
            rb"(?im)^location: http://([^/]+)/", f"Location: {self.uri}/a/".encode() + rb"\1/", head
        )
        if self.lies:
            head = re.sub(rb"(?im)^connection:.*\r?\n?", b"", head).rstrip()
        else:
            head += b"\r\nConnection: close"
        act = fault.act if fault and not fault.is_upload else ""
        if act == "lose":
            return reset(client)
        if act == "shorten" and fault:
            head = re.sub(rb"(?im)^content-length: \d+", b"Content-Length: %d" % fault.at, head)
        client.sendall(head + END)
        moved = 0
        for piece in received(server, rest):
            if fault and act in ("cut", "stall") and moved + len(piece) > fault.at:
                client.sendall(piece[: fault.at - moved])
                if act == "stall":
                    self._closed.wait(60)
                reset(client)
                return
            if fault and act == "flip" and moved <= fault.at < moved + len(piece):
                where = fault.at - moved
                piece = piece[:where] + bytes([piece[where] ^ 1]) + piece[where + 1 :]
            if fault and act == "swap":
                piece = piece.replace(fault.old, fault.new)
            moved += len(piece)
            for part in [piece[i : i + 1] for i in range(len(piece))] if act == "drip" else [piece]:
                client.sendall(part)
        if self.lies:
            client.shutdown(socket.SHUT_RDWR)


def _head(stream: socket.socket) -> tuple[bytes, bytes]:
    data = b""
    while END not in data:
        piece = stream.recv(BUFFER)
        if not piece:
            raise EOFError
        data += piece
    head, _, rest = data.partition(END)
    return head, rest
