"""Add the parts of a request to a document: steps before the commands, secrets, storages, virtual cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from openpai_tasks.errors import ProtocolError
from openpai_tasks.protocol.document import scripts, ssh_plugin
from openpai_tasks.protocol.document.template import OPEN, escape_brackets

if TYPE_CHECKING:
    from openpai_tasks.protocol.document.request import JobRequest

DEPLOYMENT = "default"
BRACKET = "openTag"
"""The parameter that stands for ``<%``, so that commands that contain it are not changed."""


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
    before = [escape_brackets(step, BRACKET) for step in plain] + _secret_steps(request)
    return _ordered({**result, **_around(result, request, before)})


def _around(document: dict[str, Any], request: JobRequest, before: list[str]) -> dict[str, Any]:
    """Return the deployments, defaults and extras, if any."""
    defaults = dict(document.get("defaults") or {})
    if request.virtual_cluster:
        defaults["virtualCluster"] = request.virtual_cluster
    deployments = list(document.get("deployments") or ())
    if before:
        chosen = str(defaults.setdefault("deployment", DEPLOYMENT))
        deployments = _deployments(deployments, chosen, list(document["taskRoles"]), before)
    extras = {**(document.get("extras") or {}), **request.extras}
    if request.storage:
        extras["storages"] = _storages(extras.get("storages"), request.storage)
    if request.ssh_key:
        extras = ssh_plugin.with_key(extras, request.ssh_key)
    found: dict[str, Any] = {"deployments": deployments, "defaults": defaults, "extras": extras}
    return {key: value for key, value in found.items() if value}


def _deployments(there: list[Any], chosen: str, roles: list[str], before: list[str]) -> list[Any]:
    """Add the steps in front of the chosen deployment's own commands."""
    none: dict[str, Any] = {"name": chosen, "taskRoles": {}}
    old = next((one for one in there if one["name"] == chosen), none)
    steps = {
        role: {**(old["taskRoles"].get(role) or {}), "preCommands": [*before, *_pre_commands(old, role)]}
        for role in roles
    }
    new = {**old, "taskRoles": {**old["taskRoles"], **steps}}
    return [new if one is old else one for one in there] if old in there else [*there, new]


def _pre_commands(deployment: dict[str, Any], role: str) -> list[str]:
    return list((deployment["taskRoles"].get(role) or {}).get("preCommands") or ())


def _storages(there: Any, name: str) -> list[Any]:
    found = list(there) if isinstance(there, list) else []
    return found if {"name": name} in found else [*found, {"name": name}]


_ORDER = (
    *("protocolVersion", "name", "type", "version", "contributor", "description", "jobRetryCount"),
    *("prerequisites", "parameters", "secrets", "taskRoles", "deployments", "defaults", "extras"),
)


def _ordered(document: dict[str, Any]) -> dict[str, Any]:
    return {key: document[key] for key in _ORDER if key in document} | document


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


def _secret_steps(request: JobRequest) -> list[str]:
    """Return the exports of secrets, which run last so that installers do not see them."""
    return [scripts.step(scripts.export_secret(name, value)) for name, value in request.secrets.items()]
