"""The completion policy of the job protocol: when an attempt is over, and its result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol import TaskRole, exit_codes, states
from openpai_tasks.server.state.records import Task


@dataclass(frozen=True)
class AttemptResult:
    """The result of an attempt, and the task that decided it, as in the record of the attempt."""

    exit_code: int
    user_exit_code: int | None
    diagnostics: str
    trigger_role: str | None = None
    trigger_index: int | None = None
    matched: str = ""
    log_end: str = ""
    cause: str = ""


def judge(roles: Sequence[TaskRole], tasks: Sequence[Task]) -> AttemptResult | None:
    """Return the result by the latest attempt of every task, or None while nothing is decided.

    Enough failures in a role fail the attempt; enough successes in a role end it successfully, and so does
    the end of all tasks without either.
    """
    for role in roles:
        failed = _tasks_in_state(tasks, role.name, states.FAILED)
        if 1 <= role.min_failed <= len(failed):
            return task_failure(failed[role.min_failed - 1])
    for role in roles:
        succeeded = _tasks_in_state(tasks, role.name, states.SUCCEEDED)
        if 1 <= role.min_succeeded <= len(succeeded):
            last = succeeded[role.min_succeeded - 1]
            return AttemptResult(0, 0, f"enough tasks of {role.name} succeeded", role.name, last.index)
    if all(task.state in states.FINAL for task in tasks):
        return AttemptResult(0, 0, "all tasks have ended")
    return None


def may_be_over(roles: Sequence[TaskRole], counts: Mapping[tuple[str, str], int]) -> bool:
    """Check cheaply, for very many tasks; if False, ``judge`` would return None."""
    if all(state in states.FINAL for _, state in counts):
        return True
    return any(
        1 <= role.min_failed <= counts.get((role.name, states.FAILED), 0)
        or 1 <= role.min_succeeded <= counts.get((role.name, states.SUCCEEDED), 0)
        for role in roles
    )


def may_retry(exit_code: int, tries: int, allowed: int) -> bool:
    """Whether to retry after a failure.

    A cluster of many machines retries transient failures forever. Here they would meet the same machine, so
    they also count against the number that the user allowed; a negative number means no limit.
    """
    if exit_code == 0 or exit_code in states.STOP_CODES:
        return False
    if allowed < 0:
        return True
    return tries < allowed and exit_codes.reaction(exit_code) != "NEVER_RETRY"


def retry_delay(tries: int) -> int:
    """Return the milliseconds to wait before the next attempt: none at first, then longer, up to a minute."""
    return 0 if tries < 3 else min(1000 * 2 ** (tries - 3), 60_000)


def is_platform_failure(exit_code: int) -> bool:
    return bool(exit_codes.exit_spec(exit_code)["type"] == "PLATFORM_FAILURE")


def _tasks_in_state(tasks: Sequence[Task], role: str, state: str) -> list[Task]:
    found = [task for task in tasks if task.role == role and task.state == state]
    return sorted(found, key=lambda task: (task.completed or 0, task.index))


def task_failure(task: Task) -> AttemptResult:
    """Return the result of an attempt that this task has failed."""
    code = task.exit_code if task.exit_code is not None else 256
    words = f"task {task.role}-{task.index} {task.diagnostics}"
    found = (task.matched, task.log_end, task.cause)
    return AttemptResult(code, task.user_exit_code, words, task.role, task.index, *found)
