"""Read the files that a runner leaves in its task's folder: whether it has begun, is alive, or has ended."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import NamedTuple

from openpai_tasks.regular_files import open_regular
from openpai_tasks.server.engines.base import TaskExit

_MOST = 1 << 18  # bytes


def began(folder: Path) -> bool:
    return os.path.exists(f"{folder}/started")


def alive(folder: Path) -> bool:
    """Whether the runner holds the lock of ``started``."""
    try:
        handle = os.open(f"{folder}/started", os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as err:
        if err.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO):
            return False
        raise
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


class Started(NamedTuple):
    """The runner of a task, the boot id of its machine, and the process group of the task."""

    pid: int = 0
    boot: str | None = None  # None if there was no runner
    group: int | None = None  # None if it was not started


def started(folder: Path) -> Started:
    lines = _text(f"{folder}/started").splitlines()
    words = lines[0].split() if lines else []
    if len(words) < 2:
        return Started()
    group = int(lines[1]) if len(lines) > 1 and lines[1].isdigit() else None
    return Started(int(words[0]), words[2] if len(words) > 2 else "", group)


def read_exit(folder: Path) -> TaskExit | None:
    """Return the exit that the runner wrote.

    A file damaged by a power cut or by the job counts as missing.
    """
    try:
        values = {name: int(value) for name, value in map(str.split, _text(f"{folder}/exit").splitlines())}
        code, lost = values["code"], values["lost"]
        return TaskExit(
            user_code=code if code >= 0 else 128 - code,
            reason=f"{lost} bytes of its output could not be written" if lost else "",
            stopped=values["stopped"] == 1,
            ended=values["ended"],
        )
    except (KeyError, ValueError):
        return None


def _text(path: str | Path) -> str:
    try:
        with open_regular(path) as file:
            return file.read(_MOST).decode("utf-8", "replace")
    except FileNotFoundError:
        return ""


def last_line(path: Path) -> str:
    return next(reversed(_text(path).strip().splitlines()), "")
