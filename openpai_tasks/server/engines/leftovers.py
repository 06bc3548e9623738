"""Find and kill the processes of a task whose runner was killed."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

from openpai_tasks.server.engines.runner.processes import UID

MARK = UID.decode()

_PROC = Path("/proc")
_ROUNDS = 50


def kill(uid: str, group: int | None) -> bool:
    """Kill every process with the uid in its environment or, if that is unreadable, the process group.

    Return whether any was still running, as far as that is known.
    """
    if not (_PROC / "self/environ").exists():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if group is not None:
                os.killpg(group, signal.SIGKILL)
        return True
    for number in range(_ROUNDS):
        found = marked_processes(uid)
        if not found:
            return number > 0
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    return True


def kill_monitor(container: str) -> None:
    """Kill the conmon of a container, and what it has started.

    If podman is killed while it starts a container, it does not know them.
    """
    for entry in _PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if os.path.basename(words[0]) == "conmon" and container in words:
                children = (entry / "task" / entry.name / "children").read_text().split()
                for pid in (*children, entry.name):
                    os.kill(int(pid), signal.SIGKILL)


def marked_processes(uid: str) -> list[int]:
    """Return the processes with the uid in their environment."""
    mark = f"{MARK}={uid}".encode()
    return [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit() and _has_mark(entry, mark)]


def _has_mark(entry: Path, mark: bytes) -> bool:
    try:
        return mark in (entry / "environ").read_bytes().split(b"\0")
    except OSError:  # ended, or owned by another user
        return False
