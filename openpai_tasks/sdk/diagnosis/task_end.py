"""How a task ended: the exit code of its own command, and what it means."""

from __future__ import annotations

from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol import exit_codes
from openpai_tasks.protocol.models import JobInfo, TaskInfo


@dataclass(frozen=True)
class TaskEnd:
    """The exit code to show, None while there is none, and its meaning in a few words."""

    code: int | None
    meaning: str = ""


def task_end(job: JobInfo, task: TaskInfo) -> TaskEnd:
    """Return how a task ended: by its command's own exit code if that is known, else by the platform's."""
    if task.exit_code is None:
        return TaskEnd(None)
    own = _own_code(job, task)
    if own is not None and task.exit_code == exit_codes.USER_FAILURE:
        return TaskEnd(own, exit_meaning(own) or "the command failed")
    return TaskEnd(task.exit_code, exit_meaning(task.exit_code))


def job_end(job: JobInfo) -> TaskEnd:
    """Return how a job ended, likewise."""
    code = job.exit
    failed = "the command failed" if job.user_exit_code else ""
    return TaskEnd(code, exit_meaning(code) or failed)


def _own_code(job: JobInfo, task: TaskInfo) -> int | None:
    """Return the exit code of the command, which the platform replaces by one for all failures."""
    if task.own_exit_code is not None:
        return task.own_exit_code
    return job.user_exit_code if len(job.tasks) == 1 else None


def exit_meaning(code: int | None) -> str:
    """Return what an exit code means, in a few words; empty for success and unknown codes."""
    if not code or not exit_codes.is_known(code):
        return ""
    return str(exit_codes.exit_spec(code).get("reason", ""))
