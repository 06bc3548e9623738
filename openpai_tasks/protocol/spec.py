"""What a person asks for, and the job document made of it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from openpai_tasks.errors import ProtocolError
from openpai_tasks.protocol.template import OPEN, literal

MOUNTS = "/mnt/"
IMAGE = "image"
DEPLOYMENT = "default"
BRACKET = "openTag"
"""The parameter that stands for ``<%``, so that a command which contains it arrives as it is."""

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class JobSpec:
    """One command, the image it runs in, what it needs, and what is put beside it."""

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
    sources_folder: str | None = None  # as the job sees it: /mnt/<storage>/...
    storage: str | None = None
    extras: Mapping[str, Any] = field(default_factory=dict)


def document(spec: JobSpec) -> dict[str, Any]:
    """The v2 job document of a spec."""
    for what in ("command", "name", "image"):
        if not getattr(spec, what):
            raise ProtocolError(f"a job needs {'an' if what == 'image' else 'a'} {what}")
    before = _before(spec)
    result: dict[str, Any] = {
        "protocolVersion": 2,
        "name": spec.name,
        "type": "job",
        "jobRetryCount": spec.retries,
        "prerequisites": [
            {"protocolVersion": 2, "name": IMAGE, "type": "dockerimage", "uri": spec.image},
        ],
    }
    if any(OPEN in command for command in (*before, spec.command)):
        result["parameters"] = {BRACKET: OPEN}
    result["taskRoles"] = {spec.role: _role(spec)}
    if before:
        commands = [literal(command, BRACKET) for command in before]
        result["deployments"] = [{"name": DEPLOYMENT, "taskRoles": {spec.role: {"preCommands": commands}}}]
    return {**result, **_closing(spec, bool(before))}


def _role(spec: JobSpec) -> dict[str, Any]:
    resources: dict[str, Any] = {"cpu": spec.cpu, "memoryMB": spec.memory_mb, "gpu": spec.gpu}
    if spec.ports:
        resources["ports"] = dict(spec.ports)
    role: dict[str, Any] = {"instances": spec.instances, "dockerImage": IMAGE}
    if spec.shm_mb is not None:
        role["extraContainerOptions"] = {"shmMB": spec.shm_mb}
    return {**role, "resourcePerInstance": resources, "commands": [literal(spec.command, BRACKET)]}


def _closing(spec: JobSpec, deployed: bool) -> dict[str, Any]:
    """Defaults and extras, where there are any."""
    defaults = {"virtualCluster": spec.virtual_cluster} if spec.virtual_cluster else {}
    if deployed:
        defaults["deployment"] = DEPLOYMENT
    extras = dict(spec.extras)
    if spec.storage:
        extras.setdefault("storages", [{"name": spec.storage}])
    found: dict[str, Any] = {"defaults": defaults, "extras": extras}
    return {key: value for key, value in found.items() if value}


def _before(spec: JobSpec) -> list[str]:
    """What runs before the command; each ends the job itself, as not every server does that."""
    steps = [f"export {variable(name)}={shlex.quote(value)}" for name, value in spec.environment.items()]
    if spec.sources_folder:
        steps.append(f"cp -R {_mounted(spec.sources_folder.rstrip('/') + '/.')} .")
    if spec.pip_installs:
        packages = " ".join(map(shlex.quote, spec.pip_installs))
        steps.append(f"{shlex.quote(spec.python)} -m pip install {packages}")
    return [f"{step} || exit 1" for step in steps]


def variable(name: str) -> str:
    """The name, if a shell can export it."""
    if not _VARIABLE.fullmatch(name):
        raise ProtocolError(f"{name!r} cannot be the name of a variable: letters, digits and _ only")
    return name


def _mounted(path: str) -> str:
    """A path in double quotes, below the folder of mounts where the cluster cannot mount at the root."""
    escaped = re.sub(r'([\\"$`])', r"\\\1", path)
    return f'"${{PAI_MOUNT_ROOT-}}{escaped}"' if path.startswith(MOUNTS) else f'"{escaped}"'
