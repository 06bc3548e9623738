"""A relay in front of a Unix socket, which can be slow and cut its connections."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from pathlib import Path


class UnixRelay:
    """Pass on bytes both ways, with half-closed connections as they are; set ``delay`` to slow it down."""

    def __init__(self, path: Path, target: Path) -> None:
        self.path, self.delay = path, 0.0
        self._target = target
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()

    def start(self) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self._listener.listen(100)
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> int:
        """Close all connections in the middle of whatever they do; return their number."""
        with self._lock:
            streams = list(self._open)
        for stream in streams:
            with suppress(OSError):
                stream.shutdown(socket.SHUT_RDWR)
        return len(streams) // 2

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as server:
            with suppress(OSError):
                server.connect(str(self._target))
                with self._lock:
                    self._open |= {client, server}
                up = threading.Thread(target=self._pump, args=(client, server), daemon=True)
                up.start()
                self._pump(server, client)
                up.join()
            with self._lock:
                self._open -= {client, server}

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while piece := source.recv(1 << 16):
                time.sleep(self.delay)
                target.sendall(piece)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)
