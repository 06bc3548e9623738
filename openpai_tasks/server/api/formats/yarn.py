"""The terms of OpenPAI 0.14, whose jobs ran on Hadoop YARN: states, exit codes, queues."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from openpai_tasks.protocol import exit_codes, states
from openpai_tasks.server.resources import ResourceAmount

SUB_STATES = {
    states.CREATION_PENDING: "FRAMEWORK_WAITING",
    states.CREATION_REQUESTED: "APPLICATION_CREATED",
    states.PREPARING: "APPLICATION_WAITING",
    states.ATTEMPT_RUNNING: "APPLICATION_RUNNING",
    states.DELETION_PENDING: "APPLICATION_RUNNING",
    states.DELETION_REQUESTED: "APPLICATION_RUNNING",
    states.DELETING: "APPLICATION_RUNNING",
    states.ATTEMPT_COMPLETED: "APPLICATION_COMPLETED",
    states.COMPLETED: "FRAMEWORK_COMPLETED",
}
JOB_STATES = {
    name: states.RUNNING if word == "APPLICATION_RUNNING" else states.WAITING
    for name, word in SUB_STATES.items()
    if name != states.COMPLETED
}
TASK_STATES = {states.STOPPING: states.RUNNING}

JOB_STOPPED, TASK_STOPPED, UNKNOWN = -7351, -7400, -8000
RUNTIME_FAILED, RUNTIME_ENDED = 255, 256
PHRASES = {
    0: "SUCCEEDED",
    RUNTIME_FAILED: "CONTAINER_RUNTIME_UNKNOWN_FAILURE",
    RUNTIME_ENDED: "CONTAINER_RUNTIME_EXIT_ABNORMALLY",
    JOB_STOPPED: "APP_STOP_FRAMEWORK_REQUESTED",
    TASK_STOPPED: "TASK_STOPPED_ON_APP_COMPLETION",
    UNKNOWN: "CONTAINER_UNKNOWN_YARN_EXIT_STATUS",
    **{128 + number: f"CONTAINER_KILLED_BY_SIG{name}" for name, number in {
        "INT": 2, "ILL": 4, "ABRT": 6, "BUS": 7, "FPE": 8, "KILL": 9, "SEGV": 11, "PIPE": 13, "TERM": 15,
    }.items()},
}  # fmt: skip


def job_exit_code(code: int) -> int:
    return JOB_STOPPED if code in states.STOP_CODES else _exit_code(code)


def task_exit_code(code: int) -> int:
    return TASK_STOPPED if code in states.STOP_CODES else _exit_code(code)


def exit_spec(code: int) -> dict[str, Any]:
    """Return the description of a job's exit code, in the numbers of YARN."""
    shown = job_exit_code(code)
    return {**exit_codes.exit_spec(code), "code": shown, "phrase": PHRASES[shown]}


def exit_type(spec: Mapping[str, Any]) -> str:
    return str(spec["type"])


def runtime(code: int, user_code: int) -> dict[str, Any]:
    """Return the report of the container's runtime about a failed command."""
    return {
        "exitcode": job_exit_code(code),
        "originalUserExitCode": user_code,
        "caughtSignal": None,
        "errorLogs": {"user": "", "runtime": "", "diskCleaner": ""},
    }


def queue(
    total: ResourceAmount, used: ResourceAmount, share: dict[str, Any], jobs: dict[str, int]
) -> dict[str, Any]:
    """Return a virtual cluster, which is a queue of YARN."""
    return {
        "capacity": share["capacity"],
        "maxCapacity": share["capacity"],
        "usedCapacity": share["usedCapacity"],
        "dedicated": False,
        "numActiveJobs": jobs.get(states.RUNNING, 0),
        "numJobs": sum(jobs.values()),
        "numPendingJobs": jobs.get(states.WAITING, 0),
        "status": "RUNNING",
        "nodeList": [],
        "resourcesUsed": _resources(used),
        "resourcesTotal": _resources(total),
    }


def _exit_code(code: int) -> int:
    """Return the same code if YARN has it; other failures of a command become the runtime's 255."""
    if code in PHRASES:
        return code
    return RUNTIME_FAILED if code > 0 else UNKNOWN


def _resources(amount: ResourceAmount) -> dict[str, int]:
    return {"memory": amount.memory_mb, "vCores": amount.cpu, "GPUs": amount.gpu}
