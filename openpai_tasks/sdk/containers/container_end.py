"""What became of a container that was there: what the cluster knows of its job and its task by now."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import PaiError, Unreachable
from openpai_tasks.protocol import states
from openpai_tasks.protocol.models import JobInfo, TaskInfo

if TYPE_CHECKING:
    from openpai_tasks.sdk.containers.endpoints import Container, Reach

AGAIN = "run it again"
SETTLE = 3.0  # seconds within which a cluster knows that a container is gone
RUNNING = states.RUNNING


def attempt(job: JobInfo, task: TaskInfo) -> str:
    """The platform's own name for the container, else which try of the job and the task it is."""
    return task.container or f"{job.attempt}.{task.attempt}"


def explain_lost(client: Backend, found: Reach, container: Container, err: Unreachable) -> Unreachable:
    """What to say of a connection that broke: what became of the container, and what to do."""
    why, advice = settled(client, found, container)
    return Unreachable(f"{err}: {why}; {advice}" if why else f"{err}; {advice}")


def settled(client: Backend, found: Reach, container: Container) -> tuple[str, str]:
    """As ``fate``, with time for the cluster to notice."""
    limit = time.monotonic() + SETTLE
    why, advice = fate(client, found, container)
    while not why and time.monotonic() < limit:
        time.sleep(SETTLE / 10)
        why, advice = fate(client, found, container)
    return why, advice


def fate(client: Backend, found: Reach, container: Container) -> tuple[str, str]:
    """What became of it, nothing if all is as it was; and what to do."""
    try:
        now = client.job(found.job.key)
    except PaiError:
        return "", AGAIN
    logs = f"`job.logs {now.name}` shows its output"
    if now.final:
        return f"job {now.name!r} is {now.state} now", logs
    if now.state == states.STOPPING:
        return f"job {now.name!r} is {now.state}: it is ending", logs
    if now.state != RUNNING:
        return f"job {now.name!r} is {now.state} now", f"{AGAIN} when it runs"
    after = _task(now, container)
    if after is None or attempt(now, after) != container.attempt:
        return f"{container.label} of job {now.name!r} was started again meanwhile", AGAIN
    if after.state != RUNNING:
        advice = logs if after.state == states.SUCCEEDED else f"{AGAIN} when it runs"
        return f"{container.label} of job {now.name!r} is {after.state} now", advice
    return "", AGAIN


def explain_end(client: Backend, found: Reach, container: Container) -> str:
    """Why its task will have no container any more; nothing as long as it may have one."""
    limit = time.monotonic() + SETTLE
    why, is_sure = _end(client, found, container)
    while not is_sure and time.monotonic() < limit:
        time.sleep(SETTLE / 10)
        why, is_sure = _end(client, found, container)
    return why


def _end(client: Backend, found: Reach, container: Container) -> tuple[str, bool]:
    """How the job or the task ended, and whether that is all: a failure may have the job tried again."""
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
