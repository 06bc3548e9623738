"""The command line: run one task, or serve requests for runners."""

from __future__ import annotations

import gc
import os
import signal

from .files import SharedVariables
from .serving import RunnerPool
from .task import RunnerOptions, run


def detach() -> None:
    """Become a child of init, since tasks must not see the variables of the server's ancestors."""
    if os.fork():
        os._exit(0)
    os.write(1, b"%d" % os.getpid())


def main(arguments: list[str]) -> None:
    shell, grace, pipe, boot, *folder = arguments
    options = RunnerOptions(shell, float(grace), pipe, boot)
    if folder:
        run(folder[0], options, SharedVariables())
        return
    detach()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps the runners
    gc.disable()  # it would copy the memory that forks share
    RunnerPool(options).serve()
