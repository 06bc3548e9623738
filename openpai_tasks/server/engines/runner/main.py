"""The command line: run one task, or fork a runner for each folder on the input."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import signal
import sys
from typing import NoReturn

from .files import SharedVariables, claim, milliseconds, ring
from .task import CHUNK, Runner, RunnerOptions


def run(folder: str, options: RunnerOptions, shared: SharedVariables) -> None:
    """Become the runner of the task in ``folder``, unless there is or was one."""
    with contextlib.suppress(OSError):
        os.setsid()
    os.chdir(folder)
    runner = Runner(options, shared)
    runner.listen()
    lock = os.open("lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return
    if claim(f"{os.getpid()} {milliseconds()} {options.boot}\n"):
        runner.run()
        ring(options.bell, folder)


def run_in_fork(folder: str, options: RunnerOptions, shared: SharedVariables) -> NoReturn:
    """Run the task, and log a failure of the runner itself."""
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1):
            os.dup2(nothing, number)
        run(folder, options, shared)
    except BaseException:
        os.dup2(os.open("runner.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), 2)
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(0)


def detach() -> None:
    """Become a child of init, since tasks must not see the variables of the server's ancestors."""
    if os.fork():
        os._exit(0)
    os.write(1, b"%d" % os.getpid())


def serve(options: RunnerOptions) -> None:
    """Fork a runner for each folder on the input."""
    detach()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps the runners
    gc.disable()  # it would copy the memory that forks share
    shared, rest = SharedVariables(), b""
    while data := os.read(0, CHUNK):
        *folders, rest = (rest + data).split(b"\0")
        for folder in map(os.fsdecode, folders):
            shared.read(os.path.dirname(folder))  # before the fork, which inherits them
            if os.fork() == 0:
                run_in_fork(folder, options, shared)


def main(arguments: list[str]) -> None:
    shell, grace, bell, boot, *folder = arguments
    options = RunnerOptions(shell, float(grace), bell, boot)
    if folder:
        run(folder[0], options, SharedVariables())
    else:
        serve(options)
