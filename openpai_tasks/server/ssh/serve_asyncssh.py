"""Serve SSH for a task with asyncssh: a script that runs next to the task, in its folder.

    python -I serve_asyncssh.py SHELL

Its address and port are in the task's variables.
``root`` and the user of this process may log in, with a key in ``authorized_keys``; both become that user.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pty
import pwd
import signal
import struct
import sys
import termios
from asyncio.subprocess import Process
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

ADDRESS, PORT = "PAI_CONTAINER_HOST_IP", "PAI_CONTAINER_SSH_PORT"
FOLDER, READY, FAILED = "ssh", "ssh/ready", "ssh/failed"
LOOK_AFTER = 5.0  # seconds between checks whether the runner is alive, for systems that do not signal it
LINGER = 1.0  # seconds for the last output of a terminal that a leftover process keeps open
CHUNK = 1 << 16
LOOPBACK = ("localhost", "127.0.0.1", "::1")
ENTER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "enter.py")


def fail(reason: str) -> NoReturn:
    with open(f"{FAILED}.new", "w") as file:
        file.write(reason + "\n")
    os.rename(f"{FAILED}.new", FAILED)
    sys.exit(1)


try:
    import asyncssh
except ImportError as err:
    fail(f"asyncssh cannot be used: {err}")


class TaskSshServer(asyncssh.SSHServer):
    """Decides which users may log in, and what may be forwarded."""

    def __init__(self, keys: frozenset[bytes]) -> None:
        self._keys = keys
        self._users = {"root"}
        with contextlib.suppress(KeyError):
            self._users.add(pwd.getpwuid(os.geteuid()).pw_name)

    def begin_auth(self, username: str) -> bool:
        return True  # a key is required

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        return username in self._users and key.public_data in self._keys

    def connection_requested(self, dest_host: str, dest_port: int, orig_host: str, orig_port: int) -> bool:
        return True

    def server_requested(self, listen_host: str, listen_port: int) -> bool:
        return listen_host in LOOPBACK

    def unix_connection_requested(self, dest_path: str) -> bool:
        return True


class SftpServer(asyncssh.SFTPServer):
    """SFTP that ends with an exit code, without which scp reports a failure."""

    def exit(self) -> None:
        if self.channel.get_subsystem() == "sftp":
            self.channel.exit(0)


Streams = tuple[int, list[tuple[int, "asyncssh.SSHWriter[bytes]"]]]
"""The input of a process, and each of its outputs with where it is copied to."""


class SshSession:
    """One process in the task's environment, on one channel of a connection."""

    def __init__(self, channel: asyncssh.SSHServerProcess[bytes], argv: list[str]) -> None:
        self._channel = channel
        self._argv = argv
        self._terminal: int | None = None
        self._process: Process | None = None

    async def run(self) -> None:
        """Copy streams until the process ends or the client disconnects, then close them, like sshd."""
        starting = self._start() if self._channel.term_type is None else self._start_in_terminal()
        stdin, outputs = await starting
        feeding = asyncio.ensure_future(self._feed(stdin))
        # With return_exceptions, it waits for both, so that no copy outlives the session and its files.
        copying = asyncio.gather(
            *(self._copy(source, target) for source, target in outputs), return_exceptions=True
        )
        ending = asyncio.ensure_future(self._end(copying))
        leaving = asyncio.ensure_future(self._channel.wait_closed())
        try:
            await asyncio.wait([ending, leaving], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in (feeding, copying, ending, leaving):
                one.cancel()
            await asyncio.gather(feeding, copying, ending, leaving, return_exceptions=True)
            for handle in {stdin, *(source for source, _ in outputs)}:
                with contextlib.suppress(OSError):
                    os.close(handle)

    async def _start(self) -> Streams:
        pipes = [os.pipe() for _ in range(3)]
        (stdin, feed), (out, stdout), (err, stderr) = pipes
        await self._spawn((stdin, stdout, stderr), {})
        for handle in (feed, out, err):
            os.set_blocking(handle, False)
        return feed, [(out, self._channel.stdout), (err, self._channel.stderr)]

    async def _start_in_terminal(self) -> Streams:
        master, terminal = pty.openpty()
        self._terminal = master
        self._resize(*self._channel.term_size)
        self._argv.append("terminal")
        more = {"TERM": self._channel.term_type or "", "SSH_TTY": os.ttyname(terminal)}
        await self._spawn((terminal, terminal, terminal), more)
        os.set_blocking(master, False)
        return master, [(master, self._channel.stdout)]

    async def _spawn(self, files: tuple[int, int, int], more: Mapping[str, str]) -> None:
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._argv,
                stdin=files[0],
                stdout=files[1],
                stderr=files[2],
                env={**os.environ, **self._about(), **more},
                start_new_session=True,
            )
        finally:
            for handle in set(files):
                os.close(handle)

    def _about(self) -> dict[str, str]:
        peer, own = (self._channel.get_extra_info(name) for name in ("peername", "sockname"))
        found = {
            "SSH_CLIENT": f"{peer[0]} {peer[1]} {own[1]}",
            "SSH_CONNECTION": f"{peer[0]} {peer[1]} {own[0]} {own[1]}",
        }
        command = self._channel.command
        return found if command is None else {**found, "SSH_ORIGINAL_COMMAND": command}

    async def _feed(self, target: int) -> None:
        """Pass on what the client sends: input, window sizes and signals."""
        wanted = True
        while True:
            try:
                data = await self._channel.stdin.read(CHUNK)
                if not data:
                    break
                if wanted:
                    await write_all(target, data)
            except asyncssh.TerminalSizeChanged as change:
                self._resize(*change.term_size)
            except (asyncssh.SignalReceived, asyncssh.BreakReceived) as news:
                self._signal(getattr(news, "signal", "INT"))
            except OSError:
                wanted = False  # the process reads no more input
        if self._terminal is None:
            # The descriptor must stay in use until the session ends, so another file replaces the pipe.
            void = os.open(os.devnull, os.O_WRONLY)
            os.dup2(void, target)
            os.close(void)

    async def _copy(self, source: int, target: asyncssh.SSHWriter[bytes]) -> None:
        while data := await read_some(source):
            target.write(data)
            await target.drain()

    async def _end(self, copying: asyncio.Future[list[BaseException | None]]) -> None:
        assert self._process
        code = await self._process.wait()
        await asyncio.wait([copying], timeout=None if self._terminal is None else LINGER)
        if code < 0:
            self._channel.exit_with_signal(signal.Signals(-code).name.removeprefix("SIG"))
        else:
            self._channel.exit(self._exit_code(code))
        await self._channel.wait_closed()

    def _exit_code(self, code: int) -> int:
        """Return the exit code of the session, by that of its process, after all output."""
        return code

    def _resize(self, columns: int, rows: int, width: int, height: int) -> None:
        if self._terminal is not None:
            size = struct.pack("HHHH", *(number & 0xFFFF for number in (rows, columns, width, height)))
            fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, size)

    def _signal(self, name: str) -> None:
        number = getattr(signal, f"SIG{name}", None)
        if isinstance(number, signal.Signals):
            self.kill(number)

    def kill(self, number: signal.Signals) -> None:
        """Signal the process group, unless its first process has ended."""
        if self._process and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)


async def read_some(handle: int) -> bytes:
    loop = asyncio.get_running_loop()
    while True:
        try:
            return os.read(handle, CHUNK)
        except BlockingIOError:
            await _once(handle, loop.add_reader, loop.remove_reader)
        except OSError:
            return b""  # the other end of the terminal is closed


async def write_all(handle: int, data: bytes) -> None:
    loop = asyncio.get_running_loop()
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(handle, view) :]
        except BlockingIOError:
            await _once(handle, loop.add_writer, loop.remove_writer)


async def _once(handle: int, add: Callable[..., object], remove: Callable[[int], object]) -> None:
    """Wait until the handle is ready."""
    ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def set_ready() -> None:
        if not ready.done():
            ready.set_result(None)

    add(handle, set_ready)
    try:
        await ready
    finally:
        remove(handle)


def authorized_keys() -> frozenset[bytes]:
    keys = set()
    with open(f"{FOLDER}/authorized_keys") as file:
        for line in file:
            with contextlib.suppress(asyncssh.KeyImportError):
                keys.add(asyncssh.import_public_key(line.strip()).public_data)
    return frozenset(keys)


async def listen(
    server: Callable[[], TaskSshServer],
    session: Callable[[asyncssh.SSHServerProcess[bytes]], SshSession],
    sftp: Callable[[asyncssh.SSHServerChannel[bytes]], asyncssh.SFTPServer],
    **where: Any,
) -> None:
    """Begin to serve; OSError if the port is in use."""

    async def run(channel: asyncssh.SSHServerProcess[bytes]) -> None:
        if channel.subsystem:
            channel.exit(1)  # only sftp is supported
        else:
            await session(channel).run()

    await asyncssh.create_server(
        server,
        **where,
        server_host_keys=[os.path.abspath(f"{FOLDER}/host_key")],
        process_factory=run,
        encoding=None,
        line_editor=False,
        sftp_factory=sftp,
        allow_scp=True,
        password_auth=False,
        kbdint_auth=False,
        gss_host=None,
        agent_forwarding=False,
        x11_forwarding=False,
    )


async def serve(address: str, port: int, shell: str) -> None:
    runner, keys, ready = os.getppid(), authorized_keys(), os.path.abspath(READY)
    argv = [sys.executable, "-I", "-S", ENTER, os.getcwd(), shell]
    try:
        await listen(
            lambda: TaskSshServer(keys),
            lambda channel: SshSession(channel, [*argv]),
            SftpServer,
            host=address,
            port=port,
        )
    except OSError as err:
        fail(f"cannot listen on port {port}: {err.strerror}")
    os.chdir("work")  # where relative paths start
    os.close(os.open(ready, os.O_WRONLY | os.O_CREAT, 0o600))
    while os.getppid() == runner:
        await asyncio.sleep(LOOK_AFTER)


def main(shell: str) -> None:
    asyncio.run(serve(os.environ[ADDRESS], int(os.environ[PORT]), shell))


if __name__ == "__main__":
    main(*sys.argv[1:])
