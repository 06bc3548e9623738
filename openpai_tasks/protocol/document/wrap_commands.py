"""What goes around the commands of a document: steps before them, secrets, storages, virtual cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from openpai_tasks.errors import ProtocolError
from openpai_tasks.protocol.document import scripts, ssh_plugin
from openpai_tasks.protocol.document.template import OPEN, literal

if TYPE_CHECKING:
    from openpai_tasks.protocol.document.request import JobRequest

DEPLOYMENT = "default"
BRACKET = "openTag"
"""The parameter that stands for ``<%``, so that a command which contains it arrives as it is."""


def wrapped(document: dict[str, Any], request: JobRequest, has_brackets: bool = False) -> dict[str, Any]:
    """The document with what the request puts around the commands of every role: steps, secrets, storages."""
    plain = _steps(request)
    result = {**document, "taskRoles": _roles(document["taskRoles"], request)}
    if has_brackets or any(OPEN in step for step in plain):
        if request.secrets:
            raise ProtocolError(f"a job with secrets cannot have {OPEN!r} in its commands or variables")
        result["parameters"] = {**(result.get("parameters") or {}), BRACKET: OPEN}
    if request.secrets:
        kept = {name: scripts.secret_value(value) for name, value in request.secrets.items()}
        result["secrets"] = {**(result.get("secrets") or {}), **kept}
    before = [literal(step, BRACKET) for step in plain] + _secret_steps(request)
    return _ordered({**result, **_around(result, request, before)})


def _around(document: dict[str, Any], request: JobRequest, before: list[str]) -> dict[str, Any]:
    """Deployment, defaults and extras, where there are any."""
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
    """Those that are there, with the steps in front of all that the chosen one does before."""
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
    """What runs before the command of every role."""
    steps = [scripts.step(scripts.export(name, value)) for name, value in request.environment.items()]
    seen = scripts.for_logins(request.environment) if request.ssh_key else ""
    steps += [seen] if seen else []
    if request.home:
        steps.append(request.home.output())
    if request.home and request.archive:
        steps.append(request.home.fetch(request.archive))
    if request.pip_installs:
        steps.append(scripts.step(scripts.install(request.python, request.pip_installs)))
    return steps


def _roles(roles: dict[str, Any], request: JobRequest) -> dict[str, Any]:
    """With what has to be around the commands themselves for their output to be kept."""
    home = request.home
    if home is None:
        return roles
    return {name: {**role, "commands": home.around(role["commands"])} for name, role in roles.items()}


def _secret_steps(request: JobRequest) -> list[str]:
    """Last, so that no installer gets to see them; their holes stay open until the job runs."""
    return [scripts.step(scripts.export_secret(name, value)) for name, value in request.secrets.items()]
