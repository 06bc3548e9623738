"""Read the files that a runner leaves in its task's folder: whether it has begun, is alive, or has ended."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from openpai_tasks.regular_files import open_regular
from openpai_tasks.server.engines.base import TaskExit

_MOST = 1 << 18  # bytes


def began(folder: Path) -> bool:
    return (folder / "started").exists()


def alive(folder: Path) -> bool:
    """Whether the runner holds its lock; the check takes the lock, so call it only after it has begun."""
    try:
        handle = os.open(folder / "lock", os.O_RDWR | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def started(folder: Path) -> tuple[int, str | None]:
    """Return the runner's pid and the machine's boot id, or (0, None) if there was no runner."""
    words = _text(folder / "started").split()
    if len(words) < 2:
        return 0, None
    return int(words[0]), words[2] if len(words) > 2 else ""


def read_exit(folder: Path) -> TaskExit | None:
    """Return the exit that the runner wrote.

    A file damaged by a power cut or by the job counts as missing.
    """
    try:
        values = {name: int(value) for name, value in map(str.split, _text(folder / "exit").splitlines())}
        code, lost = values["code"], values["lost"]
        return TaskExit(
            user_code=code if code >= 0 else 128 - code,
            reason=f"{lost} bytes of its output could not be written" if lost else "",
            stopped=values["stopped"] == 1,
            ended=values["ended"],
        )
    except (KeyError, ValueError):
        return None


def _text(path: Path) -> str:
    try:
        with open_regular(path) as file:
            return file.read(_MOST).decode("utf-8", "replace")
    except FileNotFoundError:
        return ""


def read_number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdigit() else None


def last_line(path: Path) -> str:
    return next(reversed(_text(path).strip().splitlines()), "")
