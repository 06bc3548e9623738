"""What client and server agree on: paths, states, and the job document; no input, no output."""

from __future__ import annotations

from openpai_tasks.protocol.conversion import fit_names, to_v2
from openpai_tasks.protocol.dressing import dressed
from openpai_tasks.protocol.dumping import dump
from openpai_tasks.protocol.job import JobDocument, validate
from openpai_tasks.protocol.problems import Problem
from openpai_tasks.protocol.reader import read
from openpai_tasks.protocol.roles import StorageMount, TaskRole
from openpai_tasks.protocol.spec import JobSpec, RoleSpec, document
from openpai_tasks.protocol.v1 import validate_v1

__all__ = [
    "JobDocument",
    "JobSpec",
    "Problem",
    "RoleSpec",
    "StorageMount",
    "TaskRole",
    "document",
    "dressed",
    "dump",
    "fit_names",
    "read",
    "to_v2",
    "validate",
    "validate_v1",
]
