"""What a runner leaves in its task's folder, read back: has it begun, does it live, how did it end."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from openpai_tasks.server.engines import Exit
from openpai_tasks.server.state.job_files import open_regular

END_OF_LOG = 1 << 18


def began(folder: Path) -> bool:
    return (folder / "started").exists()


def alive(folder: Path) -> bool:
    """Whether the runner holds its lock; only asked once it has begun, since asking takes the lock."""
    try:
        handle = os.open(folder / "lock", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def started(folder: Path) -> tuple[int, str | None]:
    """The runner's process and the machine's start it belongs to, or (0, None) when there was no runner."""
    words = _text(folder / "started").split()
    if len(words) < 2:
        return 0, None
    return int(words[0]), words[2] if len(words) > 2 else ""


def read_exit(folder: Path) -> Exit | None:
    """What the runner wrote at the end; a file that a power cut or the job itself damaged says nothing."""
    try:
        values = {name: int(value) for name, value in map(str.split, _text(folder / "exit").splitlines())}
        code, lost = values["code"], values["lost"]
        return Exit(
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
            return file.read(END_OF_LOG).decode("utf-8", "replace")
    except FileNotFoundError:
        return ""


def read_end(path: Path) -> bytes:
    """The last part of a log, as much as is worth reading for the cause of a failure."""
    try:
        with open_regular(path) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - END_OF_LOG))
            return file.read(END_OF_LOG)
    except FileNotFoundError:
        return b""


def read_number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdigit() else None


def last_line(path: Path) -> str:
    return next(reversed(_text(path).strip().splitlines()), "")
