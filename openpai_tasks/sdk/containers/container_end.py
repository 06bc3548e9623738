"""Explain what happened to a container, from the current state of its job and task."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import PaiError, Unreachable
from openpai_tasks.hints import command
from openpai_tasks.protocol import states
from openpai_tasks.protocol.models import JobInfo, TaskInfo

if TYPE_CHECKING:
    from openpai_tasks.sdk.containers.endpoints import Container, Reach

RUN_AGAIN = "run it again"
SETTLE_SECONDS = 3.0  # time a cluster may take to notice that a container is gone
RUNNING = states.RUNNING


def attempt_id(job: JobInfo, task: TaskInfo) -> str:
    """Return the platform's container id, else the attempts of the job and the task."""
    return task.container or f"{job.attempt}.{task.attempt}"


def explain_lost(client: Backend, found: Reach, container: Container, err: Unreachable) -> Unreachable:
    """Return the error for a lost connection, with the container's state and advice."""
    why, advice = wait_for_state(client, found, container)
    return Unreachable(f"{err}: {why}; {advice}" if why else f"{err}; {advice}")


def wait_for_state(client: Backend, found: Reach, container: Container) -> tuple[str, str]:
    """Return ``current_state``, after giving the cluster time to notice a change."""
    limit = time.monotonic() + SETTLE_SECONDS
    why, advice = current_state(client, found, container)
    while not why and time.monotonic() < limit:
        time.sleep(SETTLE_SECONDS / 10)
        why, advice = current_state(client, found, container)
    return why, advice


def current_state(client: Backend, found: Reach, container: Container) -> tuple[str, str]:
    """Return what changed, empty if nothing did, and advice."""
    try:
        now = client.job(found.job.key)
    except PaiError:
        return "", RUN_AGAIN
    logs = f"see its output with `{command('job.logs', now.name)}`"
    if now.final:
        return f"job {now.name!r} is {now.state} now", logs
    if now.state == states.STOPPING:
        return f"job {now.name!r} is {now.state}", logs
    if now.state != RUNNING:
        return f"job {now.name!r} is {now.state} now", f"{RUN_AGAIN} when it runs"
    after = _task(now, container)
    if after is None or attempt_id(now, after) != container.attempt:
        return f"{container.label} of job {now.name!r} has been restarted", RUN_AGAIN
    if after.state != RUNNING:
        advice = logs if after.state == states.SUCCEEDED else f"{RUN_AGAIN} when it runs"
        return f"{container.label} of job {now.name!r} is {after.state} now", advice
    return "", RUN_AGAIN


def explain_end(client: Backend, found: Reach, container: Container) -> str:
    """Return why the task will have no container again; empty if it may have one."""
    limit = time.monotonic() + SETTLE_SECONDS
    why, is_sure = _ended_state(client, found, container)
    while not is_sure and time.monotonic() < limit:
        time.sleep(SETTLE_SECONDS / 10)
        why, is_sure = _ended_state(client, found, container)
    return why


def _ended_state(client: Backend, found: Reach, container: Container) -> tuple[str, bool]:
    """Return how the job or task ended, and whether that is certain: a failed task may be retried."""
    now = client.job(found.job.key)
    if now.final:
        return f"job {now.name} is {now.state}", True
    after = _task(now, container)
    others_run = now.state == RUNNING and any(task.state == RUNNING for task in now.tasks)
    if after is None or after.state not in states.FINAL or not others_run:
        return "", True
    return f"{container.label} of job {now.name} is {after.state}", after.state == states.SUCCEEDED


def _task(job: JobInfo, container: Container) -> TaskInfo | None:
    return next(
        (one for one in job.tasks if (one.role, one.index) == (container.role, container.index)), None
    )
