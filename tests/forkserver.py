"""Run `inv`, `fab`, `pai`, embedded servers and portals by forking a process that has loaded all modules.

Each is still a process with its own environment, folder, streams and exit code; only its start takes
milliseconds instead of half a second. A process whose start matters is started as usual: see ``can_fork``.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import operator
import os
import pkgutil
import re
import select
import selectors
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, Any

from openpai_tasks import lazy_dataclass
from tests import forked_server, needs, starts

ENVIRONMENT = dict(os.environ)
ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent
ENTRY_POINTS = {
    "inv": ("invoke.main", "program.run"),
    "fab": ("fabric.main", "program.run"),
    "pai": ("openpai_tasks.__main__", "main"),
    "opai": ("openpai_tasks.__main__", "main"),
    "paddlecloud": ("openpai_tasks.paddlecloud.__main__", "main"),
}
OTHER_PROGRAMS = (
    "openpai_tasks.server",
    "openpai_tasks.magics",
    "openpai_tasks.api.pytest_plugin",
    "openpai_tasks.storage.fuse",  # which looks for libfuse when it is loaded
)
PARTS_OF_THE_SERVER = (  # with those that it loads later
    "openpai_tasks.server.command",
    "openpai_tasks.server.engines.containers",
    "openpai_tasks.server.engines.process",
    "openpai_tasks.server.engines.slurm.engine",
    "openpai_tasks.server.paddlecloud.app",
    "anyio._backends._asyncio",
    "uvicorn.lifespan.off",
    "openpai_tasks.portal.__main__",
    "tests.faults",
)
THIRD_PARTIES = (
    "fsspec",
    "rich.live",
    "rich.progress",
    "rich.table",
    "keyring.backends.fail",
    "paramiko",
    "requests",
    "yaml",
)

READ_AT_START = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_", "OPENSSL_", "OPENPAI_DISPLAY")
"""Prefixes of variables that Python, the C library or a module reads while it is loaded."""
READ_LATER = "PYTHON_KEYRING_BACKEND"
CODE = [sys.executable, "-c"]
FRESH = {"PYTHON_STARTS_FRESH": "1"}
"""Variables with which a command, and the embedded server that it starts, are not forked."""
PLAIN_LINE = re.compile(r"""(?:[\w ./:@%+,=-]|'[^']*'|"[^"$`\\]*")+""", re.ASCII)
PIPE_SIZE = 1 << 16
MESSAGE_SIZE = 1 << 17


def run(
    argv: Sequence[str], cwd: Path, environment: Mapping[str, str], input: str = "", timeout: float = 100
) -> subprocess.CompletedProcess[str]:
    """Run a command and capture its text; fork where that makes no difference."""
    argv = _without_shell(argv)
    if can_fork(argv, environment, input):
        return ForkServer.get().run(argv, cwd, environment, input, timeout)
    return subprocess.run(
        argv, cwd=cwd, env=environment, input=input, capture_output=True, text=True, timeout=timeout
    )


def can_fork(argv: Sequence[str], environment: Mapping[str, str], input: str) -> bool:
    """Return whether the program is one of ours, and nothing requires a fresh start of Python."""
    program = Path(shutil.which(argv[0], path=environment.get("PATH")) or "")
    return (
        program.parent == BIN
        and program.name in ENTRY_POINTS
        and _starts_alike(environment)
        and len(input.encode()) <= PIPE_SIZE
    )


def _without_shell(argv: Sequence[str]) -> Sequence[str]:
    """Return the words of a line for a shell if it would only split the line, as in most documents."""
    if len(argv) != 3 or tuple(argv[:2]) != ("sh", "-c"):
        return argv
    words = shlex.split(argv[2]) if PLAIN_LINE.fullmatch(argv[2]) else []
    return words if words and words[0] in ENTRY_POINTS else argv


def start(
    argv: Sequence[str],
    cwd: Path,
    environment: Mapping[str, str],
    has_controlling_terminal: bool = False,
    **options: Any,
) -> subprocess.Popen[Any]:
    """Start a command with pipes, unless options name other streams; fork where that makes no difference.

    The controlling terminal is the one that is its stdin.
    """
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    alike = options.keys() <= {*streams, "text", "start_new_session"} and _is_usual(options.get("stdin", -1))
    kind = Forked if alike and can_fork(argv, environment, "") else subprocess.Popen
    if has_controlling_terminal:
        options |= {"start_new_session": True, "preexec_fn": forked_server.take_terminal}
    return kind(argv, cwd=cwd, env=environment, **{"text": True, **streams, **options})


def _is_usual(stdin: IO[Any] | int) -> bool:
    """Return whether Python uses this stdin as it uses a pipe: it does not seek there."""
    return isinstance(stdin, int) and (stdin < 0 or os.isatty(stdin))


def start_code(code: str, environment: Mapping[str, str], **options: Any) -> subprocess.Popen[Any]:
    """Start ``python -c CODE``, which may find any module loaded; fork it where that makes no difference."""
    kind = Forked if _starts_alike(environment) else subprocess.Popen
    return kind([*CODE, code], env=environment, **options)


def start_server(*flags: str, stderr: IO[Any] | int = subprocess.DEVNULL) -> subprocess.Popen[str]:
    """Start ``python -m openpai_tasks.server``; fork it where that makes no difference."""
    kind = Forked if _starts_alike(os.environ) else subprocess.Popen
    null = subprocess.DEVNULL
    return kind([*forked_server.COMMAND, *flags], stdin=null, stdout=null, stderr=stderr, text=True)


def _starts_alike(environment: Mapping[str, str]) -> bool:
    return hasattr(os, "pidfd_open") and _read_at_start(environment) == _read_at_start(ENVIRONMENT)


def _read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    names = (name for name in environment if name.startswith(READ_AT_START) and name != READ_LATER)
    return {name: environment[name] for name in names}


class Forked(subprocess.Popen[Any]):
    """A process that the fork server forks, and waits for."""

    def _execute_child(self, argv: Sequence[str], *options: Any) -> None:
        _, _, _, _, cwd, environment, _, _, _, *pipes = options[:15]
        streams = [
            number if file == -1 else file for number, file in enumerate((pipes[0], pipes[3], pipes[5]))
        ]
        session = {
            "is_leader": bool(options[20]),
            "has_terminal": options[1] is forked_server.take_terminal,
        }
        self._connection = ForkServer.get().fork(
            argv, cwd or Path.cwd(), environment or os.environ, streams, **session
        )
        self.pid = int(self._connection.recv(PIPE_SIZE))
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]

    def _try_wait(self, flags: int) -> tuple[int, int]:
        if self._connection.fileno() < 0:  # collected together with this object, which ends the process
            return self.pid, signal.SIGKILL
        if not select.select([self._connection], [], [], 0 if flags else None)[0]:
            return 0, 0
        with self._connection:
            return self.pid, int(self._connection.recv(PIPE_SIZE))

    def _internal_poll(self, _deadstate: int | None = None) -> int | None:
        if self.returncode is None and self._waitpid_lock.acquire(blocking=False):  # type: ignore[attr-defined]
            try:
                pid, status = self._try_wait(os.WNOHANG)
                if pid:
                    self.returncode = os.waitstatus_to_exitcode(status)
            finally:
                self._waitpid_lock.release()  # type: ignore[attr-defined]
        return self.returncode


class ForkServer:
    """The client side: starts the fork server, which ends with this process."""

    @staticmethod
    @cache
    def get() -> ForkServer:
        return ForkServer()

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * MESSAGE_SIZE)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.forkserver", str(theirs.fileno()), forked_server.ROOM],
                cwd=ROOT,
                env=ENVIRONMENT,
                stdin=subprocess.PIPE,  # pipes, as for the commands: Python checks the type of its streams
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
            )
        atexit.register(self.close)
        if not self._control.recv(1):
            raise RuntimeError(f"the fork server did not start: {self.process.communicate()}")

    def close(self) -> None:
        self._control.close()
        self.process.communicate()

    def fork(
        self,
        argv: Sequence[str],
        cwd: Path,
        environment: Mapping[str, str],
        streams: Sequence[int],
        **session: bool,
    ) -> socket.socket:
        """Fork a process; return what sends its pid and its status, and ends it when closed."""
        words = [str(BIN / Path(argv[0]).name), *argv[1:]]
        request = {"argv": words, "cwd": os.path.abspath(cwd), "environment": dict(environment), **session}
        connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            socket.send_fds(self._control, [json.dumps(request).encode()], [theirs.fileno(), *streams])
        return connection

    def run(
        self, argv: Sequence[str], cwd: Path, environment: Mapping[str, str], input: str, timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as ``subprocess.run`` does, with captured text."""
        deadline = time.monotonic() + timeout
        (stdin, write), (out, stdout), (err, stderr) = os.pipe(), os.pipe(), os.pipe()
        with open(out, "rb", 0), open(err, "rb", 0):
            with open(stdin, "rb"), open(stdout, "wb"), open(stderr, "wb"), open(write, "wb") as to:
                connection = self.fork(argv, cwd, environment, [stdin, stdout, stderr])
                to.write(input.encode())
            with connection:
                try:
                    numbers, *texts = _read_all(deadline, connection.fileno(), out, err)
                except TimeoutError:
                    connection.shutdown(socket.SHUT_WR)  # the server kills the command and answers
                    while connection.recv(PIPE_SIZE):
                        pass
                    raise subprocess.TimeoutExpired(argv, timeout) from None
        if not numbers:
            raise RuntimeError(f"the fork server has ended: {self.process.communicate()}")
        code = os.waitstatus_to_exitcode(int(numbers.split()[-1]))
        plain = [text.decode().replace("\r\n", "\n").replace("\r", "\n") for text in texts]
        return subprocess.CompletedProcess(argv, code, *plain)


def _read_all(deadline: float, *sources: int) -> list[bytes]:
    """Read each file to its end."""
    found = {source: b"" for source in sources}
    with selectors.DefaultSelector() as waiting:
        for source in sources:
            waiting.register(source, selectors.EVENT_READ)
        while waiting.get_map():
            ready = waiting.select(max(0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError
            for key, _ in ready:
                chunk = os.read(key.fd, PIPE_SIZE)
                found[key.fd] += chunk
                if not chunk:
                    waiting.unregister(key.fd)
    return list(found.values())


# The server side: no threads, because it forks


class Supervisor:
    """Waits for forked processes and reports their status; kills those whose client stops waiting."""

    def __init__(self) -> None:
        self._waiting = select.poll()
        self._children: dict[int, tuple[int, socket.socket]] = {}

    def next_request(self, control: socket.socket) -> tuple[bytes, list[int]]:
        """Return the next request and its files, of which there are none after the client has exited."""
        self._waiting.register(control, select.POLLIN)
        while True:
            for file, _ in self._waiting.poll():
                if file == control.fileno():
                    message, files, _, _ = socket.recv_fds(control, MESSAGE_SIZE, 4)
                    return message, files
                if file in self._children:
                    self._report(file)
                else:
                    self._kill_child_of(file)

    def add(self, pid: int, client: socket.socket) -> None:
        process = os.pidfd_open(pid)
        self._children[process] = pid, client
        client.send(f"{pid}\n".encode())
        for file in (process, client.fileno()):
            self._waiting.register(file, select.POLLIN)

    def kill_all(self) -> None:
        for process in self._children:
            signal.pidfd_send_signal(process, signal.SIGKILL)

    def _report(self, process: int) -> None:
        pid, client = self._children.pop(process)
        _, status = os.waitpid(pid, 0)
        with suppress(KeyError):
            self._waiting.unregister(client)
        self._waiting.unregister(process)
        os.close(process)
        with client, suppress(BrokenPipeError):
            client.send(str(status).encode())

    def _kill_child_of(self, file: int) -> None:
        with suppress(KeyError):  # the process has ended at the same moment, and was reported
            self._waiting.unregister(file)
        for process, (_, client) in self._children.items():
            if client.fileno() == file:
                signal.pidfd_send_signal(process, signal.SIGKILL)


def main() -> None:
    """Fork a process for each request until the client exits; only the forked process returns."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _preload()
    supervisor = Supervisor()
    control = socket.socket(fileno=int(sys.argv[1]))
    control.send(b"!")
    while True:
        message, files = supervisor.next_request(control)
        if not files:
            return supervisor.kill_all()
        pid = os.fork()
        if not pid:
            break
        supervisor.add(pid, socket.socket(fileno=files[0]))
        for stream in files[1:]:
            os.close(stream)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    forked_server.take_streams(files[1:])
    _run(**json.loads(message))


def _preload() -> None:
    names = [*THIRD_PARTIES, *PARTS_OF_THE_SERVER, *(module for module, _ in ENTRY_POINTS.values())]
    for name in names:
        importlib.import_module(name)
    package = importlib.import_module("openpai_tasks")
    for found in pkgutil.walk_packages(package.__path__, "openpai_tasks."):
        if not found.name.startswith(OTHER_PROGRAMS) and not found.name.endswith(".__main__"):
            try:
                importlib.import_module(found.name)
            except ModuleNotFoundError as err:
                if err.name not in (*needs.MODULES, "aiohttp"):  # which adlfs brings
                    raise
    if threading.active_count() > 1:
        raise RuntimeError(f"importing has started threads: {threading.enumerate()}")
    _complete_dataclasses()
    gc.collect()
    gc.freeze()


def _complete_dataclasses() -> None:
    """Generate the methods of all data classes once; each command would generate those that it uses."""
    for fields in [found for found in gc.get_objects() if isinstance(found, lazy_dataclass.Fields)]:
        fields.complete()


def _run(
    argv: list[str],
    cwd: str,
    environment: dict[str, str],
    is_leader: bool = False,
    has_terminal: bool = False,
) -> None:
    """Become the server, the console script or the code."""
    os.chdir(cwd)
    if is_leader:
        os.setsid()
    if has_terminal:
        forked_server.take_terminal()
    if argv[: len(forked_server.COMMAND)] == forked_server.COMMAND:
        forked_server.become(argv, environment)
    is_buffered = sys.stderr.line_buffering  # PYTHONUNBUFFERED is not set
    for stream in (sys.stdin, sys.stdout):
        stream.reconfigure(line_buffering=is_buffered and stream.isatty())  # type: ignore[union-attr]
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    if path := environment.get(starts.VARIABLE):
        starts.record(path)
    if argv[: len(CODE)] == CODE:
        sys.argv[:], sys.path[0] = ["-c"], ""
        forked_server.exit_with(lambda: exec(argv[-1], {"__name__": "__main__"}))
    sys.argv[:] = argv
    sys.path[0] = str(BIN)
    module, attribute = ENTRY_POINTS[Path(argv[0]).name]
    forked_server.fork_servers()
    forked_server.exit_with(operator.attrgetter(attribute)(sys.modules[module]))


if __name__ == "__main__":
    main()
