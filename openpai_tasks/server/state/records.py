"""Records of the embedded cluster: jobs, their attempts, their tasks, and events.

Times are milliseconds since the epoch; ``None`` means not yet. States are OpenPAI's:
WAITING RUNNING STOPPING, then SUCCEEDED FAILED STOPPED.
"""

from __future__ import annotations

from dataclasses import field
from pathlib import Path

from openpai_tasks.lazy_dataclass import dataclass

RELEASED = 1
"""What ``Task.kept`` is instead of a time for a failed task that is not kept any longer."""


@dataclass(frozen=True)
class Job:
    key: str  # user~name
    user: str
    name: str
    virtual_cluster: str
    config: str  # the submitted YAML, secrets masked; empty in lists
    execution: str  # START or STOP, as last set by the user
    priority: str | None
    state: str
    sub_state: str
    submitted: int
    gpus: int
    tasks: int
    roles: int
    tags: tuple[str, ...] = ()
    attempt: int = 0  # the current one
    user_retries: int = 0
    platform_retries: int = 0
    launched: int | None = None
    completed: int | None = None
    exit_code: int | None = None
    user_exit_code: int | None = None  # of a command that failed, only in lists
    cause: str | None = None  # why it failed, likewise
    kept_until: int | None = None  # of a failed task that is kept, likewise
    requeues: int = 0  # since the user last set START
    stop_reason: str = ""  # why the server stopped it
    gpus_idle_since: int | None = None  # while they are


@dataclass(frozen=True)
class Attempt:
    job: str
    id: int
    state: str
    sub_state: str
    created: int
    launched: int | None
    completed: int | None
    exit_code: int | None
    user_exit_code: int | None  # the command's exit code, before the platform mapped it
    diagnostics: str
    trigger_role: str | None
    trigger_index: int | None
    matched: str = ""  # the words in the deciding task's log that explain the failure
    log_end: str = ""  # the last lines of that log
    cause: str = ""  # why it failed, in one line


@dataclass(frozen=True)
class Task:
    """One attempt of one task instance."""

    uid: str
    job: str
    job_attempt: int
    role: str
    index: int
    attempt: int
    state: str
    sub_state: str
    created: int
    ip: str
    folder: Path  # work/ and logs/{stdout,stderr,all} below it
    ports: dict[str, tuple[int, ...]] = field(default_factory=dict)
    gpus: tuple[int, ...] = ()
    launched: int | None = None
    completed: int | None = None
    exit_code: int | None = None
    user_exit_code: int | None = None
    diagnostics: str = ""
    matched: str = ""
    log_end: str = ""
    cause: str = ""
    peak_memory_mb: int | None = None  # of a task that has ended, if its engine reports it
    cpu_seconds: float | None = None
    gpu_percent: float | None = None  # mean use of its GPUs, if that was recorded
    gpu: int = 0  # how many GPUs it asked for
    kept: int | None = None  # until when it is kept after its failure; 0 before, None if it is not to be kept


@dataclass(frozen=True)
class NewEvent:
    """Something a job's owner should know."""

    type: str  # Normal or Warning
    reason: str
    message: str


@dataclass(frozen=True)
class Event:
    uid: str
    job: str
    task: str | None  # Task.uid
    role: str | None
    index: int | None
    type: str  # Normal or Warning
    reason: str
    message: str
    first: int
    last: int
    count: int
