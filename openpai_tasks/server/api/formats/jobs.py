"""Jobs and tasks in the format of OpenPAI 1.8, without the keys that the profile omits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol import states
from openpai_tasks.protocol.json_text import whole_characters
from openpai_tasks.server.api.formats.kubernetes import timestamp
from openpai_tasks.server.api.formats.profiles import Profile
from openpai_tasks.server.engines.base import EngineCapacity
from openpai_tasks.server.state.dependencies import DependencyState
from openpai_tasks.server.state.records import RELEASED, Attempt, Event, Job, Task

SHORT_TASK = (
    "taskIndex",
    "taskState",
    "containerId",
    "containerIp",
    "containerGpus",
    "containerLog",
    "containerExitCode",
)


@dataclass(frozen=True)
class ViewContext:
    """What answers depend on besides the job: the profile, the nodes, and this site's address."""

    profile: Profile
    capacity: EngineCapacity
    site: str
    ssh_host: str = ""  # of the tasks' SSH services, if it is not the host of the task


def summary(profile: Profile, job: Job) -> dict[str, Any]:
    """Return a job as a row of the list."""
    body = {
        "debugId": states.debug_id(job.key),
        "name": job.name,
        "username": job.user,
        **_common(profile, job),
        "completedTime": job.completed,
        "appExitCode": _job_code(profile, job.exit_code),
        "virtualCluster": job.virtual_cluster,
        "totalGpuNumber": job.gpus,
        "totalTaskNumber": job.tasks,
        "totalTaskRoleNumber": job.roles,
        "tags": list(job.tags),
        "jobPriority": job.priority,
    }
    if job.user_exit_code is not None:
        body["userExitCode"] = job.user_exit_code
    if job.cause:
        body["cause"] = job.cause
    if job.kept_until:
        body["keptUntil"] = job.kept_until
    return profile.without("summary", body)


def detail(
    profile: Profile,
    job: Job,
    attempt: Attempt,
    roles: dict[str, Any],
    environment: dict[str, str],
    dependencies: tuple[list[DependencyState], list[DependencyState]] = ([], []),
    place: str = "",
) -> dict[str, Any]:
    """Return a job with one of its attempts and its tasks, its submitter's variables, and its place.

    ``dependencies`` are those of the job, and those of others on it.
    """
    body: dict[str, Any] = {
        "debugId": states.debug_id(job.key),
        "name": job.name,
        "tags": list(job.tags),
        "jobStatus": profile.without("status", _status(profile, job, attempt)),
        "taskRoles": roles,
    }
    if environment:
        body["environment"] = {name: whole_characters(value) for name, value in environment.items()}
    for name, found in zip(("after", "dependents"), dependencies, strict=True):
        if found:
            body[name] = [asdict(one) for one in found]
    if place:
        body["place"] = place
    if job.priority:
        body["jobPriority"] = job.priority
    return profile.without("detail", body)


def _status(profile: Profile, job: Job, attempt: Attempt) -> dict[str, Any]:
    return {
        "name": job.key,
        "username": job.user,
        **_common(profile, job),
        "completedTime": job.completed,
        "attemptId": attempt.id,
        "attemptState": attempt.state,
        "appId": f"{states.debug_id(job.key)}_{attempt.id}",
        "appProgress": int(attempt.state in states.FINAL),
        "appTrackingUrl": "",
        "appCreatedTime": attempt.created,
        "appLaunchedTime": attempt.launched,
        "appCompletedTime": attempt.completed,
        "appExitCode": _job_code(profile, attempt.exit_code),
        **_exit(profile, attempt),
        "virtualCluster": job.virtual_cluster,
        **({"cause": attempt.cause} if attempt.cause else {}),
    }


def task_roles(view: ViewContext, job: Job, tasks: Iterable[tuple[Task, Task]]) -> dict[str, Any]:
    """Return the task statuses by role, from the latest and the first attempt of each task."""
    roles: dict[str, Any] = {}
    for latest, first in tasks:
        name = view.profile.role_name(latest.role)
        role = roles.setdefault(name, {"taskRoleStatus": {"name": name}, "taskStatuses": []})
        body = {**_task(view.profile, latest, first), **_task_attempt(view, job, latest)}
        role["taskStatuses"].append(view.profile.without("task", body))
    return roles


def task_detail(view: ViewContext, job: Job, tries: list[Task]) -> dict[str, Any]:
    """Return one task with all its attempts, newest first."""
    latest, first = tries[0], tries[-1]
    return {
        "username": job.user,
        "jobName": job.name,
        "jobAttemptId": latest.job_attempt,
        "taskRoleName": view.profile.role_name(latest.role),
        **_task(view.profile, latest, first),
        "attempts": [view.profile.without("task", _task_attempt(view, job, task)) for task in tries],
    }


def job_attempt(
    profile: Profile, job: Job, attempt: Attempt, roles: dict[str, Any], latest: bool
) -> dict[str, Any]:
    """Return an attempt in the older format, without STOPPING and ``appExitType``."""
    spec, exit = _spec(profile, attempt.exit_code), _exit(profile, attempt)
    kind, messages = exit.pop("appExitType"), exit["appExitMessages"]
    return {
        "jobName": job.name,
        "frameworkName": states.debug_id(job.key),
        "uid": f"{states.debug_id(job.key)}_{attempt.id}",
        "userName": job.user,
        "state": _without_stopping(attempt.state),
        "originState": attempt.sub_state,
        "attemptIndex": attempt.id,
        "jobStartedTime": job.submitted,
        "attemptStartedTime": attempt.created,
        "attemptCompletedTime": attempt.completed,
        "exitCode": attempt.exit_code,
        "exitPhrase": spec["phrase"] if spec else None,
        "exitType": kind,
        "exitDiagnostics": messages
        and {
            "diagnosticsSummary": attempt.diagnostics,
            "runtime": messages["runtime"],
            "launcher": messages["launcher"],
        },
        **exit,
        "totalGpuNumber": job.gpus,
        "totalTaskNumber": job.tasks,
        "totalTaskRoleNumber": job.roles,
        "taskRoles": {name: _short_role(role) for name, role in roles.items()},
        "isLatest": latest,
    }


def _short_role(role: dict[str, Any]) -> dict[str, Any]:
    """Return a role with the task fields of the older format."""
    tasks = [
        {key: task[key] for key in SHORT_TASK} | {"taskState": _without_stopping(task["taskState"])}
        for task in role["taskStatuses"]
    ]
    return {**role, "taskStatuses": tasks}


def _without_stopping(state: str) -> str:
    return states.RUNNING if state == states.STOPPING else state


def event(host: str, one: Event) -> dict[str, Any]:
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
        "sourceHost": host,
    }


def _common(profile: Profile, job: Job) -> dict[str, Any]:
    """Return the fields that a list and the details have in common."""
    return {
        "state": profile.job_states.get(job.sub_state, job.state),
        "subState": profile.sub_states.get(job.sub_state, job.sub_state),
        "executionType": job.execution,
        "retries": job.user_retries + job.platform_retries,
        "retryDetails": {"user": job.user_retries, "platform": job.platform_retries, "resource": 0},
        "retryDelayTime": None,
        "submissionTime": job.submitted,
        "createdTime": job.submitted,
        "launchedTime": job.launched,
        **({"requeues": job.requeues} if job.requeues else {}),
        **({"stopReason": job.stop_reason} if job.stop_reason else {}),
        **({"gpusIdleSince": job.gpus_idle_since} if job.gpus_idle_since else {}),
    }


def _job_code(profile: Profile, code: int | None) -> int | None:
    return None if code is None else profile.job_exit_code(code)


def _spec(profile: Profile, code: int | None) -> dict[str, Any] | None:
    return None if code is None else profile.exit_spec(code)


def _exit(profile: Profile, attempt: Attempt) -> dict[str, Any]:
    spec = _spec(profile, attempt.exit_code)
    runtime, role = _runtime(profile, attempt), attempt.trigger_role
    messages = {
        "container": None,
        "runtime": runtime,
        "launcher": None if runtime else attempt.diagnostics,
    }
    return {
        "appExitSpec": spec,
        "appExitDiagnostics": attempt.diagnostics or None,
        "appExitMessages": messages if spec else None,
        "appExitTriggerMessage": attempt.diagnostics or None,
        "appExitTriggerTaskRoleName": profile.role_name(role) if role is not None else None,
        "appExitTriggerTaskIndex": attempt.trigger_index,
        "appExitType": profile.exit_type(spec) if spec else None,
    }


def _runtime(profile: Profile, attempt: Attempt) -> dict[str, Any] | None:
    """Return the runtime's report about a failed command: its exit code and the end of its log."""
    if not attempt.exit_code or attempt.user_exit_code is None:
        return None
    found = profile.runtime(attempt.exit_code, attempt.user_exit_code)
    matched = {"matchedUserLogString": attempt.matched} if attempt.matched else {}
    return {**found, **matched, "errorLogs": {**found["errorLogs"], "user": attempt.log_end}}


def _task(profile: Profile, latest: Task, first: Task) -> dict[str, Any]:
    return {
        "taskIndex": latest.index,
        "taskUid": first.uid,
        "taskState": profile.task_states.get(latest.state, latest.state),
        "retries": latest.attempt,
        "accountableRetries": latest.attempt,
        "createdTime": first.created,
        "launchedTime": first.launched,
        "completedTime": latest.completed,
    }


def _is_kept(task: Task) -> bool:
    """Whether a failed task still runs, so that its owner can log in."""
    return (task.kept or 0) > RELEASED and task.state == states.RUNNING


def _task_attempt(view: ViewContext, job: Job, task: Task) -> dict[str, Any]:
    profile, code = view.profile, task.exit_code
    return {
        "attemptId": task.attempt,
        "attemptState": task.state,
        "currentAttemptCreatedTime": task.created,
        "currentAttemptLaunchedTime": task.launched,
        "currentAttemptCompletedTime": task.completed,
        "containerId": task.uid,
        "containerIp": task.ip,
        "containerNodeName": view.capacity.node_name(task.ip),
        "containerPorts": {label: profile.ports(numbers) for label, numbers in task.ports.items()},
        **({"containerSshIp": view.ssh_host} if view.ssh_host else {}),
        "containerGpus": profile.gpus(task),
        "containerLog": profile.log_place(task, job.user, view.site),
        "containerExitCode": None if code is None else profile.task_exit_code(code),
        "containerExitSpec": _spec(profile, code),
        "containerExitDiagnostics": task.diagnostics or None,
        "peakMemoryMB": task.peak_memory_mb,
        "cpuSeconds": task.cpu_seconds,
        **({"keptUntil": task.kept, "cause": task.cause} if _is_kept(task) else {}),
    }
