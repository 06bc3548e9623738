"""Proxies that open tunnels, for tests of clients behind them."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
from collections.abc import Iterator

from tests.storage.relay import received


class _Tunnel(socketserver.BaseRequestHandler):
    """Opens a tunnel to any server; the server has the request's head in ``heads``."""

    def handle(self):
        head = self.request.recv(1 << 16)
        self.server.heads.append(head.decode().splitlines())
        host, port = head.split()[1].decode().rsplit(":", 1)
        self.connect(host, int(port), b"HTTP/1.1 200 OK\r\n\r\n")

    def connect(self, host, port, answer):
        with socket.create_connection((host, port)) as there:
            self.request.sendall(answer)
            back = threading.Thread(target=self.pump, args=(there, self.request))
            back.start()
            self.pump(self.request, there)
            back.join()

    def pump(self, source, target):
        with contextlib.suppress(OSError):
            for piece in received(source):
                target.sendall(piece)
            target.shutdown(socket.SHUT_RDWR)


class _Socks5(_Tunnel):
    """Speaks SOCKS 5 (RFC 1928) with user and password; ``heads`` has these and the address."""

    def handle(self):
        take = self.request.makefile("rb").read
        methods = take(take(2)[1])
        assert 2 in methods
        self.request.sendall(b"\x05\x02")
        user = take(take(2)[1]).decode()
        password = take(take(1)[0]).decode()
        self.request.sendall(b"\x01\x00")
        kind = take(4)[3]
        host = take(take(1)[0]).decode() if kind == 3 else socket.inet_ntoa(take(4))
        port = int.from_bytes(take(2), "big")
        self.server.heads.append([user, password, host, str(port)])
        self.connect("127.0.0.1", port, b"\x05\x00\x00\x01" + bytes(6))


@contextlib.contextmanager
def tunnelling_proxy(kind: type[_Tunnel] = _Tunnel) -> Iterator[tuple[str, list[list[str]]]]:
    """Yield the address of a proxy, and the list of the heads of its requests."""
    proxy = socketserver.ThreadingTCPServer(("127.0.0.1", 0), kind)
    proxy.daemon_threads, proxy.heads = True, []  # type: ignore[attr-defined]
    threading.Thread(target=proxy.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"127.0.0.1:{proxy.server_address[1]}", proxy.heads  # type: ignore[attr-defined]
    finally:
        proxy.shutdown()
        proxy.server_close()


def socks_proxy() -> contextlib.AbstractContextManager[tuple[str, list[list[str]]]]:
    return tunnelling_proxy(_Socks5)
