"""The words for what a job or task is doing, and the two ways its name is rewritten."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from openpai_tasks.protocol.fields import text, whole

WAITING = "WAITING"
RUNNING = "RUNNING"
STOPPING = "STOPPING"
RETRYING = "RETRYING"  # between two attempts; no server has a word for it
SUCCEEDED = "SUCCEEDED"
FAILED = "FAILED"
STOPPED = "STOPPED"
UNKNOWN = "UNKNOWN"

FINAL = frozenset({SUCCEEDED, FAILED, STOPPED})
UNFINISHED = f"{WAITING},{RUNNING},{STOPPING},{RETRYING}"  # as a list of jobs is asked for

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
"""A stop the user asked for, and a task ended because its job attempt was over."""

_BEGINNING = frozenset({CREATION_PENDING, CREATION_REQUESTED, PREPARING})
_ENDING = frozenset({DELETION_PENDING, DELETION_REQUESTED, DELETING, ATTEMPT_COMPLETED})


def state(sub_state: str, exit_code: int | None = None) -> str:
    """The state people see for a sub-state of the cluster."""
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
    """The state of a job as a server describes it in a row or a ``jobStatus``.

    Servers call a job RUNNING or WAITING between two attempts, and until a stop that was asked for is done.
    """
    name = text(body.get("state")) or UNKNOWN
    if name not in (WAITING, RUNNING):
        return name
    if body.get("executionType") == "STOP":
        return STOPPING
    is_tried_again = body.get("retryDelayTime") is not None or whole(body.get("appExitCode"))
    return RETRYING if body.get("subState") == ATTEMPT_COMPLETED and is_tried_again else name


def final_state(exit_code: int | None) -> str:
    """What a finished job or task is called."""
    if exit_code == 0:
        return SUCCEEDED
    return STOPPED if exit_code in STOP_CODES else FAILED


def role_key(name: str) -> str:
    """A task role's name as the cluster writes it in answers, URLs and some variables."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def debug_id(key: str) -> str:
    """The server's own id of the job ``user~name``."""
    return hashlib.md5(key.encode("utf-8"), usedforsecurity=False).hexdigest()
