"""Build job documents from requests; add steps before the commands, secrets, storages, virtual cluster."""

from __future__ import annotations

from typing import Any

from openpai_tasks.errors import ProtocolError
from openpai_tasks.protocol.document import scripts, ssh_plugin
from openpai_tasks.protocol.document.policy import policy_extras, with_priority
from openpai_tasks.protocol.document.ports import listening_mark, port_counts
from openpai_tasks.protocol.document.request import JobRequest, RoleRequest
from openpai_tasks.protocol.document.roles import DEFAULTS
from openpai_tasks.protocol.document.template import OPEN, escape_brackets

IMAGE = "image"
CPU, MEMORY_MB = 2, 4096  # defaults of a task
DEPLOYMENT = "default"
BRACKET = "openTag"
"""The parameter that stands for ``<%``, so that commands that contain it are not changed."""


def build_document(request: JobRequest) -> dict[str, Any]:
    """Build the v2 job document of a request, around its base if it has one."""
    if request.base is not None:
        return wrap_commands({**request.base, "name": request.name}, request)
    _check(request)
    uris = dict.fromkeys(_image(request, role) for role in request.all_roles)
    images = {uri: IMAGE if number == 1 else f"{IMAGE}-{number}" for number, uri in enumerate(uris, 1)}
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
            role.name: _task_role(request, role, images[_image(request, role)]) for role in request.all_roles
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


def _command(request: JobRequest, role: RoleRequest) -> str:
    if request.max_seconds is None:
        return role.command
    policy = request.policy
    return scripts.limit_time(role.command, request.max_seconds, policy.requeues, policy.grace)


def _task_role(request: JobRequest, role: RoleRequest, image: str) -> dict[str, Any]:
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


def wrap_commands(
    document: dict[str, Any], request: JobRequest, has_brackets: bool = False
) -> dict[str, Any]:
    """Add the request's steps, secrets and storages to the document."""
    plain = _steps(request)
    result = {**document, "taskRoles": _roles(document["taskRoles"], request)}
    if has_brackets or any(OPEN in step for step in plain):
        if request.secrets:
            raise ProtocolError(f"a job with secrets must not have {OPEN!r} in its commands or variables")
        result["parameters"] = {**(result.get("parameters") or {}), BRACKET: OPEN}
    if request.secrets:
        kept = {name: scripts.secret_value(value) for name, value in request.secrets.items()}
        result["secrets"] = {**(result.get("secrets") or {}), **kept}
    before = [escape_brackets(step, BRACKET) for step in plain]
    # last, so that installers do not see the secrets
    before += [scripts.step(scripts.export_secret(name, value)) for name, value in request.secrets.items()]
    result |= _around(result, request, before)
    return {key: result[key] for key in _ORDER if key in result} | result


def _around(document: dict[str, Any], request: JobRequest, before: list[str]) -> dict[str, Any]:
    """Return the deployments, defaults and extras, if any."""
    defaults = dict(document.get("defaults") or {})
    if request.virtual_cluster:
        defaults["virtualCluster"] = request.virtual_cluster
    deployments = list(document.get("deployments") or ())
    if before:
        chosen = str(defaults.setdefault("deployment", DEPLOYMENT))
        deployments = _deployments(deployments, chosen, list(document["taskRoles"]), before)
    extras = {**(document.get("extras") or {}), **request.extras, **policy_extras(request.policy)}
    extras = with_priority(extras, request.priority)
    if request.storage:
        given, wanted = extras.get("storages"), {"name": request.storage}
        others = given if isinstance(given, list) else []
        extras["storages"] = others if wanted in others else [*others, wanted]
    if request.ssh_key:
        extras = ssh_plugin.with_key(extras, request.ssh_key)
    found: dict[str, Any] = {"deployments": deployments, "defaults": defaults, "extras": extras}
    return {key: value for key, value in found.items() if value}


def _deployments(there: list[Any], chosen: str, roles: list[str], before: list[str]) -> list[Any]:
    """Add the steps in front of the chosen deployment's own commands."""
    none: dict[str, Any] = {"name": chosen, "taskRoles": {}}
    old = next((one for one in there if one["name"] == chosen), none)
    given = {role: old["taskRoles"].get(role) or {} for role in roles}
    steps = {
        role: {**own, "preCommands": [*before, *(own.get("preCommands") or ())]}
        for role, own in given.items()
    }
    new = {**old, "taskRoles": {**old["taskRoles"], **steps}}
    return [new if one is old else one for one in there] if old in there else [*there, new]


_ORDER = (
    *("protocolVersion", "name", "type", "version", "contributor", "description", "jobRetryCount"),
    *("prerequisites", "parameters", "secrets", "taskRoles", "deployments", "defaults", "extras"),
)


def _steps(request: JobRequest) -> list[str]:
    """Return the steps that run before every role's commands."""
    steps = [scripts.step(scripts.export(name, value)) for name, value in request.environment.items()]
    seen = scripts.export_to_logins(request.environment) if request.ssh_key else ""
    steps += [seen] if seen else []
    if request.home:
        steps.append(request.home.output(request.outputs))
    if request.home and request.archive:
        steps.append(request.home.fetch(request.archive))
    if request.pip_installs:
        steps.append(scripts.install(request.python, request.pip_installs))
    if request.ssh_key:
        changed = [scripts.OUTPUT] if request.home else []
        changed += ["PYTHONPATH"] if request.archive or request.pip_installs else []
        steps += [scripts.export_to_logins(dict.fromkeys(changed, ""))] if changed else []
    return steps


def _roles(roles: dict[str, Any], request: JobRequest) -> dict[str, Any]:
    """Wrap the commands of every role as the storage needs it to keep their output."""
    home = request.home
    if home is None:
        return roles
    return {
        name: {**role, "commands": home.around(role["commands"], request.outputs)}
        for name, role in roles.items()
    }
