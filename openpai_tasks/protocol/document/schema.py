"""The schema of v2 job documents, as strict as the 1.8 server; only ``extras.jobPolicy`` is ours.

Documents are checked against this table, and the JSON Schema for editors is generated from it.
"""

from __future__ import annotations

from openpai_tasks.protocol.document.policy import KEY, WHEN
from openpai_tasks.protocol.document.rules import (
    Anything,
    Entries,
    Fields,
    Forbidden,
    Integer,
    Items,
    NumberOrText,
    OneOf,
    Rule,
    Text,
    Variants,
)

NAME = "[a-zA-Z0-9_-]+"
WORD = "[a-zA-Z_][a-zA-Z0-9_]*"

_free = Fields({}, others=True)
_commands = Items(Text(), least=1)
_version = OneOf((2, "2"))
_name = Text(NAME, longest=255)
_common: dict[str, Rule] = {
    "protocolVersion": _version,
    "name": _name,
    "version": NumberOrText(),
    "contributor": Text(),
    "description": Text(),
}
_plugin: dict[str, Rule] = {"type": Anything(), "plugin": Text(), "require": Items(Text())}
_auth = Fields({"username": Text(), "password": Text(), "registryuri": Text()}, others=True)
_asset = Fields({**_common, **_plugin, "uri": Text()}, required=("name",), others=True)
_prerequisite = Variants(
    "type",
    {
        "script": _asset,
        "output": _asset,
        "data": Fields({**_common, **_plugin, "uri": Items(Text())}, required=("name",), others=True),
        "dockerimage": Fields(
            {**_common, "type": Anything(), "auth": _auth, "uri": Text()}, required=("name", "uri")
        ),
    },
)
_resources = Fields(
    {"cpu": Integer(), "memoryMB": Integer(), "gpu": Integer(), "ports": Entries(WORD, Integer())},
    required=("cpu", "memoryMB", "gpu"),
)
_role = Fields(
    {
        "protocolVersion": _version,
        "instances": Integer(least=1),
        "completion": Fields(
            {"minFailedInstances": Integer(null=True), "minSucceededInstances": Integer(null=True)}
        ),
        "taskRetryCount": Integer(),
        "prerequisites": Items(Text()),
        "dockerImage": Text(),
        "data": Text(),
        "output": Text(),
        "script": Text(),
        # the server forbids a key with this name because of a mistake in its schema
        "extraContainerOptions": Fields(
            {"shmMB": Integer(), "additionalProperties": Forbidden()}, others=True
        ),
        "resourcePerInstance": _resources,
        "commands": _commands,
    },
    required=("dockerImage", "resourcePerInstance", "commands"),
)
_deployment = Fields(
    {
        "protocolVersion": _version,
        "name": _name,
        "taskRoles": Entries(WORD, Fields({"preCommands": _commands, "postCommands": _commands})),
    },
    required=("name", "taskRoles"),
    others=True,
)

_policy = Fields(
    {
        "after": Items(Fields({"job": Text(), "when": OneOf(WHEN)}, required=("job",))),
        "idleStopSeconds": Integer(least=0),
        "keepFailedSeconds": Integer(least=0),
        "requeues": Integer(least=0),
        "graceSeconds": Integer(least=0),
    }
)
JOB = Fields(
    {
        **_common,
        "type": OneOf(("job",)),
        "prerequisites": Items(_prerequisite, least=1),
        "parameters": _free,
        "secrets": _free,
        "jobRetryCount": Integer(least=0),
        "taskRoles": Entries(WORD, _role),
        "deployments": Items(_deployment, least=1),
        "defaults": Fields({"deployment": Text()}, others=True),
        "extras": Fields({KEY: _policy}, others=True),
    },
    required=("protocolVersion", "name", "type", "taskRoles"),
)
