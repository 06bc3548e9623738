"""The server process: one per folder, on loopback, found through its ``server.json``."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import json
import os
import resource
import signal
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from openpai_tasks import __version__, compat
from openpai_tasks.errors import ConfigError
from openpai_tasks.loopback.lock import ALREADY_RUNNING, LOCK, PORT_TAKEN, STATUS
from openpai_tasks.settings import home

HOST, HOST_IPV6 = "127.0.0.1", "::1"
PORT_TRIES = 5
PORT = "port"
SOCKET = "server.sock"
LOCK_TRIES, LOCK_PAUSE = 50, 0.04
QUEUE = 1024  # waiting connections
HEAD_SECONDS = 10.0  # for the head of a request
MOST_CONNECTIONS = 400
WRITTEN_AHEAD = 1 << 19  # bytes of an answer that wait for the client while more is read
BUSY = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
GRACE_SECONDS = 1  # for unfinished answers at the end


class AlreadyRunning(ConfigError):
    exit_code = ALREADY_RUNNING


class PortTaken(ConfigError):
    exit_code = PORT_TAKEN


def hold_lock(folder: Path) -> int:
    """Lock the folder until this process ends."""
    home.make_private(folder)
    handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    for _ in range(LOCK_TRIES):  # a check whether a server is running also holds it for a moment
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            (folder / STATUS).unlink(missing_ok=True)  # of a server that was killed
            with contextlib.suppress(OSError):  # the disk may be full
                os.ftruncate(handle, 0)
                os.write(handle, f"{os.getpid()}\n".encode())  # to end a server that does not answer
            return handle
        except BlockingIOError:
            time.sleep(LOCK_PAUSE)
    os.close(handle)
    raise AlreadyRunning(f"a server is already running in {folder}")


def bind(folder: Path, port: int, is_for_browsers: bool = False) -> list[socket.socket]:
    """Return sockets on the requested port, or else on the port of the last start, or on any.

    For browsers, which look up ``*.localhost`` as both loopback addresses, one is on that of IPv6:
    another user's server there would get their requests.
    """
    hosts = (HOST, HOST_IPV6) if is_for_browsers else (HOST,)
    for candidate in [port] if port else [_last_port(folder), *[0] * PORT_TRIES]:
        sockets: list[socket.socket] = []
        for host in hosts:
            try:
                sockets.append(_bind(host, sockets[0].getsockname()[1] if sockets else candidate))
            except OSError as err:
                if err.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    continue  # a machine without IPv6
                reason = f"{host}:{port}: {err.strerror}"
                break
        else:
            return sockets
        for one in sockets:
            one.close()
    raise PortTaken(f"cannot listen on {reason}")


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio disables the delay of small answers only on sockets with the TCP protocol number
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
    except OSError:
        bound.close()
        raise
    return bound


def bind_socket(folder: Path) -> socket.socket:
    """Return a Unix socket that only this user can connect to; its path stays the same."""
    path = home.socket_folder(folder) / SOCKET
    path.unlink(missing_ok=True)  # of a server that was killed
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    bound.bind(str(path))
    path.chmod(0o600)
    return bound


def serve(app: ASGIApp, sockets: list[socket.socket], folder: Path, facts: Mapping[str, object]) -> None:
    """Serve until TERM or INT; ``server.json`` exists exactly that long and has the first socket's port."""
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,  # it would contain tokens in paths and queries
        lifespan="off",
        ws="none",
        proxy_headers=False,  # no proxy is in front of it, and a caller must not choose its own address
        http=LimitedConnection,
        backlog=accepted_at_once(),
        server_header=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    compat.refuse_threads_without_memory()  # one request fails, not all
    server = Server(config, folder / STATUS)
    paths = [one.getsockname() for one in sockets if one.family == socket.AF_UNIX]
    # uvicorn raises these signals again when it has ended; they must not kill the process then.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: setattr(server, "should_exit", True))
    try:
        asyncio.run(_run(server, sockets, folder, facts))
    finally:
        with contextlib.suppress(FileNotFoundError):
            (folder / STATUS).unlink()
        for path in paths:
            Path(path).unlink(missing_ok=True)
        home.remove_socket_folder(folder)


class Server(uvicorn.Server):
    """Withdraws its status as soon as it is asked to end: commands then wait, and start another one."""

    def __init__(self, config: uvicorn.Config, status: Path) -> None:
        super().__init__(config)
        self._status = status

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        with contextlib.suppress(OSError):
            self._status.unlink()
        super().handle_exit(sig, frame)


async def _run(
    server: uvicorn.Server,
    sockets: list[socket.socket],
    folder: Path,
    facts: Mapping[str, object],
) -> None:
    serving = asyncio.create_task(server.serve(sockets=sockets))
    while not (server.started or serving.done()):
        await asyncio.sleep(0.005)
    if not serving.done():
        for one in sockets:
            one.listen(QUEUE)  # asyncio accepts few at a time; the others wait here
        _announce(folder, sockets[0].getsockname()[1], facts)
    await serving


def _announce(folder: Path, port: int, facts: Mapping[str, object]) -> None:
    status = {
        "pid": os.getpid(),
        "port": port,
        "uri": f"http://{HOST}:{port}",
        "version": __version__,
        "started": time.time_ns() // 1_000_000,
        "home": str(folder),
        "host": socket.gethostname(),
        **facts,
    }
    home.write_private(folder / PORT, f"{port}\n")
    home.write_private(folder / STATUS, json.dumps(status) + "\n")


def _last_port(folder: Path) -> int:
    try:
        port = int((folder / PORT).read_text())
    except (FileNotFoundError, ValueError):
        return 0
    return port if 0 < port < 65536 else 0


# Limits on connections: their number, and the time for a request to arrive


def most_connections() -> int:
    """Return the maximum number of connections; the other file descriptors are for files and jobs."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return MOST_CONNECTIONS if soft == resource.RLIM_INFINITY else max(8, min(MOST_CONNECTIONS, soft // 3))


def accepted_at_once() -> int:
    """Return how many connections are accepted in one round, before the oldest can be closed."""
    return max(4, min(128, most_connections() // 3))


class LimitedConnection(H11Protocol):
    """An HTTP connection with h11, which also limits the size of a request's head."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._began = 0.0
        self._deadline: asyncio.TimerHandle | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether no request is in progress."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(WRITTEN_AHEAD)
        self._began = self.loop.time()
        self._set_deadline()
        if len(self.connections) > most_connections():
            self._make_room()

    def _make_room(self) -> None:
        """Close the oldest idle connections, or this one if none is idle."""
        others = [one for one in self.connections if isinstance(one, LimitedConnection) and one is not self]
        alive = [one for one in others if not one.transport.is_closing()]
        waiting = sorted((one for one in alive if one.is_waiting), key=lambda one: one._began)
        excess = max(0, len(alive) + 1 - most_connections())
        for one in waiting[:excess]:
            one.transport.abort()
        if excess > len(waiting):
            self.transport.write(BUSY)
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.is_waiting and self.timeout_keep_alive_task is None:
            self._set_deadline()
        else:
            self._drop_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        self._drop_deadline()
        super().connection_lost(exc)

    def _set_deadline(self) -> None:
        if self._deadline is None and not self.transport.is_closing():
            self._deadline = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

    def _drop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
