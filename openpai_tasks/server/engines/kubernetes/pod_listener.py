"""Listen on a port of a pod's loopback: a small Python program in the pod, by ``kubectl exec``.

All its connections share the input and output of that program, in frames: the number of the connection, what
the frame is, and the size of its data. Without python3 in the image, no port can be listened on.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence

import asyncssh

HEAD = struct.Struct(">IBI")
OPEN, DATA, END = range(3)
CHUNK = 1 << 16
READY_SECONDS = 15.0
MOST_OPEN = 1000  # connections
# An end in both directions closes a connection.
PROGRAM = """\
import os, socket, struct, sys, threading
head, lock, known, half = struct.Struct(">IBI"), threading.Lock(), {}, set()
def send(number, kind, data=b""):
    with lock:
        sys.stdout.buffer.write(head.pack(number, kind, len(data)) + data)
        sys.stdout.buffer.flush()
def read(size):
    data = sys.stdin.buffer.read(size)
    if len(data) < size:
        os._exit(0)
    return data
def finish(number):
    with lock:
        if number in half:
            half.remove(number)
            known.pop(number).close()
        else:
            half.add(number)
def copy(number, visitor):
    try:
        while data := visitor.recv(1 << 16):
            send(number, 1, data)
    except OSError:
        pass
    send(number, 2)
    finish(number)
def accept():
    number = 0
    while True:
        visitor = bound.accept()[0]
        number += 1
        known[number] = visitor
        send(number, 0)
        threading.Thread(target=copy, args=(number, visitor), daemon=True).start()
bound = socket.socket()
bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
bound.bind(("127.0.0.1", int(sys.argv[1])))
bound.listen(64)
send(0, 0)
threading.Thread(target=accept, daemon=True).start()
while True:
    number, kind, size = head.unpack(read(head.size))
    data = read(size)
    try:
        if kind == 1:
            known[number].sendall(data)
        else:
            known[number].shutdown(socket.SHUT_WR)
    except OSError:
        pass
    if kind == 2:
        finish(number)
"""


class PodListener(asyncssh.SSHListener):
    """Passes each connection to a port of the pod on to the client of an SSH connection."""

    def __init__(
        self, connection: asyncssh.SSHServerConnection, process: Process, host: str, port: int
    ) -> None:
        super().__init__()
        self._connection, self._process, self._place = connection, process, (host, port)
        self._writers: dict[int, asyncio.Future[asyncssh.SSHWriter[bytes]]] = {}
        self._copies: set[asyncio.Future[None]] = set()
        self._reading = asyncio.ensure_future(self._read())

    def get_port(self) -> int:
        return self._place[1]

    def close(self) -> None:
        """Stop listening, and end all connections."""
        self._reading.cancel()
        for copy in self._copies:
            copy.cancel()
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def wait_closed(self) -> None:
        await self._process.wait()

    async def _read(self) -> None:
        assert self._process.stdout
        with contextlib.suppress(asyncio.IncompleteReadError, KeyError):
            while True:
                number, kind, size = HEAD.unpack(await self._process.stdout.readexactly(HEAD.size))
                if size > CHUNK or len(self._writers) > MOST_OPEN:  # another program in the pod answers
                    break
                data = await self._process.stdout.readexactly(size)
                if kind == OPEN:
                    self._writers[number] = asyncio.get_running_loop().create_future()
                    copy = asyncio.ensure_future(self._copy(number, self._writers[number]))
                    self._copies.add(copy)
                    copy.add_done_callback(self._copies.discard)
                else:
                    await self._pass_on(number, data)
        self.close()

    async def _pass_on(self, number: int, data: bytes) -> None:
        """Write to the client what has come from the pod; no data is its end."""
        with contextlib.suppress(OSError, asyncssh.Error):
            writer = await (self._writers[number] if data else self._writers.pop(number))
            if data:
                writer.write(data)
                await writer.drain()
            else:
                writer.write_eof()

    async def _copy(self, number: int, opened: asyncio.Future[asyncssh.SSHWriter[bytes]]) -> None:
        """Open a connection to the client, and copy what it sends."""
        try:
            reader, writer = await self._connection.open_connection(*self._place)
            opened.set_result(writer)
            while data := await reader.read(CHUNK):
                await self._send(number, DATA, data)
        except (OSError, asyncssh.Error) as err:
            if not opened.done():
                opened.set_exception(ConnectionError(str(err)))
                opened.exception()  # which may be all that asks for it
        await self._send(number, END)

    async def _send(self, number: int, kind: int, data: bytes = b"") -> None:
        assert self._process.stdin
        self._process.stdin.write(HEAD.pack(number, kind, len(data)) + data)
        with contextlib.suppress(OSError):
            await self._process.stdin.drain()


async def listen_in_pod(
    connection: asyncssh.SSHServerConnection,
    argv: Sequence[str],
    environment: Mapping[str, str],
    host: str,
    port: int,
) -> PodListener | None:
    """Listen with the command that runs PROGRAM in the pod; None if it cannot listen."""
    process = await asyncio.create_subprocess_exec(
        *argv, stdin=PIPE, stdout=PIPE, stderr=asyncio.subprocess.DEVNULL, env=environment
    )
    assert process.stdout
    try:
        await asyncio.wait_for(process.stdout.readexactly(HEAD.size), READY_SECONDS)
    except (asyncio.IncompleteReadError, asyncio.TimeoutError):
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        return None
    return PodListener(connection, process, host, port)
