"""Requests for jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields
from typing import Any

from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol.document.job_storage import Home
from openpai_tasks.protocol.document.policy import JobPolicy


@dataclass(frozen=True)
class RoleRequest:
    """A task role: its command, number of tasks, and resources per task; None means the default."""

    name: str
    command: str
    instances: int = 1
    image: str = ""
    cpu: int | None = None
    gpu: int | None = None
    memory_mb: int | None = None
    shm_mb: int | None = None
    ports: Mapping[str, int] = field(default_factory=dict)  # counts, or from 1024 up the program's port
    min_failed: int | None = None
    min_succeeded: int | None = None


@dataclass(frozen=True)
class JobRequest:
    """A requested job, built in the same way from flags, notebooks, sweeps, templates and resubmissions.

    None or empty values mean the default, or the value in the document that the request changes.
    """

    command: str = ""
    name: str = ""  # each ``$`` becomes random letters; made from the command if empty
    image: str = ""
    cpu: int | None = None
    gpu: int | None = None
    memory_mb: int | None = None
    is_memory_asked: bool = field(default=True, repr=False)  # False if ``memory_mb`` is a built-in default
    shm_mb: int | None = None
    instances: int = 1
    role: str = "main"
    ports: Mapping[str, int] = field(default_factory=dict)
    roles: tuple[RoleRequest, ...] = ()  # instead of command, image, ..., ports above
    virtual_cluster: str = ""
    retries: int = 0
    max_seconds: int | None = None
    pip_installs: tuple[str, ...] = ()
    python: str = "python3"
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    sources: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()  # patterns of files in the working folder that are kept
    workspace: str = ""
    ssh_key: str = ""  # public key for ssh logins to its containers
    tags: tuple[str, ...] = ()
    policy: JobPolicy = JobPolicy()
    updates: tuple[tuple[str, Any] | str, ...] = field(default=(), repr=False)  # of the document: path, value
    extras: Mapping[str, Any] = field(default_factory=dict)
    base: Mapping[str, Any] | None = field(default=None, repr=False)  # a template's document, filled in
    priority: str = ""  # OpenPAI's class
    archive: str = ""  # SHA-256 of the packed sources; like the fields below, set when they are packed
    home: Home | None = None
    storage: str | None = None
    hooks: tuple[str, ...] = field(default=(), repr=False)  # as JSON with secrets; not in the document

    @property
    def all_roles(self) -> tuple[RoleRequest, ...]:
        return self.roles or (self.first_role,)

    @property
    def first_role(self) -> RoleRequest:
        """The single role of a job without ``roles``."""
        shared = {item.name for item in fields(RoleRequest)} & {item.name for item in fields(JobRequest)}
        return RoleRequest(**{**{name: getattr(self, name) for name in shared}, "name": self.role})
