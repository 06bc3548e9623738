"""Processes of a task: become them in a fork, find them, signal them."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable
from typing import NoReturn

from .files import MANY_VARIABLES, SharedVariables, spare_locale_search

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
CHANGED = (*HANDLED, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ)  # Python ignores the last two


def _find_prctl() -> Callable[..., int] | None:
    if sys.platform != "linux":
        return None
    try:
        import ctypes

        found: Callable[..., int] = ctypes.CDLL(None).prctl
        return found
    except (ImportError, OSError, AttributeError):
        return None


prctl = _find_prctl()


def become_task(shell: str, shared: SharedVariables, runner: int, stdout: int, stderr: int) -> NoReturn:
    """Turn this fork into the task's shell."""
    try:
        leave(runner, stdout, stderr)
        variables = shared.read_all()
        script = os.path.abspath("command")
        strict = ["-eu"] if os.path.basename(shell) == "sh" else ["-eu", "-o", "pipefail"]
        if len(strict) > 1 and len(variables) > MANY_VARIABLES:
            spare_locale_search(variables)
        os.chdir("work")
        os.execve(shell, [shell, *strict, script], variables)
    except OSError as err:
        os.write(2, f"cannot run {shell}: {err.strerror}\n".encode())
    os._exit(126)


def become_sidecar(arguments: list[bytes], shared: SharedVariables, runner: int) -> NoReturn:
    """Turn this fork into the sidecar of the task."""
    try:
        log = os.open("sidecar.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        leave(runner, log, log)
        os.execve(arguments[0], arguments, shared.read_all())
    except OSError as err:
        os.write(2, f"cannot run {os.fsdecode(arguments[0])}: {err.strerror}\n".encode())
    os._exit(126)


def leave(runner: int, stdout: int, stderr: int) -> None:
    """In a fork, form a process group that dies with the runner, with these outputs and default signals."""
    join_group(0)
    if prctl:
        prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != runner:
            os._exit(137)
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number in CHANGED:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)


def children() -> list[int]:
    """The child processes of this one, if the system lists them."""
    me = os.getpid()
    try:
        with open(f"/proc/{me}/task/{me}/children") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return [pid for pid in processes() if parent(pid) == me]


def processes() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def parent(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", errors="replace") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return 0


def join_group(pid: int) -> None:
    """Create a process group; both sides of a fork do so, and neither has to wait for the other."""
    with contextlib.suppress(OSError):
        os.setpgid(pid, pid)


def signal_group(group: int, number: int) -> bool:
    """Signal a process group; return False if it has no process left."""
    try:
        os.killpg(group, number)
    except OSError:
        return False
    return True
