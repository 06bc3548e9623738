"""Processes of a task: start them, find them, signal them."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Mapping

TYPE_CHECKING = False  # loading ``typing`` takes long
if TYPE_CHECKING:
    from typing import NoReturn

UID = b"FC_POD_UID"  # the variable of every process of a task with its uid
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


def start_process(
    arguments: list[str] | list[bytes],
    variables: Mapping[bytes, bytes],
    folder: str,
    stdout: int,
    stderr: int,
    cgroup: int = -1,
) -> int:
    """Start a program in a new process group that dies with this process; return its pid.

    It has these outputs and default signals, and joins a cgroup through its handle. As little as possible
    happens after the fork, which copies each page of memory that it changes.
    """
    runner, nothing = os.getpid(), os.open(os.devnull, os.O_RDONLY)
    signal.pthread_sigmask(signal.SIG_BLOCK, CHANGED)  # until the program, or this process, can get them
    handlers = [signal.signal(number, signal.SIG_DFL) for number in CHANGED]
    try:
        pid = os.fork()
        if pid == 0:
            _become(arguments, variables, folder, (nothing, stdout, stderr), runner, cgroup)
    finally:
        for number, handler in zip(CHANGED, handlers, strict=True):
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, CHANGED)
        os.close(nothing)
    join_group(pid)
    return pid


def _become(
    arguments: list[str] | list[bytes],
    variables: Mapping[bytes, bytes],
    folder: str,
    handles: tuple[int, int, int],
    runner: int,
    cgroup: int,
) -> NoReturn:
    try:
        join_group(0)
        if prctl:
            prctl(PR_SET_PDEATHSIG, 9, 0, 0, 0)
            if os.getppid() != runner:
                os._exit(137)
        if cgroup >= 0:
            os.write(cgroup, b"0")
        for number, handle in enumerate(handles):
            os.dup2(handle, number)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.chdir(folder)
        os.execve(arguments[0], arguments, variables)
    except OSError as err:
        os.write(2, f"cannot run {os.fsdecode(arguments[0])}: {err.strerror}\n".encode())
    os._exit(126)


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
