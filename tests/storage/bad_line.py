"""A plain TCP relay in front of a server, which does to the bytes what bad lines do."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from dataclasses import dataclass, field

from tests.storage.gateway import _received, _reset


@dataclass
class BadLine:
    """Use as a context. ``act`` happens at byte ``at`` of one way, on the first ``times`` connections."""

    server: tuple[str, int]
    act: str  # cut, flip, stall, drip
    at: int = 0
    is_upload: bool = False
    times: int = 1
    connections: int = field(default=0, init=False)

    def __enter__(self) -> BadLine:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = self._listener.getsockname()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._listener.shutdown(socket.SHUT_RDWR)  # which wakes whoever accepts
        self._thread.join()
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self.server)
                self.connections += 1
                is_bad = self.connections <= self.times
                for source, target, is_upload in ((client, server, True), (server, client, False)):
                    act = self.act if is_bad and is_upload == self.is_upload else ""
                    threading.Thread(target=self._pump, args=(source, target, act), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, act: str) -> None:
        moved = 0
        with suppress(OSError):
            for piece in _received(source, b""):
                where = self.at - moved
                if act in ("cut", "stall") and where < len(piece):
                    target.sendall(piece[: max(0, where)])
                    if act == "stall":
                        self._closed.wait(10)
                    break
                if act == "flip" and 0 <= where < len(piece):
                    piece = piece[:where] + bytes([piece[where] ^ 1]) + piece[where + 1 :]
                moved += len(piece)
                for part in [piece[i : i + 1] for i in range(len(piece))] if act == "drip" else [piece]:
                    target.sendall(part)
        _reset(source)
        _reset(target)
