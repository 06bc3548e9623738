"""What a person asks for, and the job document made of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from openpai_tasks.errors import ProtocolError
from openpai_tasks.protocol.document import scripts
from openpai_tasks.protocol.document.job_storage import Home
from openpai_tasks.protocol.document.template import OPEN, literal
from openpai_tasks.protocol.document.wrap_commands import BRACKET, dressed

IMAGE = "image"


@dataclass(frozen=True)
class RoleSpec:
    """One kind of task: its command, how many of them, and what each needs."""

    name: str
    command: str
    instances: int = 1
    image: str = ""
    cpu: int = 2
    gpu: int = 0
    memory_mb: int = 4096
    shm_mb: int | None = None
    ports: Mapping[str, int] = field(default_factory=dict)
    min_failed: int | None = None
    min_succeeded: int | None = None


@dataclass(frozen=True)
class JobSpec:
    """A command, the image it runs in, what it needs, and what is put beside it; or several ``roles``."""

    command: str
    name: str = ""
    image: str = ""
    cpu: int = 2
    gpu: int = 0
    memory_mb: int = 4096
    shm_mb: int | None = None
    virtual_cluster: str | None = None
    instances: int = 1
    role: str = "main"
    ports: Mapping[str, int] = field(default_factory=dict)
    retries: int = 0
    pip_installs: tuple[str, ...] = ()
    python: str = "python3"
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    archive: str = ""  # the SHA-256 of the archive with the sources, which is in its home
    storage: str | None = None
    extras: Mapping[str, Any] = field(default_factory=dict)
    roles: tuple[RoleSpec, ...] = ()  # in place of command, image, ..., ports above
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    max_seconds: int | None = None
    home: Home | None = None  # where it keeps its files
    ssh_key: str = ""  # a public key that opens its containers

    @property
    def all_roles(self) -> tuple[RoleSpec, ...]:
        return self.roles or (
            RoleSpec(
                self.role,
                self.command,
                self.instances,
                self.image,
                self.cpu,
                self.gpu,
                self.memory_mb,
                self.shm_mb,
                self.ports,
            ),
        )


def document(spec: JobSpec) -> dict[str, Any]:
    """The v2 job document of a spec."""
    _check(spec)
    images = _images(spec)
    result: dict[str, Any] = {
        "protocolVersion": 2,
        "name": spec.name,
        "type": "job",
        "jobRetryCount": spec.retries,
        "prerequisites": [
            {"protocolVersion": 2, "name": name, "type": "dockerimage", "uri": uri}
            for uri, name in images.items()
        ],
        "taskRoles": {role.name: _role(spec, role, images[_image(spec, role)]) for role in spec.all_roles},
    }
    commands = [_command(spec, role) for role in spec.all_roles]
    return dressed(result, spec, any(OPEN in command for command in commands))


def _check(spec: JobSpec) -> None:
    if not spec.name:
        raise ProtocolError("a job needs a name")
    for role in spec.all_roles:
        if not role.command:
            raise ProtocolError(
                "a job needs a command" + f" (role {role.name!r} has none)" * bool(spec.roles)
            )
        if not _image(spec, role):
            raise ProtocolError("a job needs an image")


def _image(spec: JobSpec, role: RoleSpec) -> str:
    return role.image or spec.image


def _images(spec: JobSpec) -> dict[str, str]:
    """Each image that a role runs in, and what it is called in the document."""
    uris = dict.fromkeys(_image(spec, role) for role in spec.all_roles)
    return {uri: IMAGE if number == 1 else f"{IMAGE}-{number}" for number, uri in enumerate(uris, 1)}


def _command(spec: JobSpec, role: RoleSpec) -> str:
    return role.command if spec.max_seconds is None else scripts.limited(role.command, spec.max_seconds)


def _role(spec: JobSpec, role: RoleSpec, image: str) -> dict[str, Any]:
    resources: dict[str, Any] = {"cpu": role.cpu, "memoryMB": role.memory_mb, "gpu": role.gpu}
    if role.ports:
        resources["ports"] = dict(role.ports)
    result: dict[str, Any] = {"instances": role.instances}
    completion = _completion(spec, role)
    if completion:
        result["completion"] = completion
    result["dockerImage"] = image
    if role.shm_mb is not None:
        result["extraContainerOptions"] = {"shmMB": role.shm_mb}
    commands = [literal(_command(spec, role), BRACKET)]
    return {**result, "resourcePerInstance": resources, "commands": commands}


def _completion(spec: JobSpec, role: RoleSpec) -> dict[str, int]:
    """When the role ends the job; said in full where the generations of servers would not agree."""
    if len(spec.all_roles) == 1 and role.min_failed is None and role.min_succeeded is None:
        return {}
    return {
        "minFailedInstances": 1 if role.min_failed is None else role.min_failed,
        "minSucceededInstances": role.instances if role.min_succeeded is None else role.min_succeeded,
    }
