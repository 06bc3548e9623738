"""The shape of a v2 job document, as the 1.8 server checks it; where the server is lax, so is this."""

from __future__ import annotations

from typing import Any

from openpai_tasks.protocol.reader import Path
from openpai_tasks.protocol.rules import (
    Report,
    Rule,
    anything,
    fields,
    items,
    kind,
    named,
    never,
    number_or_text,
    one_of,
    text,
    whole,
)

NAME = "[a-zA-Z0-9_-]+"
WORD = "[a-zA-Z_][a-zA-Z0-9_]*"

_free = fields({}, others=True)
_commands = items(text(), least=1)
_version = one_of(2, "2")
_name = text(NAME, longest=255)
_common: dict[str, Rule] = {
    "protocolVersion": _version,
    "name": _name,
    "version": number_or_text,
    "contributor": text(),
    "description": text(),
}
_plugin: dict[str, Rule] = {"type": anything, "plugin": text(), "require": items(text())}
_auth = fields({"username": text(), "password": text(), "registryuri": text()}, others=True)
_asset = fields({**_common, **_plugin, "uri": text()}, required=("name",), others=True)
_prerequisites: dict[str, Rule] = {
    "script": _asset,
    "output": _asset,
    "data": fields({**_common, **_plugin, "uri": items(text())}, required=("name",), others=True),
    "dockerimage": fields(
        {**_common, "type": anything, "auth": _auth, "uri": text()}, required=("name", "uri")
    ),
}


def _prerequisite(value: Any, path: Path, report: Report) -> None:
    """The type of a prerequisite decides which other keys it has."""
    if not isinstance(value, dict):
        report.add(path, f"must be a mapping, got {kind(value)}")
    elif "type" not in value:
        report.add((*path, "type"), "is required but missing")
    else:
        one_of(*_prerequisites)(value["type"], (*path, "type"), report)
        if isinstance(value["type"], str) and value["type"] in _prerequisites:
            _prerequisites[value["type"]](value, path, report)


_resources = fields(
    {"cpu": whole(), "memoryMB": whole(), "gpu": whole(), "ports": named(WORD, whole())},
    required=("cpu", "memoryMB", "gpu"),
)
_role = fields(
    {
        "protocolVersion": _version,
        "instances": whole(least=1),
        "completion": fields(
            {"minFailedInstances": whole(null=True), "minSucceededInstances": whole(null=True)}
        ),
        "taskRetryCount": whole(),
        "prerequisites": items(text()),
        "dockerImage": text(),
        "data": text(),
        "output": text(),
        "script": text(),
        # the server forbids a key of this very name, a slip in its own schema
        "extraContainerOptions": fields({"shmMB": whole(), "additionalProperties": never}, others=True),
        "resourcePerInstance": _resources,
        "commands": _commands,
    },
    required=("dockerImage", "resourcePerInstance", "commands"),
)
_deployment = fields(
    {
        "protocolVersion": _version,
        "name": _name,
        "taskRoles": named(WORD, fields({"preCommands": _commands, "postCommands": _commands})),
    },
    required=("name", "taskRoles"),
    others=True,
)

JOB = fields(
    {
        **_common,
        "type": one_of("job"),
        "prerequisites": items(_prerequisite, least=1),
        "parameters": _free,
        "secrets": _free,
        "jobRetryCount": whole(least=0),
        "taskRoles": named(WORD, _role),
        "deployments": items(_deployment, least=1),
        "defaults": fields({"deployment": text()}, others=True),
        "extras": _free,
    },
    required=("protocolVersion", "name", "type", "taskRoles"),
)
