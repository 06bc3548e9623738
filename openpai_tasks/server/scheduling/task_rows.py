"""Write tasks to the database."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from openpai_tasks.protocol import states
from openpai_tasks.server.resources import task_demand
from openpai_tasks.server.state.database import Database
from openpai_tasks.server.state.folders import task_folder
from openpai_tasks.server.state.records import Job, Task
from openpai_tasks.server.state.state import now

if TYPE_CHECKING:
    from openpai_tasks.protocol import TaskRole

HOST = "127.0.0.1"
_COLUMNS = 27
_SAVE = (
    f"INSERT INTO tasks VALUES ({', '.join('?' * _COLUMNS)}) ON CONFLICT (uid) DO UPDATE SET"
    " state = excluded.state, sub_state = excluded.sub_state, launched = excluded.launched,"
    " gpus = excluded.gpus, ip = excluded.ip, ports = excluded.ports WHERE state = 'WAITING'"
)


def new_task(jobs: Path, job: Job, role: str, index: int, number: int) -> Task:
    """Return attempt ``number`` of one instance in the job's current attempt.

    ``jobs`` has the jobs' folders.
    """
    return Task(
        uid=str(uuid.uuid4()),
        job=job.key,
        job_attempt=job.attempt,
        role=role,
        index=index,
        attempt=number,
        state=states.WAITING,
        sub_state=states.CREATION_PENDING,
        created=now(),
        launched=None,
        completed=None,
        exit_code=None,
        user_exit_code=None,
        diagnostics="",
        ip=HOST,
        ports={},
        gpus=(),
        folder=task_folder(jobs, job.key, job.attempt, role, index, number),
    )


def save(database: Database, task: Task, roles: Sequence[TaskRole], virtual_cluster: str) -> None:
    """Insert the task, or update the state and the GPUs of one that waits."""
    place = [role.name for role in roles].index(task.role)
    need = task_demand(roles[place])
    database.write(
        _SAVE,
        [
            *(task.uid, task.job, task.job_attempt, task.role, place, task.index, task.attempt),
            *(task.state, task.sub_state, task.created, task.launched, task.completed),
            *(task.exit_code, task.user_exit_code, task.diagnostics, task.ip),
            *(json.dumps(task.ports), json.dumps(task.gpus), str(task.folder)),
            *(virtual_cluster, need.cpu, need.memory_mb, need.gpu, task.matched, task.log_end),
            *(task.peak_memory_mb, task.cpu_seconds),
        ],
    )


def update(database: Database, task: Task) -> None:
    """Update the task's state and exit."""
    database.write(
        "UPDATE tasks SET state = ?, sub_state = ?, completed = ?, exit_code = ?, user_exit_code = ?,"
        " diagnostics = ?, matched = ?, log_end = ?, peak_memory_mb = ?, cpu_seconds = ? WHERE uid = ?",
        [
            *(task.state, task.sub_state, task.completed, task.exit_code, task.user_exit_code),
            *(task.diagnostics, task.matched, task.log_end),
            *(task.peak_memory_mb, task.cpu_seconds, task.uid),
        ],
    )
