"""Locks of GPUs, which all servers on this machine respect, whoever runs them.

A lock is a listening socket with a name in Linux's abstract namespace: it needs no file, works between users,
shows who has it, and ends with its process. A GPU has two. A server takes STARTING before it starts a task,
and releases it once the task's runner has RUNNING, so that the GPU is never free in between. A runner needs
RUNNING whatever its server did: no two tasks have a GPU at once, also after a server was killed.
"""

from __future__ import annotations

import _socket  # ``socket`` takes twice as long to load as Python to start
import contextlib
import errno
import os
import struct

FILE = "gpus"  # in a task's folder
STARTING, RUNNING = "starting", "running"
CREDENTIALS = "iII"  # process, user and group


def take(uuid: str, stage: str) -> _socket.socket | None:
    """Return the lock, which ends when it is closed; None if another process has it.

    Where there are no such names, it locks nothing.
    """
    lock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    lock.setblocking(False)
    try:
        lock.bind(_name(uuid, stage))
        lock.listen()
    except OSError as err:
        if err.errno == errno.EADDRINUSE:
            lock.close()
            return None
    return lock


def claim(uuid: str) -> _socket.socket | None:
    """Return the lock with which a server starts a task; None if another task or server has the GPU."""
    lock = take(uuid, STARTING)
    if lock is not None and _holder(uuid, RUNNING):
        lock.close()
        return None
    return lock


def holder(uuid: str) -> tuple[int, int] | None:
    """Return the process (0 if it is in another container) and the user who have the GPU."""
    return _holder(uuid, RUNNING) or _holder(uuid, STARTING)


def answer(lock: _socket.socket) -> None:
    """End a connection of ``holder``, as they would fill the queue."""
    with contextlib.suppress(OSError):
        os.close(lock._accept()[0])  # type: ignore[attr-defined]


def _holder(uuid: str, stage: str) -> tuple[int, int] | None:
    probe = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    probe.setblocking(False)
    try:
        probe.connect(_name(uuid, stage))
        size = struct.calcsize(CREDENTIALS)
        found = struct.unpack(CREDENTIALS, probe.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, size))
        return found[0], found[1]
    except BlockingIOError:  # the queue is full: its process has stopped answering
        return 0, -1
    except OSError:
        return None
    finally:
        probe.close()


def _name(uuid: str, stage: str) -> str:
    return f"\0openpai-tasks/gpu/{uuid}/{stage}"
