"""Connections to ports of a pod: the API's port-forward in a WebSocket, over the socket of ``kubectl proxy``.

Unlike ``kubectl port-forward``, this opens no port that other users of this machine could connect to, and
needs no process. The protocol cannot close one direction of a connection only.
"""

from __future__ import annotations

import asyncio
import base64
import errno
import os
import struct

import h11

from openpai_tasks.server.engines.kubernetes.api import READ, KubeError, path

DATA, ERROR = 0, 1  # channels; the first message in each is the number of the port
_BINARY, _CLOSE, _PING, _PONG = 2, 8, 9, 10
_NO_MASK = bytes(4)  # masks protect proxies on the way from web pages; the next one here is our own
LARGEST_FRAME = 32 << 20  # bytes; Kubernetes sends 32 KB


class PodConnection:
    """A connection to a port of a pod."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, begun: bytes) -> None:
        self._reader, self._writer, self._buffer = reader, writer, begun
        self._named: set[int] = set()  # the channels whose first message has arrived

    async def read(self) -> bytes:
        """Return the next data; empty at the end, ConnectionRefusedError if nothing listens at the port."""
        while True:
            try:
                kind, payload = await self._frame()
            except (EOFError, OSError):
                return b""
            if kind == _CLOSE:
                return b""
            if kind == _PING:
                await self._send(_PONG, payload)
            elif payload and kind < _CLOSE:
                channel, data = payload[0], payload[1:]
                if channel not in self._named:
                    self._named.add(channel)
                elif channel == ERROR:
                    raise ConnectionRefusedError(errno.ECONNREFUSED, data.decode("utf-8", "replace"))
                elif data:
                    return data

    async def write(self, data: bytes) -> None:
        await self._send(_BINARY, bytes([DATA]) + data)

    def close(self) -> None:
        self._writer.close()

    async def _send(self, kind: int, payload: bytes) -> None:
        size = len(payload)
        length = bytes([0x80 | size]) if size < 126 else b"\xff" + struct.pack(">Q", size)
        self._writer.write(bytes([0x80 | kind]) + length + _NO_MASK + payload)
        await self._writer.drain()

    async def _frame(self) -> tuple[int, bytes]:
        kind, size = await self._take(2)
        if size == 126:
            (size,) = struct.unpack(">H", await self._take(2))
        elif size == 127:
            (size,) = struct.unpack(">Q", await self._take(8))
        if size > LARGEST_FRAME:
            raise EOFError
        return kind & 0xF, await self._take(size)

    async def _take(self, size: int) -> bytes:
        while len(self._buffer) < size:
            data = await self._reader.read(READ)
            if not data:
                raise EOFError
            self._buffer += data
        taken, self._buffer = self._buffer[:size], self._buffer[size:]
        return taken


async def open_port(socket: str, namespace: str, pod: str, port: int) -> PodConnection:
    """Connect to a port of a pod; that nothing listens there is known only later."""
    target = path(namespace, "pods", pod, "portforward", ports=port)
    reader, writer = await asyncio.open_unix_connection(socket)
    try:
        return PodConnection(reader, writer, await _upgrade(reader, writer, target))
    except BaseException:
        writer.close()
        raise


async def _upgrade(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: str) -> bytes:
    """Turn a connection into a WebSocket; return what of it has already arrived."""
    headers = [
        ("Host", "localhost"),
        ("Connection", "Upgrade"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", base64.b64encode(os.urandom(16)).decode()),
        ("Sec-WebSocket-Protocol", "v4.channel.k8s.io"),
    ]
    connection = h11.Connection(h11.CLIENT)
    request = connection.send(h11.Request(method="GET", target=target, headers=headers)) or b""
    writer.write(request + (connection.send(h11.EndOfMessage()) or b""))
    try:
        while (event := connection.next_event()) is h11.NEED_DATA:
            connection.receive_data(await reader.read(READ))
    except h11.RemoteProtocolError as err:
        raise KubeError(f"the connection to Kubernetes was lost: {err}") from err
    code = event.status_code if isinstance(event, (h11.InformationalResponse, h11.Response)) else 0
    if code != 101:
        raise KubeError(f"Kubernetes does not forward ports: HTTP status {code}", code)
    return connection.trailing_data[0]
