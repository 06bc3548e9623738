"""Jobs, tasks and events as values, read from the answers of every generation of servers."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from datetime import datetime
from typing import Any

from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol import diagnostics, exit_codes
from openpai_tasks.protocol.diagnostics import Diagnostics
from openpai_tasks.protocol.document.policy import priority_word
from openpai_tasks.protocol.environment import python_folder
from openpai_tasks.protocol.fields import count, mapping, moment, number, rows, text, texts, whole
from openpai_tasks.protocol.routes import OWN_FIELD, job_key
from openpai_tasks.protocol.states import FAILED, FINAL, SUCCEEDED, WAITING, reported_state

STOPPED_STATUS = 143  # as in a shell for a process killed by TERM
PLATFORM_STATUS = 125  # the platform failed the job, which has no exit code
MOST_NAMED = 10  # jobs in a line


@dataclass(frozen=True)
class TaskInfo:
    """The latest attempt of one task."""

    role: str
    index: int
    state: str
    attempt: int
    ip: str
    ports: dict[str, str]
    exit_code: int | None  # its command's; None if that has none, or the cluster does not report it
    platform_exit_code: int | None
    launched: int | None
    completed: int | None
    message: str
    container: str = ""
    log: str = ""  # URL of its output
    peak_memory_mb: int | None = None  # where the cluster reports it, of a task that has ended
    cpu_seconds: float | None = None
    ssh_ip: str = ""  # of its SSH service, if that is elsewhere
    kept_until: int | None = None  # of a task that has failed, and whose environment is kept
    cause: str = ""  # why such a task has failed

    @property
    def label(self) -> str:
        return f"{self.role}-{self.index}"

    @property
    def platform_end(self) -> str:
        """The platform's exit code and its meaning; empty if it has none, or only reports the command's."""
        return _platform_end(self.platform_exit_code, self.exit_code)

    @property
    def ssh(self) -> SshInfo | None:
        """The SSH endpoint of its container, once it has one."""
        port = self.ports.get("ssh", "").partition(",")[0]
        ip = self.ssh_ip or self.ip
        return SshInfo(self.container, ip, int(port)) if ip and _is_port(port) else None


@dataclass(frozen=True)
class SshInfo:
    """The SSH endpoint of a container; ``key_url`` is the URL of its private key, if known."""

    container: str
    ip: str
    port: int
    key_url: str = ""


@dataclass(frozen=True)
class EventInfo:
    """An event that the platform recorded for a job, such as the reason why it waits."""

    type: str
    reason: str
    message: str
    count: int
    last: str
    container: str = ""  # empty for events of the whole job

    @property
    def time(self) -> int | None:
        """When it last happened, in milliseconds; servers write ISO 8601."""
        try:
            return moment(datetime.fromisoformat(self.last.replace("Z", "+00:00")).timestamp() * 1000)
        except (ValueError, OverflowError, OSError):
            return None


@dataclass(frozen=True)
class DependencyInfo:
    """A job that another one waits for, or that waits for another one."""

    job: str  # USER~NAME
    when: str  # how the job that is waited for has to end: succeeded, ended or failed
    state: str  # of ``job``; empty if it was removed
    met: bool | None = None  # None until the job that is waited for has ended
    kept: bool = False  # whether a failed task of ``job`` is kept, which delays its end


_WHEN = {"ended": "; any end", "failed": "; has to fail"}


@dataclass(frozen=True)
class JobInfo:
    """A job; ``tasks``, ``message`` and ``events`` are filled in only when they were requested."""

    name: str
    user: str
    state: str
    virtual_cluster: str
    submitted: int | None
    launched: int | None
    completed: int | None
    exit_code: int | None  # its command's; None if that has none, or the cluster does not report it
    platform_exit_code: int | None
    retries: int
    attempt: int  # from 0, as for `--attempt`
    gpus: int | None
    task_count: int | None
    tags: tuple[str, ...]
    message: str = ""
    tasks: tuple[TaskInfo, ...] = ()
    events: tuple[EventInfo, ...] = ()
    namespace: str | None = None  # the prefix of its key, if not its user; "" for a job without an owner
    cause: str = ""  # why it failed, in one line, as far as it is known
    diagnostics: Diagnostics | None = None  # how its last attempt ended; ``message`` is its summary
    environment: dict[str, str] = field(default_factory=dict, hash=False)  # its submitter's, if used
    after: tuple[DependencyInfo, ...] = ()  # what it waits or has waited for, if the cluster keeps it
    dependents: tuple[DependencyInfo, ...] = ()  # what waits or has waited for it
    priority: str = ""  # low, normal or high, as far as the list shows it
    place: str = ""  # in the queue, and why others are before it; only with its details
    requeues: int = 0  # how often it ran again after its time limit, where the cluster counts it
    stop_reason: str = ""  # why the cluster stopped it by itself
    gpus_idle_since: int | None = None  # in ms, while they are, where the cluster watches them
    kept_until: int | None = None  # of a job that runs only because a failed task is kept, in ms

    @property
    def key(self) -> str:
        """Its name in paths; very old jobs without an owner only have their name."""
        owner = self.user if self.namespace is None else self.namespace
        return job_key(owner, self.name) if owner else self.name

    @property
    def python(self) -> str:
        """The folder of the virtual or conda environment that it runs with; empty if there is none."""
        return python_folder(self.environment)

    def name_jobs(self, found: Sequence[DependencyInfo], has_when: bool = False) -> str:
        """Name jobs as the user of this one does, with their states: ``prepare (RUNNING)``."""
        when = _WHEN if has_when else {}
        names = [
            f"{one.job.removeprefix(f'{self.user}~')} ({one.state or 'removed'}"
            f"{'; a failed task is kept' * one.kept}{when.get(one.when, '')})"
            for one in found[:MOST_NAMED]
        ]
        more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
        return ", ".join(names) + more

    @property
    def final(self) -> bool:
        return self.state in FINAL

    @property
    def gpus_idle(self) -> float | None:
        """For how many seconds its GPUs have been idle; None if they are not, or nobody knows."""
        if self.gpus_idle_since is None or self.final:
            return None
        return max(0.0, time.time() - self.gpus_idle_since / 1000)

    @property
    def platform_end(self) -> str:
        """The platform's exit code and its meaning; empty for a job that succeeded or is not over."""
        known = self.diagnostics
        words = (known.phrase, known.reason) if known else ("", "")
        return _platform_end(self.platform_exit_code, self.exit_code, *words)

    @property
    def gpu_hours(self) -> float | None:
        """GPUs times hours, of the latest attempt; None if either is unknown."""
        if self.gpus is None or (self.duration is None and self.launched is not None):
            return None
        return self.gpus * (self.duration or 0.0) / 3600

    @property
    def duration(self) -> float | None:
        """Seconds from its start to its end or until now; None if the server does not report the end."""
        if self.launched is None or (self.final and self.completed is None):
            return None
        return max(0.0, ((self.completed or time.time() * 1000) - self.launched) / 1000)

    @property
    def exit_status(self) -> int:
        """The exit status for a shell: the job's own exit code if it has one."""
        if self.state == "SUCCEEDED":
            return 0
        if self.state == "STOPPED":
            return STOPPED_STATUS
        for code in (self.exit_code, self.platform_exit_code):
            if code is not None and 0 < code < 256:
                return code
        return PLATFORM_STATUS


def job_from_summary(body: dict[str, Any]) -> JobInfo:
    """Read a row of the job list; servers before 1.1 give the creation time instead of the launch time."""
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
        exit_code=0 if state == SUCCEEDED else _exit_code(state, whole(body.get("userExitCode"))),
        platform_exit_code=_exit_code(state, whole(body.get("appExitCode"))),
        retries=count(body.get("retries")),
        attempt=count(body.get("retries")),
        gpus=whole(body.get("totalGpuNumber")),
        task_count=whole(body.get("totalTaskNumber")),
        tags=texts(body.get("tags")),
        namespace="" if body.get("legacy") else text(body.get("namespace")) or None,
        cause=text(body.get("cause")) if state == FAILED or "keptUntil" in body else "",
        kept_until=moment(body.get("keptUntil")),
        priority=priority_word(text(body.get("jobPriority"))),
        requeues=count(body.get("requeues")),
        stop_reason=text(body.get("stopReason")),
        gpus_idle_since=moment(body.get("gpusIdleSince")),
    )


def job_from_detail(body: dict[str, Any], key: str) -> JobInfo:
    """Read the details of the job that was requested by ``key``."""
    status = mapping(body.get("jobStatus"))
    state, end = reported_state(status), diagnostics.read(status)
    owner, _, name = key.partition("~") if "~" in key else ("", "", key)
    user = text(status.get("username")) or owner
    tasks = tuple(
        _task(role, number, task)
        for role, group in mapping(body.get("taskRoles")).items()
        for number, task in enumerate(rows(mapping(group).get("taskStatuses")))
    )
    kept = next((task for task in tasks if task.kept_until), None)
    failed = first_failed(tasks) if end.exit_code is None and state == FAILED else None
    code = failed.exit_code if failed else 0 if state == SUCCEEDED else _exit_code(state, end.exit_code)
    if len(tasks) == 1 and tasks[0].exit_code is None and tasks[0].state in FINAL:
        tasks = (replace(tasks[0], exit_code=code),)
    return JobInfo(
        name=name,
        user=user,
        state=state,
        virtual_cluster=text(status.get("virtualCluster")),
        submitted=moment(status.get("submissionTime")) or moment(status.get("createdTime")),
        launched=moment(status.get("launchedTime")) or moment(status.get("appLaunchedTime")),
        completed=moment(status.get("completedTime")),
        exit_code=kept.exit_code if kept else code,
        platform_exit_code=_exit_code(state, whole(status.get("appExitCode"))),
        retries=count(status.get("retries")),
        attempt=count(status.get("attemptId", status.get("retries"))),
        gpus=None,
        task_count=len(tasks),
        tags=texts(body.get("tags")),
        message=kept.message if kept else end.summary,
        tasks=tasks,
        namespace=None if owner == user else owner,
        cause=kept.cause if kept else text(status.get("cause")) if state == FAILED else "",
        kept_until=kept.kept_until if kept else None,
        diagnostics=None if end == Diagnostics() else end,
        environment={name: text(value) for name, value in mapping(body.get("environment")).items()},
        after=_dependencies(body.get("after")),
        dependents=_dependencies(body.get("dependents")),
        priority=priority_word(text(body.get("jobPriority"))),
        place=text(body.get("place")),
        requeues=count(status.get("requeues")),
        stop_reason=text(status.get("stopReason")),
        gpus_idle_since=moment(status.get("gpusIdleSince")),
    )


def _dependencies(body: Any) -> tuple[DependencyInfo, ...]:
    return tuple(
        DependencyInfo(
            text(one.get("job")),
            text(one.get("when")),
            text(one.get("state")),
            one["met"] if isinstance(one.get("met"), bool) else None,
            one.get("kept") is True,
        )
        for one in rows(body)
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


def notices_from_body(body: Any) -> tuple[str, ...]:
    """Return what will not be as a submitted job asks for; only the embedded cluster reports it."""
    return texts(mapping(mapping(body).get(OWN_FIELD)).get("notices"))


def keeps_hooks(body: Any) -> bool:
    """Whether the answer to a submission says that the server keeps its hooks."""
    return bool(mapping(mapping(body).get(OWN_FIELD)).get("hooks"))


def _task(role: str, place: int, body: dict[str, Any]) -> TaskInfo:
    index, code = whole(body.get("taskIndex")), whole(body.get("containerExitCode"))
    message = text(body.get("containerExitDiagnostics"))
    return TaskInfo(
        role=role,
        index=place if index is None else index,
        state=text(body.get("taskState")) or "UNKNOWN",
        attempt=count(body.get("attemptId")),
        ip=text(body.get("containerIp")),
        ssh_ip=text(body.get("containerSshIp")),
        ports={label: text(value) for label, value in mapping(body.get("containerPorts")).items()},
        exit_code=diagnostics.own_exit_code(message) if code else code,
        platform_exit_code=code,
        launched=moment(body.get("launchedTime")),
        completed=moment(body.get("completedTime")),
        message=message,
        container=text(body.get("containerId")),
        log=text(body.get("containerLog")),
        peak_memory_mb=whole(body.get("peakMemoryMB")),
        cpu_seconds=number(body.get("cpuSeconds")),
        kept_until=moment(body.get("keptUntil")),
        cause=text(body.get("cause")),
    )


def ssh_from_body(body: dict[str, Any]) -> tuple[SshInfo, ...]:
    """Read the answer of servers that have an endpoint for SSH."""
    key_url = text(mapping(body.get("keyPair")).get("privateKeyDirectDownloadLink"))
    return tuple(
        SshInfo(text(one.get("id")), text(one.get("sshIp")), int(text(one.get("sshPort"))), key_url)
        for one in rows(body.get("containers"))
        if text(one.get("sshIp")) and _is_port(text(one.get("sshPort")))
    )


def _is_port(word: str) -> bool:
    return word.isdecimal() and len(word) < 6 and 0 < int(word) < 65536


def first_failed(tasks: Iterable[TaskInfo]) -> TaskInfo | None:
    """Return the task that failed first."""
    failed = [task for task in tasks if task.state == FAILED]
    return min(failed, key=lambda task: task.completed or 0, default=None)


def _platform_end(code: int | None, own: int | None, phrase: str = "", reason: str = "") -> str:
    """Return an exit code of the platform with its meaning, in the server's words if it has some."""
    if not code:
        return ""
    is_known = exit_codes.is_known(code)
    if code == own and not (is_known or phrase or reason):
        return ""
    spec = exit_codes.exit_spec(code) if is_known else {}
    phrase, reason = phrase or text(spec.get("phrase")), reason or text(spec.get("reason"))
    head = f"{code} ({phrase})" if phrase else str(code)
    return f"{head}: {reason}" if reason else head


def _exit_code(state: str, code: int | None) -> int | None:
    """Return the code, but not 0 for an unfinished job."""
    return code if code or state in FINAL else None
