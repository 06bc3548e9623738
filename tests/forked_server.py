"""Become an embedded server or a portal in a forked process, without loading modules."""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import gc
import logging
import os
import signal
import subprocess
import sys
import termios
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

COMMAND = [sys.executable, "-m", "openpai_tasks.server"]
PORTAL = [sys.executable, "-m", "openpai_tasks.portal"]
CHEAP = 2**4
"""The cost of a password's hash, which is slow on purpose: half of the start of a server."""
ROOM = " " * 4096
"""The last argument of the process that is forked: a server's command line is written over it."""


def fork_servers() -> None:
    """Let this process fork the servers that it starts by ``subprocess.Popen``."""
    usual = subprocess._fork_exec  # type: ignore[attr-defined]

    def fork_exec(argv: list[str], *options: Any) -> int:
        if argv[: len(COMMAND)] not in (COMMAND, PORTAL) or threading.active_count() > 1:
            return int(usual(argv, *options))
        _, _, _, cwd, variables, stdin, _, _, stdout, _, stderr, _, _, _, new_session = options[:15]
        pid = os.fork()
        if pid:
            return pid
        try:
            os.chdir(cwd or ".")
            take_streams([stdin, stdout, stderr])
            if new_session:
                os.setsid()
            pairs = (os.fsdecode(text).partition("=") for text in variables or [])
            become(argv, {name: value for name, _, value in pairs} if variables else dict(os.environ))
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)  # never return into the command

    subprocess._fork_exec = fork_exec  # type: ignore[attr-defined]


def take_streams(files: Sequence[int]) -> None:
    """Use these files as the standard streams, and close all others; -1 leaves a stream as it is."""
    for number, file in enumerate(files):
        if file != -1:
            os.dup2(file, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))


def take_terminal() -> None:
    """Make the terminal that is stdin the controlling one of this session."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def become(argv: list[str], environment: Mapping[str, str]) -> NoReturn:
    """Serve until the end of this process, which keeps nothing that it had before but its modules."""
    gc.freeze()  # what would close its file must not be collected: the number is another file's by now
    atexit._clear()
    logging.root.handlers.clear()
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _use(environment)
    program, arguments = argv[: len(COMMAND)], argv[len(COMMAND) :]
    main = _portal() if program == PORTAL else _server(arguments)
    time.tzset()
    _show(argv)
    sys.argv[:] = [str(Path(str(sys.modules[program[-1]].__file__)).with_name("__main__.py")), *arguments]
    sys.path[0] = os.getcwd()
    exit_with(main)


def _server(arguments: Sequence[str]) -> Callable[[], int]:
    from openpai_tasks.server import command, variables
    from openpai_tasks.server.accounts import users
    from openpai_tasks.server.api import app
    from tests import faults

    users.COST = CHEAP
    app.build = faults.build
    _use(variables.for_start(arguments))
    return command.main


def _portal() -> Callable[[], int]:
    from openpai_tasks.portal.__main__ import main
    from openpai_tasks.text import hints

    hints.use_program([])
    return main


def _use(environment: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)


def _show(argv: Sequence[str]) -> None:
    """Let the list of processes show this command line: that is how the server of a folder is found."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])  # of the arguments in memory
    words = b"".join(os.fsencode(word) + b"\0" for word in argv)
    if len(words) > end - start:
        raise ValueError("the command line of the server is too long")
    ctypes.memmove(start, words.ljust(end - start, b"\0"), end - start)


def exit_with(program: Callable[[], int | None]) -> NoReturn:
    """Exit like the interpreter, but without tearing down thousands of modules."""
    try:
        sys.exit(program())
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit((end.code or 0) & 0xFF)
