"""The OpenPAI that the server emulates: 0.14, 0.18 (the same as 1.0), 1.8, or the union of their routes.

A profile describes the differences in answers: omitted keys and other words. The routes of each version are
in a column of the table in table.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol import exit_codes, routes, states
from openpai_tasks.server.api import rates as limits
from openpai_tasks.server.api.formats import yarn
from openpai_tasks.server.api.rates import Rate
from openpai_tasks.server.state.records import Task

UNION, OLDEST, MIDDLE, NEWEST = "union", "0.14", "0.18", "1.8"
EVERY = frozenset({UNION, OLDEST, MIDDLE, NEWEST})

LOG_NODE = "127.0.0.1:9103"  # address of OpenPAI's log manager; only a name here
CONTAINER_NODE = "127.0.0.1:8042"  # address of YARN's node manager

PAGE = 5000
NO_END = -1

Ports = tuple[int, ...]


def _keys(text: str) -> frozenset[str]:
    return frozenset(text.split())


FILTERS = _keys(
    """username vc state keyword tagsContain tagsNotContain jobPriority offset limit order withTotalCount"""
)


def _same(value: Any) -> Any:
    return value


def _log_path(task: Task, user: str, site: str) -> str:
    """Return the path of the call that returns the addresses of logs."""
    return routes.TASK_LOGS.format(
        job=task.job,
        attempt=task.job_attempt,
        role=states.role_key(task.role),
        index=task.index,
        task_attempt=task.attempt,
    )


def _log_folder(task: Task, user: str, site: str) -> str:
    """Return the address of the log manager's folder, to which file names are appended."""
    path = routes.POD_LOGS_TAIL.format(
        node=LOG_NODE,
        user=user,
        framework=states.debug_id(task.job),
        role=states.role_key(task.role),
        pod=task.uid,
    )
    return f"{site}{path}/"


def _log_page(task: Task, user: str, site: str) -> str:
    """Return the address of the node manager's page that lists the logs."""
    path = routes.CONTAINER_LOGS.format(node=CONTAINER_NODE, container=task.uid, user=user)
    return f"{site}{path}/"


def _exit_type(spec: Mapping[str, Any]) -> str:
    """Return the framework controller's name of a result."""
    return "Failed" if spec["code"] else "Succeeded"


def _runtime(code: int, user_code: int) -> dict[str, Any]:
    return {
        "exitCode": code,
        "originUserExitCode": user_code,
        "errorLogs": {"user": "", "platform": ""},
        "name": exit_codes.exit_spec(code)["phrase"],
    }


@dataclass(frozen=True)
class Profile:
    """The differences of one generation from 1.8, whose values are the defaults."""

    name: str
    version: str
    launcher: str = "k8s"
    hidden: Mapping[str, frozenset[str]] = field(default_factory=dict)  # omitted keys, by kind of answer
    filters: frozenset[str] = FILTERS  # query parameters of the job list
    page: int = PAGE
    role_name: Callable[[str], str] = states.role_key
    ports: Callable[[Ports], str | int] = lambda numbers: ",".join(map(str, numbers))
    gpus: Callable[[Task], int | None] = lambda task: None
    log_place: Callable[[Task, str, str], str] = _log_path  # of a task, by its user and this site
    sub_states: Mapping[str, str] = field(default_factory=dict)  # renamed
    job_states: Mapping[str, str] = field(default_factory=dict)  # by sub-state, if they differ
    task_states: Mapping[str, str] = field(default_factory=dict)
    job_exit_code: Callable[[int], int] = _same
    task_exit_code: Callable[[int], int] = _same
    exit_spec: Callable[[int], dict[str, Any]] = exit_codes.exit_spec
    exit_type: Callable[[Mapping[str, Any]], str] = _exit_type
    runtime: Callable[[int, int], dict[str, Any]] = _runtime
    any_default: bool = False  # whether any value of ``?default=`` of storages means true
    reports_bad_tokens: bool = True
    errors: Mapping[str, tuple[int, str]] = field(default_factory=dict)  # where status and code differ
    joint: str = "\n"  # separates the commands of a role
    rates: Mapping[str, Rate] = field(default_factory=dict)

    @property
    def is_yarn(self) -> bool:
        return self.launcher == "yarn"

    def without(self, kind: str, body: dict[str, Any]) -> dict[str, Any]:
        """Return the answer without the keys that this generation lacks."""
        hidden = self.hidden.get(kind, frozenset())
        return {key: value for key, value in body.items() if key not in hidden}


def _rates(api: int, lists: int, submissions: int) -> dict[str, Rate]:
    return {
        limits.API: Rate(api, 60),
        limits.LIST: Rate(lists, 60),
        limits.SUBMIT: Rate(submissions, 3600),
    }


_NEW_TASK_KEYS = _keys(
    """taskUid containerNodeName containerExitSpec containerExitDiagnostics retries accountableRetries
    createdTime launchedTime completedTime attemptId attemptState currentAttemptCreatedTime
    currentAttemptLaunchedTime currentAttemptCompletedTime"""
)
_USAGE = _keys("peakMemoryMB cpuSeconds keptUntil cause")
_HIDDEN_IN_MIDDLE = {
    "summary": _keys("tags submissionTime launchedTime jobPriority userExitCode cause"),
    "detail": _keys("tags environment after dependents place jobPriority"),
    "status": _keys("name submissionTime launchedTime attemptId attemptState appCreatedTime cause"),
    "task": _NEW_TASK_KEYS | _USAGE,
    "storage": _keys("default readOnly"),
    "logs": _keys("times"),
}
_HIDDEN_IN_OLDEST = {
    **_HIDDEN_IN_MIDDLE,
    "summary": _HIDDEN_IN_MIDDLE["summary"] | _keys("debugId retryDelayTime"),
    "detail": _keys("tags debugId environment after dependents place jobPriority"),
    "status": (_HIDDEN_IN_MIDDLE["status"] | _keys("retryDelayTime")) - _keys("name"),
    "user": _keys("storageConfig"),
}
_HIDDEN_IN_UNION = {"status": _keys("name")}
_HIDDEN_IN_NEWEST = {
    "status": _keys("name cause"),
    "summary": _keys("userExitCode cause"),
    "detail": _keys("environment after dependents place jobPriority"),
    "task": _USAGE,
    "logs": _keys("times"),
}

_PROFILES = (
    Profile(UNION, "v1.8.1", hidden=_HIDDEN_IN_UNION),
    Profile(NEWEST, "v1.8.1", hidden=_HIDDEN_IN_NEWEST, rates=_rates(600, 120, 3600)),
    Profile(
        MIDDLE,
        "v1.0.0",
        hidden=_HIDDEN_IN_MIDDLE,
        filters=_keys("username"),
        page=NO_END,
        ports=lambda numbers: numbers[0],
        log_place=_log_folder,
        job_states={states.ATTEMPT_COMPLETED: states.RUNNING},
        any_default=True,
        rates=_rates(600, 60, 60),
    ),
    Profile(
        OLDEST,
        "v0.14.0",
        launcher="yarn",
        hidden=_HIDDEN_IN_OLDEST,
        filters=_keys("username"),
        page=NO_END,
        role_name=_same,
        gpus=lambda task: sum(1 << number for number in task.gpus),
        log_place=_log_page,
        sub_states=yarn.SUB_STATES,
        job_states=yarn.JOB_STATES,
        task_states=yarn.TASK_STATES,
        job_exit_code=yarn.job_exit_code,
        task_exit_code=yarn.task_exit_code,
        exit_spec=yarn.exit_spec,
        exit_type=yarn.exit_type,
        runtime=yarn.runtime,
        reports_bad_tokens=False,
        errors={"NoGroupError": (500, "UnknownError")},
        joint=" && ",
    ),
)
PROFILES = {profile.name: profile for profile in _PROFILES}
