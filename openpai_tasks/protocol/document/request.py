"""Requests for jobs, and the job documents built from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields
from typing import Any

from openpai_tasks.errors import ProtocolError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol.document import scripts
from openpai_tasks.protocol.document.job_storage import Home
from openpai_tasks.protocol.document.ports import listening_mark, port_counts
from openpai_tasks.protocol.document.roles import DEFAULTS
from openpai_tasks.protocol.document.template import OPEN, escape_brackets
from openpai_tasks.protocol.document.wrap_commands import BRACKET, wrap_commands

IMAGE = "image"
CPU, MEMORY_MB = 2, 4096  # defaults of a task


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
    after: tuple[str, ...] = ()  # jobs that must have succeeded first
    updates: tuple[str, ...] = field(default=(), repr=False)  # changes to the document, ``path=value``
    extras: Mapping[str, Any] = field(default_factory=dict)
    base: Mapping[str, Any] | None = field(default=None, repr=False)  # a template's document, filled in
    archive: str = ""  # SHA-256 of the packed sources; like the fields below, set when they are packed
    home: Home | None = None
    storage: str | None = None

    @property
    def all_roles(self) -> tuple[RoleRequest, ...]:
        return self.roles or (self.first_role,)

    @property
    def first_role(self) -> RoleRequest:
        """The single role of a job without ``roles``."""
        shared = {item.name for item in fields(RoleRequest)} & {item.name for item in fields(JobRequest)}
        return RoleRequest(**{**{name: getattr(self, name) for name in shared}, "name": self.role})


def build_document(request: JobRequest) -> dict[str, Any]:
    """Build the v2 job document of a request, around its base if it has one."""
    if request.base is not None:
        return wrap_commands({**request.base, "name": request.name}, request)
    _check(request)
    images = _images(request)
    result: dict[str, Any] = {
        "protocolVersion": 2,
        "name": request.name,
        "type": "job",
        "jobRetryCount": request.retries,
        "prerequisites": [
            {"protocolVersion": 2, "name": name, "type": "dockerimage", "uri": uri}
            for uri, name in images.items()
        ],
        "taskRoles": {
            role.name: _role(request, role, images[_image(request, role)]) for role in request.all_roles
        },
    }
    marks = listening_mark(request.all_roles)
    marks |= {} if request.is_memory_asked else {DEFAULTS: {"memoryMB": request.memory_mb}}
    result |= {"extras": marks} if marks else {}
    commands = [_command(request, role) for role in request.all_roles]
    return wrap_commands(result, request, any(OPEN in command for command in commands))


def _check(request: JobRequest) -> None:
    if not request.name:
        raise ProtocolError("a job needs a name")
    for role in request.all_roles:
        if not role.command:
            raise ProtocolError(
                "a job needs a command" + f" (role {role.name!r} has none)" * bool(request.roles)
            )
        if not _image(request, role):
            raise ProtocolError("a job needs an image")


def _image(request: JobRequest, role: RoleRequest) -> str:
    return role.image or request.image


def _images(request: JobRequest) -> dict[str, str]:
    """Return the images that roles run in, each with its name in the document."""
    uris = dict.fromkeys(_image(request, role) for role in request.all_roles)
    return {uri: IMAGE if number == 1 else f"{IMAGE}-{number}" for number, uri in enumerate(uris, 1)}


def _command(request: JobRequest, role: RoleRequest) -> str:
    return (
        role.command if request.max_seconds is None else scripts.limit_time(role.command, request.max_seconds)
    )


def _role(request: JobRequest, role: RoleRequest, image: str) -> dict[str, Any]:
    resources: dict[str, Any] = {
        "cpu": CPU if role.cpu is None else role.cpu,
        "memoryMB": MEMORY_MB if role.memory_mb is None else role.memory_mb,
        "gpu": role.gpu or 0,
    }
    if role.ports:
        resources["ports"] = port_counts(role.ports)
    result: dict[str, Any] = {"instances": role.instances}
    completion = _completion(request, role)
    if completion:
        result["completion"] = completion
    result["dockerImage"] = image
    if role.shm_mb is not None:
        result["extraContainerOptions"] = {"shmMB": role.shm_mb}
    commands = [escape_brackets(_command(request, role), BRACKET)]
    return {**result, "resourcePerInstance": resources, "commands": commands}


def _completion(request: JobRequest, role: RoleRequest) -> dict[str, int]:
    """Return when the role ends the job, explicitly where generations of servers differ."""
    if len(request.all_roles) == 1 and role.min_failed is None and role.min_succeeded is None:
        return {}
    return {
        "minFailedInstances": 1 if role.min_failed is None else role.min_failed,
        "minSucceededInstances": role.instances if role.min_succeeded is None else role.min_succeeded,
    }
