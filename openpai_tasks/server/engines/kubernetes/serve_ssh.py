"""Serve SSH for a pod: a program on the machine of the server, in the task's folder there.

    python -m openpai_tasks.server.engines.kubernetes.serve_ssh FILE POD NAMESPACE PROXY KUBECONFIG CONTEXT

FILE is the number of the open socket on which it serves. A session is a ``kubectl exec``, a forwarded port a
connection through the socket of ``kubectl proxy``, and files are copied by commands in the pod, so the image
needs only a POSIX shell. It ends with its standard input.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import pty
import re
import secrets
import signal
import socket
import sys

import asyncssh
from asyncssh.stream import SSHTCPStreamSession

from openpai_tasks.server.engines.kubernetes.api import KubeError
from openpai_tasks.server.engines.kubernetes.kubectl import Kubectl
from openpai_tasks.server.engines.kubernetes.pod_listener import PROGRAM, listen_in_pod
from openpai_tasks.server.engines.kubernetes.pod_ports import PodConnection, open_port
from openpai_tasks.server.engines.kubernetes.pod_sftp import PodSftpServer
from openpai_tasks.server.engines.kubernetes.pods import IO, SESSION
from openpai_tasks.server.engines.kubernetes.ssh_service import PodCommands
from openpai_tasks.server.ssh.serve_asyncssh import (
    CHUNK,
    LOOPBACK,
    READY,
    SshSession,
    Streams,
    TaskSshServer,
    authorized_keys,
    listen,
    read_some,
)

LOST = 255  # the exit code of ssh when its connection is lost
REFUSED_SECONDS = 0.3  # in which a port turns out to be closed, the first time it is used
SILENT_SECONDS = 10.0  # after the client has ended its side of a connection
_EXIT_CODE = re.compile(rb"command terminated with exit code \d+\n\Z")  # of kubectl, its last line
# Without a terminal, this shell keeps the output open: input is lost once no process has it any more.
# It reports success by a mark, since kubectl also exits with 0 if its connection is lost.
_BEGIN = f"""\
echo $$ >{IO}/session-$1
[ "$4" = - ] || exec /bin/sh {SESSION} "$@"
trap : HUP INT TERM
exec 3>&2 2>/dev/null
(exec 2>&3 3>&-; exec /bin/sh {SESSION} "$@") || exit $?
printf '\\036%s' MARK >&3"""
_SIGNAL = f'kill "-$1" "-$(cat {IO}/session-$2)"'


class PodSshServer(TaskSshServer):
    """Opens connections to ports of the pod."""

    def __init__(self, keys: frozenset[bytes], pod: PodCommands, proxy: str, answering: set[int]) -> None:
        super().__init__(keys)
        self._pod, self._proxy = pod, proxy
        self._answering = answering  # ports that have sent data

    def connection_requested(self, dest_host: str, dest_port: int, orig_host: str, orig_port: int):  # type: ignore[no-untyped-def]
        if dest_host not in LOOPBACK:
            raise asyncssh.ChannelOpenError(
                asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED, "only ports of the task itself can be reached"
            )
        return self._connect(dest_port)

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connection = conn

    def server_requested(self, listen_host: str, listen_port: int):  # type: ignore[no-untyped-def]
        """Listen on the pod's loopback, if the image has python3."""
        if listen_host not in LOOPBACK or not listen_port:
            return False
        argv = self._pod.exec("python3", "-c", PROGRAM, str(listen_port), flags=("-i",))
        environment = self._pod.environment
        return listen_in_pod(self._connection, argv, environment, listen_host, listen_port)

    def unix_connection_requested(self, dest_path: str) -> bool:
        return False

    async def _connect(self, port: int) -> SSHTCPStreamSession[bytes]:
        try:
            connection = await open_port(self._proxy, self._pod.namespace, self._pod.name, port)
            first = asyncio.ensure_future(connection.read())
            await asyncio.wait([first], timeout=0 if port in self._answering else REFUSED_SECONDS)
            if first.done():
                first.result()
        except (OSError, KubeError) as err:
            self._answering.discard(port)
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_CONNECT_FAILED, str(err)) from err

        async def exchange(reader: asyncssh.SSHReader[bytes], writer: asyncssh.SSHWriter[bytes]) -> None:
            await self._exchange(port, connection, first, reader, writer)

        return SSHTCPStreamSession(exchange)

    async def _exchange(
        self,
        port: int,
        connection: PodConnection,
        first: asyncio.Future[bytes],
        reader: asyncssh.SSHReader[bytes],
        writer: asyncssh.SSHWriter[bytes],
    ) -> None:
        """Copy both ways until the pod, or the client, has closed the connection."""
        sending = asyncio.ensure_future(_send(reader, connection))
        closing = asyncio.ensure_future(writer.channel.wait_closed())
        reading: asyncio.Future[bytes] = first
        try:
            while True:
                limit = SILENT_SECONDS if sending.done() else None
                waiting = {reading, closing, *(() if sending.done() else (sending,))}
                done, _ = await asyncio.wait(waiting, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
                if closing in done or not done:
                    return
                if reading in done:
                    data = reading.result()
                    if not data:
                        return
                    self._answering.add(port)
                    writer.write(data)
                    await writer.drain()
                    reading = asyncio.ensure_future(connection.read())
        except OSError:
            self._answering.discard(port)
        finally:
            for one in (sending, closing, reading):
                one.cancel()
            await asyncio.gather(sending, closing, reading, return_exceptions=True)
            connection.close()
            writer.close()


async def _send(reader: asyncssh.SSHReader[bytes], connection: PodConnection) -> None:
    while data := await reader.read(CHUNK):
        await connection.write(data)


class PodSession(SshSession):
    """A ``kubectl exec`` on one channel of a connection."""

    def __init__(
        self, channel: asyncssh.SSHServerProcess[bytes], pod: PodCommands, sessions: dict[int, PodSession]
    ) -> None:
        """``sessions`` are those that run, by number."""
        self._pod, self._sessions = pod, sessions
        self._number = next(one for one in itertools.count() if one not in sessions)
        self._is_terminal = channel.term_type is not None
        mark = secrets.token_hex(16)
        self._mark, self._has_succeeded = b"\036" + mark.encode(), False
        super().__init__(channel, [])
        about = self._about()
        words = ["-c", _BEGIN.replace("MARK", mark), "sh", str(self._number)]
        words += [about["SSH_CLIENT"], about["SSH_CONNECTION"], channel.term_type or "-"]
        words += [about["SSH_ORIGINAL_COMMAND"]] if "SSH_ORIGINAL_COMMAND" in about else []
        self._argv = pod.exec("/bin/sh", *words, flags=("-i", "-t") if self._is_terminal else ("-i",))

    async def run(self) -> None:
        self._sessions[self._number] = self
        try:
            await super().run()
        finally:
            if self._process and self._process.returncode is None:  # the client has left
                self.kill(signal.SIGTERM)
                if self._is_terminal:
                    await self._send_signal("HUP")
            del self._sessions[self._number]

    async def _start_in_terminal(self) -> Streams:
        """Start kubectl with a terminal, which it makes raw, and its own messages apart."""
        (master, terminal), (err, stderr) = pty.openpty(), os.pipe()
        self._terminal = master
        self._resize(*self._channel.term_size)
        await self._spawn((terminal, terminal, stderr), {})
        for handle in (master, err):
            os.set_blocking(handle, False)
        return master, [(master, self._channel.stdout), (err, self._channel.stderr)]

    async def _copy(self, source: int, target: asyncssh.SSHWriter[bytes]) -> None:
        """Copy output, without what is said about the exit code."""
        if target is not self._channel.stderr:
            return await super()._copy(source, target)
        held = b""
        while data := await read_some(source):
            data = held + data
            self._has_succeeded = self._has_succeeded or self._mark in data
            data = data.replace(self._mark, b"")
            found = _EXIT_CODE.search(data)
            held = found[0] if found else _begun(self._mark, data)
            target.write(data[: len(data) - len(held)])
            await target.drain()
        target.write(b"" if _EXIT_CODE.match(held) else held)

    def _exit_code(self, code: int) -> int:
        if code or self._is_terminal or self._has_succeeded:
            return code
        self._channel.stderr.write(b"error: the connection to the pod was lost\n")
        return LOST

    def _resize(self, columns: int, rows: int, width: int, height: int) -> None:
        super()._resize(columns, rows, width, height)
        if self._process and self._process.returncode is None:
            self._process.send_signal(signal.SIGWINCH)  # it is not the terminal of its session

    def _signal(self, name: str) -> None:
        if name.isalnum():
            self._sending = asyncio.ensure_future(self._send_signal(name))

    async def _send_signal(self, name: str) -> None:
        """Signal the session's processes in the pod."""
        words = ("/bin/sh", "-c", _SIGNAL, "sh", name, str(self._number))
        process = await asyncio.create_subprocess_exec(
            *self._pod.exec(*words),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            env=self._pod.environment,
        )
        await process.wait()


def _begun(mark: bytes, data: bytes) -> bytes:
    """Return the part of a mark with which the data ends."""
    return next((mark[:size] for size in range(len(mark), 0, -1) if data.endswith(mark[:size])), b"")


async def serve(port: socket.socket, pod: PodCommands, proxy: str) -> None:
    keys, sessions, answering = authorized_keys(), dict[int, PodSession](), set[int]()
    await listen(
        lambda: PodSshServer(keys, pod, proxy, answering),
        lambda channel: PodSession(channel, pod, sessions),
        lambda channel: PodSftpServer(channel, pod),
        sock=port,
    )
    open(READY, "a").close()
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(0, ended.set)
    await ended.wait()
    for session in sessions.values():
        session.kill(signal.SIGKILL)
    os.killpg(0, signal.SIGKILL)  # with the shells of SFTP sessions


def main(port: str, name: str, namespace: str, proxy: str, kubeconfig: str, context: str) -> None:
    pod = PodCommands(Kubectl(kubeconfig, context), namespace, name)
    asyncio.run(serve(socket.socket(fileno=int(port)), pod, proxy))


if __name__ == "__main__":
    main(*sys.argv[1:])
