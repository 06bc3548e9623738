"""Serve SSH for a task with sshd: a script that runs next to the task, in its folder.

    python -I -S serve_sshd.py SSHD

Its address and port are in the task's variables. It listens and starts an sshd for each connection, because
a listening sshd that is killed leaves its connections open. These end with this process, and this process
ends with the task's runner.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import NoReturn

ADDRESS, PORT = "PAI_CONTAINER_HOST_IP", "PAI_CONTAINER_SSH_PORT"
CONFIG, LOG, READY, FAILED = "ssh/sshd_config", "ssh/log", "ssh/ready", "ssh/failed"
LOOK_AFTER = 5.0  # seconds between checks whether the runner is alive, for systems that do not signal it
PR_SET_PDEATHSIG = 1
KEPT = ("FC_POD_UID",)  # identifies leftover processes; other variables could mislead sshd
VARIABLES = {"PATH": os.defpath, **{name: os.environ[name] for name in KEPT if name in os.environ}}


def main(program: str) -> None:
    runner = os.getppid()
    bound = bind(os.environ[ADDRESS], int(os.environ[PORT]))
    check(program)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps them
    os.close(os.open(READY, os.O_WRONLY | os.O_CREAT, 0o600))
    while os.getppid() == runner:
        with contextlib.suppress(TimeoutError):
            connection, _ = bound.accept()
            serve(program, connection)
    os.killpg(0, signal.SIGKILL)


def bind(address: str, port: int) -> socket.socket:
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((address, port))
        bound.listen(128)
    except OSError as err:
        fail(f"cannot listen on port {port}: {err.strerror}")
    bound.settimeout(LOOK_AFTER)
    return bound


def check(program: str) -> None:
    """Let sshd check its configuration before the first connection."""
    argv = [program, "-t", "-f", os.path.abspath(CONFIG)]
    try:
        done = subprocess.run(argv, env=VARIABLES, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired) as err:
        fail(f"cannot run {program}: {err}")
    if done.returncode:
        fail(f"sshd: {(done.stderr.strip().splitlines() or ['it does not say why'])[-1]}")


def serve(program: str, connection: socket.socket) -> None:
    """Start an sshd with the connection as its input and output."""
    keeper = os.getpid()
    try:
        if os.fork() == 0:
            become_sshd(program, keeper, connection)
    except OSError:
        os.write(2, b"cannot take a connection: too many processes\n")
    connection.close()


def become_sshd(program: str, keeper: int, connection: socket.socket) -> NoReturn:
    try:
        prctl = find_prctl()
        if prctl:
            prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() == keeper:
            connection.setblocking(True)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for number in (0, 1):
                os.dup2(connection.fileno(), number)
            log = os.path.abspath(LOG)
            os.execve(program, [program, "-i", "-f", os.path.abspath(CONFIG), "-E", log], VARIABLES)
    finally:
        os._exit(126)


def find_prctl() -> Callable[..., int] | None:
    if sys.platform != "linux":
        return None
    try:
        import ctypes

        found: Callable[..., int] = ctypes.CDLL(None).prctl
        return found
    except (ImportError, OSError, AttributeError):
        return None


def fail(reason: str) -> NoReturn:
    with open(f"{FAILED}.new", "w") as file:
        file.write(reason + "\n")
    os.rename(f"{FAILED}.new", FAILED)
    sys.exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
