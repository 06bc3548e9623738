"""States of jobs and tasks, and the names of jobs and roles on the server."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from openpai_tasks.protocol.fields import text, whole

WAITING = "WAITING"
RUNNING = "RUNNING"
STOPPING = "STOPPING"
RETRYING = "RETRYING"  # between two attempts; our own state, servers have none
SUCCEEDED = "SUCCEEDED"
FAILED = "FAILED"
STOPPED = "STOPPED"
UNKNOWN = "UNKNOWN"

ALL = (WAITING, RUNNING, STOPPING, RETRYING, SUCCEEDED, FAILED, STOPPED, UNKNOWN)
FINAL = frozenset({SUCCEEDED, FAILED, STOPPED})
UNFINISHED = f"{WAITING},{RUNNING},{STOPPING},{RETRYING}"  # as a query for jobs

CREATION_PENDING = "AttemptCreationPending"
CREATION_REQUESTED = "AttemptCreationRequested"
PREPARING = "AttemptPreparing"
ATTEMPT_RUNNING = "AttemptRunning"
DELETION_PENDING = "AttemptDeletionPending"
DELETION_REQUESTED = "AttemptDeletionRequested"
DELETING = "AttemptDeleting"
ATTEMPT_COMPLETED = "AttemptCompleted"
COMPLETED = "Completed"

STOP_CODES = frozenset({-210, -220})
"""Exit codes of a stop by the user, and of a task that ended with its job's attempt."""

_BEGINNING = frozenset({CREATION_PENDING, CREATION_REQUESTED, PREPARING})
_ENDING = frozenset({DELETION_PENDING, DELETION_REQUESTED, DELETING, ATTEMPT_COMPLETED})


def state(sub_state: str, exit_code: int | None = None) -> str:
    """Return the state that users see for a sub-state of the cluster."""
    if sub_state in _BEGINNING:
        return WAITING
    if sub_state == ATTEMPT_RUNNING:
        return RUNNING
    if sub_state in _ENDING:
        return STOPPING if exit_code in STOP_CODES else RUNNING
    if sub_state == COMPLETED:
        return final_state(exit_code)
    return UNKNOWN


def reported_state(body: Mapping[str, Any]) -> str:
    """Return the state of a job from a row of the job list or a ``jobStatus``.

    Servers report RUNNING or WAITING between two attempts, and while a requested stop is in progress.
    """
    name = text(body.get("state")) or UNKNOWN
    if name not in (WAITING, RUNNING):
        return name
    if body.get("executionType") == "STOP":
        return STOPPING
    is_retried = body.get("retryDelayTime") is not None or whole(body.get("appExitCode"))
    return RETRYING if body.get("subState") == ATTEMPT_COMPLETED and is_retried else name


def final_state(exit_code: int | None) -> str:
    """Return the state of a finished job or task."""
    if exit_code == 0:
        return SUCCEEDED
    return STOPPED if exit_code in STOP_CODES else FAILED


def role_key(name: str) -> str:
    """Return a task role's name as the cluster writes it in answers, URLs and some variables."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def debug_id(key: str) -> str:
    """Return the server's internal id of the job ``user~name``."""
    import hashlib

    return hashlib.md5(key.encode("utf-8"), usedforsecurity=False).hexdigest()
