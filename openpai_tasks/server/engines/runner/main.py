"""The command line: run one task, or fork a runner for each task that is asked for."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys

from .files import SharedVariables, when_possible
from .task import CHUNK, RunnerOptions, run

TYPE_CHECKING = False  # loading ``typing`` takes long
if TYPE_CHECKING:
    from typing import NoReturn


def main(arguments: list[str]) -> None:
    shell, grace, pipe, boot, *folder = arguments
    options = RunnerOptions(shell, float(grace), pipe, boot)
    if folder:
        run(folder[0], options, SharedVariables())
        return
    detach()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps the runners
    gc.disable()  # it would copy the memory that forks share
    serve(options)


def detach() -> None:
    """Become a child of init, since tasks must not see the variables of the server's ancestors."""
    if os.fork():
        os._exit(0)
    os.write(1, b"%d" % os.getpid())


def serve(options: RunnerOptions) -> None:
    """Fork a runner for each folder, until the input ends."""
    shared, rest = SharedVariables(), b""
    while data := os.read(0, CHUNK):
        *folders, rest = (rest + data).split(b"\0")
        for folder in map(os.fsdecode, folders):
            with contextlib.suppress(OSError):  # the fork reads them again, and waits for the disk
                shared.read(os.path.dirname(folder))  # before the fork, which inherits them
            if when_possible(os.fork) == 0:
                run_in_fork(folder, options, shared)


def run_in_fork(folder: str, options: RunnerOptions, shared: SharedVariables) -> NoReturn:
    """Run the task, and log a failure of the runner itself."""
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1):
            os.dup2(nothing, number)
        run(folder, options, shared)
    except BaseException:
        log = os.path.join(folder, "runner.log")  # also if it is not the working folder yet
        os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), 2)
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(0)
