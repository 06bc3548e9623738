"""Run `inv`, `fab` and `pai` by forking a process that has loaded Python and all modules already.

Each command is still a process with its own environment, folder, streams and exit code; only its start takes
milliseconds instead of half a second. A command whose start matters is started as usual: see ``can_fork``.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import operator
import os
import pkgutil
import select
import selectors
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
from typing import NoReturn

ENVIRONMENT = dict(os.environ)
BIN = Path(sys.executable).parent
ENTRY_POINTS = {
    "inv": ("invoke.main", "program.run"),
    "fab": ("fabric.main", "program.run"),
    "pai": ("openpai_tasks.__main__", "main"),
}
OTHER_PROGRAMS = ("openpai_tasks.server", "openpai_tasks.magics")
THIRD_PARTIES = (
    "fsspec",
    "rich.live",
    "rich.progress",
    "rich.table",
    "keyring.backends.fail",
    "paramiko",
    "pathspec",
    "requests",
    "yaml",
)

READ_AT_START = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_", "OPENSSL_", "OPENPAI_DISPLAY")
"""Prefixes of variables that Python, the C library or a module reads while it is loaded."""
READ_LATER = "PYTHON_KEYRING_BACKEND"
PIPE_SIZE = 1 << 16


def run(
    argv: Sequence[str], cwd: Path, environment: Mapping[str, str], input: str = "", timeout: float = 100
) -> subprocess.CompletedProcess[str]:
    """Run a command and capture its text; fork where that makes no difference."""
    if can_fork(argv, environment, input):
        return ForkServer.get().run(argv, cwd, environment, input, timeout)
    return subprocess.run(
        argv, cwd=cwd, env=environment, input=input, capture_output=True, text=True, timeout=timeout
    )


def can_fork(argv: Sequence[str], environment: Mapping[str, str], input: str) -> bool:
    """Return whether the program is one of ours, and nothing requires a fresh start of Python."""
    program = Path(shutil.which(argv[0], path=environment.get("PATH")) or "")
    return (
        hasattr(os, "pidfd_open")
        and program.parent == BIN
        and program.name in ENTRY_POINTS
        and _read_at_start(environment) == _read_at_start(ENVIRONMENT)
        and len(input.encode()) <= PIPE_SIZE
    )


def _read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    names = (name for name in environment if name.startswith(READ_AT_START) and name != READ_LATER)
    return {name: environment[name] for name in names}


class ForkServer:
    """The client side: starts the server, which ends with this process."""

    @staticmethod
    @cache
    def get() -> ForkServer:
        return ForkServer()

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
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

    def run(
        self, argv: Sequence[str], cwd: Path, environment: Mapping[str, str], input: str, timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as ``subprocess.run`` does, with captured text."""
        deadline = time.monotonic() + timeout
        words = [str(BIN / Path(argv[0]).name), *argv[1:]]
        request = {"argv": words, "cwd": os.path.abspath(cwd), "environment": dict(environment)}
        (stdin, write), (out, stdout), (err, stderr) = os.pipe(), os.pipe(), os.pipe()
        connection, theirs = socket.socketpair()
        with connection, open(out, "rb", 0), open(err, "rb", 0):
            with theirs, open(stdin, "rb"), open(stdout, "wb"), open(stderr, "wb"), open(write, "wb") as to:
                socket.send_fds(self._control, [b"!"], [theirs.fileno(), stdin, stdout, stderr])
                to.write(input.encode())
            connection.sendall(json.dumps(request).encode() + b"\n")
            try:
                status, *texts = _read_all(deadline, connection.fileno(), out, err)
            except TimeoutError:
                connection.shutdown(socket.SHUT_WR)  # the server kills the command and answers
                connection.recv(1)
                raise subprocess.TimeoutExpired(argv, timeout) from None
        if not status:
            raise RuntimeError(f"the fork server has ended: {self.process.communicate()}")
        code = os.waitstatus_to_exitcode(int(status))
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


def main() -> None:
    """Fork a supervisor for each command until the client exits; only the command itself returns."""
    for number in (signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, signal.SIG_IGN)
    _preload()
    with socket.socket(fileno=int(sys.argv[1])) as control:
        control.send(b"!")
        while True:
            _, files, _, _ = socket.recv_fds(control, 1, 4)
            if not files:
                return
            if not os.fork():
                break
            for file in files:
                os.close(file)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with socket.socket(fileno=files[0]) as client, client.makefile("rb") as lines:
        request = json.loads(lines.readline())
        pid = os.fork()
        if pid:
            for stream in files[1:]:
                os.close(stream)
            _supervise(pid, client)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, stream in enumerate(files[1:]):
        os.dup2(stream, number)
        os.close(stream)
    _run(**request)


def _preload() -> None:
    names = [*THIRD_PARTIES, *(module for module, _ in ENTRY_POINTS.values())]
    for name in names:
        importlib.import_module(name)
    package = importlib.import_module("openpai_tasks")
    for found in pkgutil.walk_packages(package.__path__, "openpai_tasks."):
        if not found.name.startswith(OTHER_PROGRAMS) and not found.name.endswith(".__main__"):
            importlib.import_module(found.name)
    if threading.active_count() > 1:
        raise RuntimeError(f"importing has started threads: {threading.enumerate()}")
    gc.collect()
    gc.freeze()


def _supervise(pid: int, client: socket.socket) -> NoReturn:
    """Wait for a command and report its status; kill it if the client stops waiting."""
    process = os.pidfd_open(pid)
    ready, _, _ = select.select([process, client], [], [])
    if process not in ready:
        signal.pidfd_send_signal(process, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    with suppress(BrokenPipeError):
        client.sendall(str(status).encode())
    os._exit(0)


def _run(argv: list[str], cwd: str, environment: dict[str, str]) -> None:
    """Become the console script."""
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    os.chdir(cwd)
    sys.argv[:] = argv
    sys.path[0] = str(BIN)
    module, attribute = ENTRY_POINTS[Path(argv[0]).name]
    try:
        sys.exit(operator.attrgetter(attribute)(sys.modules[module])())
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        # Exit like the interpreter, but without tearing down thousands of modules.
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit((end.code or 0) & 0xFF)


if __name__ == "__main__":
    main()
