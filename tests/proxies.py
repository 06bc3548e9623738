"""A proxy that opens tunnels, for tests of clients behind one."""

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
        with socket.create_connection((host, int(port))) as there:
            self.request.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            back = threading.Thread(target=self.pump, args=(there, self.request))
            back.start()
            self.pump(self.request, there)
            back.join()

    def pump(self, source, target):
        with contextlib.suppress(OSError):
            for piece in received(source):
                target.sendall(piece)
            target.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def tunnelling_proxy() -> Iterator[tuple[str, list[list[str]]]]:
    """Yield the address of a proxy, and the list of the heads of its requests."""
    proxy = socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Tunnel)
    proxy.daemon_threads, proxy.heads = True, []  # type: ignore[attr-defined]
    threading.Thread(target=proxy.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"127.0.0.1:{proxy.server_address[1]}", proxy.heads  # type: ignore[attr-defined]
    finally:
        proxy.shutdown()
        proxy.server_close()
