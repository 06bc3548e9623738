"""The files in the folder of a task on Slurm: its id, its batch, and where it runs."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from openpai_tasks.server.engines import task_state
from openpai_tasks.server.engines.base import TaskExit, TaskPlace
from openpai_tasks.server.engines.runner.slurm_task import PLACE, read_place
from openpai_tasks.server.engines.runner.task import STOP
from openpai_tasks.server.engines.slurm import programs
from openpai_tasks.server.state.records import Task

ID, BATCH = "slurm", "slurm.batch"
KILLED = (137, 143)  # by KILL or TERM
_IP = re.compile(r"[\w:][\w.:%-]{0,254}", re.ASCII)  # an address or a name, which a client may get


def slurm_id(task: Task) -> str:
    """Return the id of the task in Slurm; empty if it has none yet."""
    found = task_state.read_text(task.folder / ID).strip()
    return found if programs.ID.fullmatch(found) else ""


def look_again(folder: Path) -> None:
    """Let a network file system forget what it has not found in a folder, by changing the folder."""
    with contextlib.suppress(OSError):
        mark = folder / ".look"
        mark.touch()
        mark.unlink()


def is_foreign(task: Task, done: TaskExit) -> bool:
    """Whether something else may have stopped the task: its time limit, an administrator, its node."""
    return (done.stopped or done.user_code in KILLED) and not (task.folder / STOP).exists()


def job_of(id: str) -> str:
    """Return the id of the whole job, without the component; an element of an array is one by itself."""
    return re.sub(r"\+.*", "", id)


def is_step(task: Task) -> bool:
    """Whether the task runs in a step of a job with several tasks."""
    return "step" in batch_of(task.folder)


def batch_of(folder: Path) -> list[str]:
    """Return the batch of a task: its name, the id of the task in it, and ``step`` or ``batch``."""
    return task_state.read_text(folder / BATCH).split()


def place_of(task: Task) -> TaskPlace | None:
    """Return where the task runs; None if it has not begun."""
    try:
        ip, ports, gpus = read_place(task_state.read_text(task.folder / PLACE))
        began = os.lstat(task.folder / PLACE).st_mtime_ns // 1_000_000
        return TaskPlace(ip, ports, tuple(gpus), began) if _IP.fullmatch(ip) else None
    except (ValueError, FileNotFoundError):
        return None
