"""Jobs and tasks as the API shows them (the shapes of OpenPAI 1.8)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from openpai_tasks.protocol import routes, states
from openpai_tasks.protocol.exits import exit_spec
from openpai_tasks.server.machine import Machine
from openpai_tasks.server.records import Attempt, Event, Job, Task
from openpai_tasks.server.web.kubernetes import timestamp


def summary(job: Job) -> dict[str, Any]:
    """A job as a row of the list."""
    return {
        "debugId": states.debug_id(job.key),
        "name": job.name,
        "username": job.user,
        **_standing(job),
        "completedTime": job.completed,
        "appExitCode": job.exit_code,
        "virtualCluster": job.virtual_cluster,
        "totalGpuNumber": job.gpus,
        "totalTaskNumber": job.tasks,
        "totalTaskRoleNumber": job.roles,
        "tags": list(job.tags),
        "jobPriority": job.priority,
    }


def detail(job: Job, attempt: Attempt, roles: dict[str, Any]) -> dict[str, Any]:
    """A job with one of its attempts and that attempt's tasks."""
    return {
        "debugId": states.debug_id(job.key),
        "name": job.name,
        "tags": list(job.tags),
        "jobStatus": {
            "username": job.user,
            **_standing(job),
            "completedTime": job.completed,
            "attemptId": attempt.id,
            "attemptState": attempt.state,
            "appId": f"{states.debug_id(job.key)}_{attempt.id}",
            "appProgress": int(attempt.state in states.FINAL),
            "appTrackingUrl": "",
            "appCreatedTime": attempt.created,
            "appLaunchedTime": attempt.launched,
            "appCompletedTime": attempt.completed,
            "appExitCode": attempt.exit_code,
            **_exit(attempt),
            "virtualCluster": job.virtual_cluster,
        },
        "taskRoles": roles,
    }


def task_roles(machine: Machine, tasks: Iterable[tuple[Task, Task]]) -> dict[str, Any]:
    """Task statuses by role, from the latest and the first try of each task."""
    roles: dict[str, Any] = {}
    for latest, first in tasks:
        name = states.role_key(latest.role)
        role = roles.setdefault(name, {"taskRoleStatus": {"name": name}, "taskStatuses": []})
        role["taskStatuses"].append({**_task(latest, first), **_try(machine, latest)})
    return roles


def task_detail(machine: Machine, job: Job, tries: list[Task]) -> dict[str, Any]:
    """One task with all its tries, the newest first."""
    latest, first = tries[0], tries[-1]
    return {
        "username": job.user,
        "jobName": job.name,
        "jobAttemptId": latest.job_attempt,
        "taskRoleName": states.role_key(latest.role),
        **_task(latest, first),
        "attempts": [_try(machine, task) for task in tries],
    }


def job_attempt(job: Job, attempt: Attempt, roles: dict[str, Any], latest: bool) -> dict[str, Any]:
    """An attempt in the older shape."""
    spec = _spec(attempt.exit_code)
    return {
        "jobName": job.name,
        "frameworkName": job.key,
        "uid": f"{states.debug_id(job.key)}_{attempt.id}",
        "userName": job.user,
        "state": attempt.state,
        "originState": attempt.sub_state,
        "attemptIndex": attempt.id,
        "jobStartedTime": job.submitted,
        "attemptStartedTime": attempt.created,
        "attemptCompletedTime": attempt.completed,
        "exitCode": attempt.exit_code,
        "exitPhrase": spec["phrase"] if spec else None,
        "exitType": spec["type"] if spec else None,
        "exitDiagnostics": {
            "diagnosticsSummary": attempt.diagnostics,
            "runtime": _runtime(attempt),
            "launcher": attempt.diagnostics,
        },
        **_exit(attempt),
        "totalGpuNumber": job.gpus,
        "totalTaskNumber": job.tasks,
        "totalTaskRoleNumber": job.roles,
        "taskRoles": roles,
        "isLatest": latest,
    }


def event(machine: Machine, one: Event) -> dict[str, Any]:
    framework = states.debug_id(one.job)
    role = states.role_key(one.role) if one.role is not None else None
    return {
        "uid": one.uid,
        "frameworkName": framework,
        "podUid": one.task,
        "taskroleName": role,
        "taskName": None if role is None else f"{framework}-{role}-{one.index}",
        "taskIndex": one.index,
        "type": one.type,
        "reason": one.reason,
        "message": one.message,
        "firstTimestamp": timestamp(one.first),
        "lastTimestamp": timestamp(one.last),
        "count": one.count,
        "sourceComponent": "scheduler",
        "sourceHost": machine.name,
    }


def _standing(job: Job) -> dict[str, Any]:
    """Where the job stands, as list and detail both say it."""
    return {
        "state": job.state,
        "subState": job.sub_state,
        "executionType": job.execution,
        "retries": job.user_retries + job.platform_retries,
        "retryDetails": {"user": job.user_retries, "platform": job.platform_retries, "resource": 0},
        "retryDelayTime": None,
        "submissionTime": job.submitted,
        "createdTime": job.submitted,
        "launchedTime": job.launched,
    }


def _spec(code: int | None) -> dict[str, Any] | None:
    return None if code is None else exit_spec(code)


def _exit(attempt: Attempt) -> dict[str, Any]:
    spec = _spec(attempt.exit_code)
    messages = {"container": None, "runtime": _runtime(attempt), "launcher": attempt.diagnostics}
    role = attempt.trigger_role
    return {
        "appExitSpec": spec,
        "appExitDiagnostics": attempt.diagnostics or None,
        "appExitMessages": messages if spec else None,
        "appExitTriggerMessage": attempt.diagnostics or None,
        "appExitTriggerTaskRoleName": states.role_key(role) if role is not None else None,
        "appExitTriggerTaskIndex": attempt.trigger_index,
        "appExitType": spec["type"] if spec else None,
    }


def _runtime(attempt: Attempt) -> dict[str, Any] | None:
    """What the task's runner said of a command that failed, above all its own exit code."""
    if not attempt.exit_code or attempt.user_exit_code is None:
        return None
    return {
        "exitCode": attempt.exit_code,
        "originUserExitCode": attempt.user_exit_code,
        "errorLogs": {"user": "", "platform": ""},
        "name": exit_spec(attempt.exit_code)["phrase"],
    }


def _task(latest: Task, first: Task) -> dict[str, Any]:
    return {
        "taskIndex": latest.index,
        "taskUid": first.uid,
        "taskState": latest.state,
        "retries": latest.attempt,
        "accountableRetries": latest.attempt,
        "createdTime": first.created,
        "launchedTime": first.launched,
        "completedTime": latest.completed,
    }


def _try(machine: Machine, task: Task) -> dict[str, Any]:
    return {
        "attemptId": task.attempt,
        "attemptState": task.state,
        "currentAttemptCreatedTime": task.created,
        "currentAttemptLaunchedTime": task.launched,
        "currentAttemptCompletedTime": task.completed,
        "containerId": task.uid,
        "containerIp": task.ip,
        "containerNodeName": machine.name,
        "containerPorts": {label: ",".join(map(str, ports)) for label, ports in task.ports.items()},
        "containerGpus": None,
        "containerLog": _log_path(task),
        "containerExitCode": task.exit_code,
        "containerExitSpec": _spec(task.exit_code),
        "containerExitDiagnostics": task.diagnostics or None,
    }


def _log_path(task: Task) -> str:
    return routes.TASK_LOGS.format(
        job=task.job,
        attempt=task.job_attempt,
        role=states.role_key(task.role),
        index=task.index,
        task_attempt=task.attempt,
    )
