"""What travels: jobs and tasks as every generation of server tells them, in one shape of ours."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from openpai_tasks.protocol import diagnostics
from openpai_tasks.protocol.diagnostics import Diagnostics
from openpai_tasks.protocol.fields import count, mapping, moment, rows, text, texts, whole
from openpai_tasks.protocol.routes import job_key
from openpai_tasks.protocol.states import FINAL, WAITING, reported_state

STOPPED_STATUS = 143  # what a shell says of a process ended by TERM
PLATFORM_STATUS = 125  # the platform failed the job: there is no exit code of its own


@dataclass(frozen=True)
class TaskInfo:
    """The latest try of one task instance."""

    role: str
    index: int
    state: str
    attempt: int
    ip: str
    ports: dict[str, str]
    exit_code: int | None
    launched: int | None
    completed: int | None
    message: str
    container: str = ""
    log: str = ""  # where the server says that its output is

    @property
    def label(self) -> str:
        return f"{self.role}-{self.index}"

    @property
    def ssh(self) -> SshInfo | None:
        """Where its container takes ssh, once it has one."""
        port = self.ports.get("ssh", "").partition(",")[0]
        return SshInfo(self.container, self.ip, int(port)) if self.ip and _is_port(port) else None


@dataclass(frozen=True)
class SshInfo:
    """Where one container takes ssh; ``key_url`` is where its private key can be fetched, if it is told."""

    container: str
    ip: str
    port: int
    key_url: str = ""


@dataclass(frozen=True)
class EventInfo:
    """Something the platform noted about a job, such as why it waits."""

    type: str
    reason: str
    message: str
    count: int
    last: str
    container: str = ""  # the one it is about; none where it is about the whole job

    @property
    def time(self) -> int | None:
        """When it happened last, in milliseconds; servers write it as ISO 8601."""
        try:
            return moment(datetime.fromisoformat(self.last.replace("Z", "+00:00")).timestamp() * 1000)
        except (ValueError, OverflowError, OSError):
            return None


@dataclass(frozen=True)
class JobInfo:
    """One job; ``tasks``, ``message`` and ``events`` are known only when they were asked for."""

    name: str
    user: str
    state: str
    virtual_cluster: str
    submitted: int | None
    launched: int | None
    completed: int | None
    exit_code: int | None  # the platform's
    user_exit_code: int | None  # the command's own
    retries: int
    attempt: int
    gpus: int | None
    task_count: int | None
    tags: tuple[str, ...]
    message: str = ""
    tasks: tuple[TaskInfo, ...] = ()
    events: tuple[EventInfo, ...] = ()
    namespace: str | None = None  # what its key begins with, if not its user; "" for one without an owner
    diagnostics: Diagnostics | None = None  # how its last attempt ended; ``message`` is that in one line

    @property
    def key(self) -> str:
        """What paths call it; a job from before jobs had owners goes by its bare name."""
        owner = self.user if self.namespace is None else self.namespace
        return job_key(owner, self.name) if owner else self.name

    @property
    def final(self) -> bool:
        return self.state in FINAL

    @property
    def exit(self) -> int | None:
        """The command's own exit code where it is known, else the platform's."""
        return self.exit_code if self.user_exit_code is None else self.user_exit_code

    @property
    def duration(self) -> float | None:
        """Seconds from its start until its end, or until now; some servers do not tell the end."""
        if self.launched is None or (self.final and self.completed is None):
            return None
        return max(0.0, ((self.completed or time.time() * 1000) - self.launched) / 1000)

    @property
    def exit_status(self) -> int:
        """What a shell should see: the job's own exit code where it has one."""
        if self.state == "SUCCEEDED":
            return 0
        if self.state == "STOPPED":
            return STOPPED_STATUS
        for code in (self.user_exit_code, self.exit_code):
            if code is not None and 0 < code < 256:
                return code
        return PLATFORM_STATUS


def job_from_summary(body: dict[str, Any]) -> JobInfo:
    """A row of the job list; servers before 1.1 tell in it when a job was made, not when it was launched."""
    state = reported_state(body)
    made = body.get("createdTime") if state != WAITING else None
    return JobInfo(
        name=text(body.get("name")),
        user=text(body.get("username")),
        state=state,
        virtual_cluster=text(body.get("virtualCluster")),
        submitted=moment(body.get("submissionTime")) or moment(body.get("createdTime")),
        launched=moment(body.get("launchedTime", made)),
        completed=moment(body.get("completedTime")),
        exit_code=_exit_code(state, whole(body.get("appExitCode"))),
        user_exit_code=None,
        retries=count(body.get("retries")),
        attempt=count(body.get("retries")),
        gpus=whole(body.get("totalGpuNumber")),
        task_count=whole(body.get("totalTaskNumber")),
        tags=texts(body.get("tags")),
        namespace="" if body.get("legacy") else text(body.get("namespace")) or None,
    )


def job_from_detail(body: dict[str, Any], key: str) -> JobInfo:
    """The answer for the job that was asked for by ``key``."""
    status = mapping(body.get("jobStatus"))
    state, end = reported_state(status), diagnostics.read(status)
    owner, _, name = key.partition("~") if "~" in key else ("", "", key)
    user = text(status.get("username")) or owner
    tasks = tuple(
        _task(role, number, task)
        for role, group in mapping(body.get("taskRoles")).items()
        for number, task in enumerate(rows(mapping(group).get("taskStatuses")))
    )
    return JobInfo(
        name=name,
        user=user,
        state=state,
        virtual_cluster=text(status.get("virtualCluster")),
        submitted=moment(status.get("submissionTime")) or moment(status.get("createdTime")),
        launched=moment(status.get("launchedTime")) or moment(status.get("appLaunchedTime")),
        completed=moment(status.get("completedTime")),
        exit_code=_exit_code(state, whole(status.get("appExitCode"))),
        user_exit_code=_exit_code(state, end.user_exit_code),
        retries=count(status.get("retries")),
        attempt=count(status.get("attemptId", status.get("retries"))),
        gpus=None,
        task_count=len(tasks),
        tags=texts(body.get("tags")),
        message=end.summary,
        tasks=tasks,
        namespace=None if owner == user else owner,
        diagnostics=None if end == Diagnostics() else end,
    )


def event_from_body(body: dict[str, Any]) -> EventInfo:
    return EventInfo(
        type=text(body.get("type")),
        reason=text(body.get("reason")),
        message=text(body.get("message")),
        count=count(body.get("count")) or 1,
        last=text(body.get("lastTimestamp")),
        container=text(body.get("podUid")),
    )


def _task(role: str, number: int, body: dict[str, Any]) -> TaskInfo:
    index = whole(body.get("taskIndex"))
    return TaskInfo(
        role=role,
        index=number if index is None else index,
        state=text(body.get("taskState")) or "UNKNOWN",
        attempt=count(body.get("attemptId")),
        ip=text(body.get("containerIp")),
        ports={label: text(value) for label, value in mapping(body.get("containerPorts")).items()},
        exit_code=whole(body.get("containerExitCode")),
        launched=moment(body.get("launchedTime")),
        completed=moment(body.get("completedTime")),
        message=text(body.get("containerExitDiagnostics")),
        container=text(body.get("containerId")),
        log=text(body.get("containerLog")),
    )


def ssh_from_body(body: dict[str, Any]) -> tuple[SshInfo, ...]:
    """What the servers that have an endpoint for it say."""
    key_url = text(mapping(body.get("keyPair")).get("privateKeyDirectDownloadLink"))
    return tuple(
        SshInfo(text(one.get("id")), text(one.get("sshIp")), int(text(one.get("sshPort"))), key_url)
        for one in rows(body.get("containers"))
        if text(one.get("sshIp")) and _is_port(text(one.get("sshPort")))
    )


def _is_port(word: str) -> bool:
    return word.isdecimal() and len(word) < 6 and 0 < int(word) < 65536


def _exit_code(state: str, code: int | None) -> int | None:
    """The code, but no 0 for a job that goes on."""
    return code if code or state in FINAL else None
