"""Jobs as values: from PaddleCloud's lists of trainers and pods, and the document of a submission."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from openpai_tasks.backends.paddlecloud.answers import (
    COMPLETE,
    FAILED,
    PSERVER,
    TRAINER,
    PaddlePod,
    TrainerSet,
)
from openpai_tasks.backends.paddlecloud.job_records import JobRecord
from openpai_tasks.backends.paddlecloud.packages import trainer_role
from openpai_tasks.protocol import JobDocument, exit_codes, states
from openpai_tasks.protocol.models import EventInfo, JobInfo, TaskInfo

PENDING, RUNNING = "Pending", "Running"
PHASES = {
    PENDING: states.WAITING,
    RUNNING: states.RUNNING,
    "Succeeded": states.SUCCEEDED,
    "Failed": states.FAILED,
}


def job_info(
    user: str,
    namespace: str,
    trainers: TrainerSet,
    pods: Sequence[PaddlePod],
    record: JobRecord | None = None,
    document: JobDocument | None = None,
) -> JobInfo:
    """Return a job; its tasks have the names of the document's roles, if there is one."""
    state = _state(trainers, pods)
    failed = [pod for pod in pods if pod.exit_code] if state == states.FAILED else []
    code = failed[0].exit_code if failed else 0 if state == states.SUCCEEDED else None
    is_final = state in states.FINAL
    ended = [pod.completed for pod in pods if pod.completed is not None]
    started = [pod.started for pod in pods if pod.started is not None]
    tasks = tuple(_tasks(trainers, pods, document))
    return JobInfo(
        name=trainers.job,
        user=user,
        state=state,
        virtual_cluster=trainers.namespace or namespace,
        submitted=trainers.created or (record.submitted if record else trainers.started),
        launched=None if state == states.WAITING else min(started, default=trainers.started),
        completed=(trainers.completed or max(ended, default=None)) if is_final else None,
        exit_code=code,
        platform_exit_code=code,
        retries=0,
        attempt=0,
        gpus=sum(role.instances * role.gpu for role in document.roles) if document else None,
        task_count=len(tasks) or trainers.parallelism,
        tags=(),
        message=next((pod.message for pod in failed if pod.message), trainers.message if is_final else ""),
        tasks=tasks,
        events=tuple(_events(pods)),
    )


def killed_job(user: str, namespace: str, record: JobRecord, document: JobDocument | None = None) -> JobInfo:
    """Return a job that the cluster does not list any more, as it was killed."""
    tasks = tuple(
        TaskInfo(role.name, index, states.STOPPED, 0, "", {}, None, None, None, None, "")
        for role in (document.roles if document else ())
        for index in range(role.instances)
    )
    return dataclasses.replace(
        job_info(user, namespace, TrainerSet(record.name), (), record, document),
        state=states.STOPPED,
        platform_exit_code=exit_codes.STOPPED_BY_USER,
        task_count=len(tasks) or None,
        tasks=tasks,
    )


def pods_of(job: str, pods: Sequence[PaddlePod]) -> list[PaddlePod]:
    """Return the pods of one job among those of all."""
    names = tuple(f"{job}-{role}-" for role in (TRAINER, PSERVER))
    return [pod for pod in pods if pod.name.startswith(names) and "-" not in _random_part(pod.name)]


def _random_part(name: str) -> str:
    return next((name.rpartition(f"-{role}-")[2] for role in (TRAINER, PSERVER) if f"-{role}-" in name), "")


def _state(found: TrainerSet, pods: Sequence[PaddlePod]) -> str:
    if found.is_terminating:
        return states.STOPPING
    if found.end in (COMPLETE, FAILED):
        return states.SUCCEEDED if found.end == COMPLETE else states.FAILED
    if found.active:
        begun = any(pod.phase != PENDING for pod in pods) if pods else found.started is not None
        return states.RUNNING if begun else states.WAITING
    if found.completed or (found.parallelism and found.succeeded >= found.parallelism):
        return states.SUCCEEDED
    return states.FAILED if found.failed else states.WAITING


def _tasks(found: TrainerSet, pods: Sequence[PaddlePod], document: JobDocument | None) -> Iterator[TaskInfo]:
    trainer = trainer_role(document).name if document else TRAINER
    roles = {TRAINER: trainer, PSERVER: PSERVER}
    counts = dict.fromkeys(roles, 0)
    for pod in pods:
        role = PSERVER if pod.name.startswith(f"{found.job}-{PSERVER}-") else TRAINER
        yield _task(roles[role], counts[role], pod, is_stopping=found.is_terminating)
        counts[role] += 1


def _task(role: str, index: int, pod: PaddlePod, is_stopping: bool) -> TaskInfo:
    state = PHASES.get(pod.phase, states.UNKNOWN)
    if is_stopping and state not in states.FINAL:
        state = states.STOPPING
    return TaskInfo(
        role=role,
        index=index,
        state=state,
        attempt=0,
        ip=pod.ip,
        ports={},
        exit_code=pod.exit_code,
        platform_exit_code=pod.exit_code,
        launched=pod.started,
        completed=pod.completed,
        message=pod.message or pod.reason,
        container=pod.name,
    )


def _events(pods: Sequence[PaddlePod]) -> Iterator[EventInfo]:
    """Yield why pods wait, each reason once."""
    waiting = [pod for pod in pods if pod.phase == PENDING and (pod.reason or pod.message)]
    for reason, message in dict.fromkeys((pod.reason, pod.message) for pod in waiting):
        count = sum((pod.reason, pod.message) == (reason, message) for pod in waiting)
        yield EventInfo("Warning", reason or PENDING, message, count, "")
