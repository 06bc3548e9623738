"""Read the files that a runner leaves in its task's folder: whether it has begun, is alive, or has ended."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from pathlib import Path
from typing import NamedTuple, TypedDict

from openpai_tasks.files.regular import open_regular
from openpai_tasks.server.engines.base import TaskExit
from openpai_tasks.server.engines.container_supervisor import OUT_OF_MEMORY

_MOST = 1 << 18  # bytes


def has_begun(folder: Path) -> bool:
    return os.path.exists(f"{folder}/started")


def is_alive(folder: Path) -> bool:
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


class RunnerInfo(NamedTuple):
    """The runner of a task, the boot id of its machine, and the process group of the task."""

    pid: int = 0
    boot: str | None = None  # None if there was no runner
    group: int | None = None  # None if it was not started


def read_started(folder: Path) -> RunnerInfo:
    lines = read_text(f"{folder}/started").splitlines()
    words = lines[0].split() if lines else []
    if len(words) < 2:
        return RunnerInfo()
    group = _process_id(lines[1]) if len(lines) > 1 else 0
    return RunnerInfo(_process_id(words[0]), words[2] if len(words) > 2 else "", group or None)


def _process_id(word: str) -> int:
    """Return a process id; 0 for other text of the job, as ``kill`` takes -1 for all processes."""
    return int(word) if word.isascii() and word.isdigit() and len(word) < 10 else 0


def read_exit(folder: Path) -> TaskExit | None:
    """Return the exit that the runner wrote.

    A file damaged by a power cut or by the job counts as missing.
    """
    try:
        pairs = map(str.split, read_text(f"{folder}/exit").splitlines())
        values = {name: int(value) for name, value in pairs if len(value) < 19}  # the database has 64 bits
        code, lost = values["code"], values["lost"]
        notes = [f"{lost} bytes of its output could not be written"] if lost else []
        if kills := values.get("kills"):
            notes.insert(0, _out_of_memory(values["limit"], values["reached"]))
        return TaskExit(
            user_code=code if code >= 0 else 128 - code,
            reason="; ".join(notes),
            platform_code=OUT_OF_MEMORY if kills and code else None,
            stopped=values["stopped"] == 1,
            ended=values["ended"],
            **usage(values.get("peak"), values.get("cpu")),
        )
    except (KeyError, ValueError):
        return None


def last_sign(folder: Path) -> int | None:
    """Return when a runner that wrote no exit last wrote something, in ms; None if it never did."""
    times = []
    for path in (folder / "started", *folder.glob("logs/*")):
        with contextlib.suppress(OSError):
            times.append(path.lstat().st_mtime_ns // 1_000_000)
    return max(times, default=None)


def _out_of_memory(limit: int, reached: int) -> str:
    amounts = f"{reached >> 20} MB of the {limit >> 20} MB that it asked for"
    return f"a process was killed for memory: the task reached {amounts}"


class Usage(TypedDict):
    """What a task used, as fields of TaskExit and Task."""

    peak_memory_mb: int | None
    cpu_seconds: float | None


def usage(peak: int | None, cpu: int | None) -> Usage:
    """Return what a task used, given bytes and milliseconds."""
    return {
        "peak_memory_mb": None if peak is None else -(-peak >> 20),
        "cpu_seconds": None if cpu is None else cpu / 1000,
    }


def read_text(path: str | Path) -> str:
    """Return a file of the task's folder; empty if it is missing, or the job has put something else there."""
    try:
        with open_regular(path) as file:
            return file.read(_MOST).decode("utf-8", "replace")
    except FileNotFoundError:
        return ""


def last_line(path: Path) -> str:
    return next(reversed(read_text(path).strip().splitlines()), "")
