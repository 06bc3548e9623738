"""The protocol between client and server: paths, states, and the job document; pure data, no I/O."""

from __future__ import annotations

from openpai_tasks.protocol.document.job import JobDocument, validate
from openpai_tasks.protocol.document.request import JobRequest, RoleRequest, document
from openpai_tasks.protocol.document.roles import StorageMount, TaskRole
from openpai_tasks.protocol.document.wrap_commands import wrap_commands
from openpai_tasks.protocol.legacy.conversion import fit_names, to_v2
from openpai_tasks.protocol.legacy.v1 import validate_v1
from openpai_tasks.protocol.problems import Problem
from openpai_tasks.protocol.yaml.dumping import dump
from openpai_tasks.protocol.yaml.reader import read

__all__ = [
    "JobDocument",
    "JobRequest",
    "Problem",
    "RoleRequest",
    "StorageMount",
    "TaskRole",
    "document",
    "dump",
    "fit_names",
    "read",
    "to_v2",
    "validate",
    "validate_v1",
    "wrap_commands",
]
