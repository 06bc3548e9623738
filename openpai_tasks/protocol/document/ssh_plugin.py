"""The runtime plugin ``ssh`` in a job document, which allows logins with a public key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from openpai_tasks.protocol.document.roles import PLUGINS
from openpai_tasks.protocol.fields import mapping, rows
from openpai_tasks.protocol.states import role_key

SSH = "ssh"
NOT_SERVED = "SshNotServed"
"""The reason of the event with which an embedded cluster reports that it has no SSH service."""


def with_key(extras: Mapping[str, Any], public_key: str) -> dict[str, Any]:
    """Add a public key to the extras, next to the existing keys.

    Failures of the plugin are ignored: a job should not fail because its image has no sshd.
    """
    plugins = _plugins(extras)
    there = next((one for one in plugins if _is_ssh(one)), None)
    if there is None:
        there = {"plugin": SSH, "parameters": {"jobssh": False}, "failurePolicy": "ignore"}
        plugins.append(there)
    return {**extras, PLUGINS: [_add_key(one, public_key) if one is there else one for one in plugins]}


def has_ssh(document: Any, role: str) -> bool:
    """Whether the role uses the plugin, in the extras or as a prerequisite."""
    known = mapping(document)
    if any(_is_ssh(one) and _is_for(one, role) for one in _plugins(known.get("extras"))):
        return True
    roles = mapping(known.get("taskRoles")).items()
    own = next((one for name, one in roles if role in (name, role_key(name))), None)
    needed = mapping(own).get("prerequisites")
    needed = needed if isinstance(needed, list) else []
    return any(
        one.get("name") in needed and one.get("plugin") == f"{PLUGINS}.{SSH}"
        for one in rows(known.get("prerequisites"))
    )


def _plugins(extras: Any) -> list[Any]:
    found = extras.get(PLUGINS) if isinstance(extras, Mapping) else None
    return list(found) if isinstance(found, list) else []


def _is_ssh(plugin: Any) -> bool:
    return isinstance(plugin, dict) and plugin.get("plugin") == SSH


def _is_for(plugin: dict[str, Any], role: str) -> bool:
    roles = plugin.get("taskroles")
    return not isinstance(roles, list) or bool({role, role_key(role)} & set(map(str, roles)))


def _add_key(plugin: dict[str, Any], public_key: str) -> dict[str, Any]:
    parameters = dict(plugin.get("parameters") or {})
    given = parameters.get("userssh")
    value = given.get("value") if isinstance(given, dict) and given.get("type") != "none" else None
    others = [line for line in str(value or "").splitlines() if line.strip() and line != public_key]
    parameters["userssh"] = {"type": "custom", "value": "\n".join([*others, public_key])}
    return {**plugin, "parameters": parameters}
