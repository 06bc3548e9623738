"""The rules of schema.py as JSON Schema (draft 7, which most editors support), with descriptions.

It is exactly as strict as the table. Rules about the whole document, such as names of prerequisites that must
exist, are only checked by `job.validate`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from openpai_tasks.protocol.document import rules
from openpai_tasks.protocol.document.schema import JOB

DRAFT = "http://json-schema.org/draft-07/schema#"

Schema = dict[str, Any]

STARTER: Schema = {
    "protocolVersion": 2,
    "name": "${1:my-job}",
    "type": "job",
    "prerequisites": [{"name": "image", "type": "dockerimage", "uri": "${2:python:3.11}"}],
    "taskRoles": {
        "${3:main}": {
            "instances": 1,
            "dockerImage": "image",
            "resourcePerInstance": {"cpu": 1, "memoryMB": 4096, "gpu": 0},
            "commands": ["${4:python3 train.py}"],
        }
    },
}
"""The snippet that editors offer in an empty file, with numbered placeholders."""


def job_schema() -> Schema:
    """Return the JSON Schema of v2 job documents."""
    snippet = {"label": "job", "description": "a job with one task role", "body": STARTER}
    return {"$schema": DRAFT, "title": "OpenPAI job", **rule_schema(JOB, ()), "defaultSnippets": [snippet]}


def rule_schema(rule: rules.Rule, path: tuple[str, ...]) -> Schema:
    """Return the JSON Schema of the rule for the part of a document at ``path``."""
    return {**HINTS.get(".".join(path), {}), **_WRITERS[type(rule)](rule, path)}


def whole_match(pattern: str) -> str:
    """Anchor a pattern, as JSON Schema matches anywhere in a text."""
    return f"^{pattern}$"


def _text(rule: rules.Text, path: tuple[str, ...]) -> Schema:
    limits: Schema = {"pattern": whole_match(rule.pattern)} if rule.pattern else {}
    return {"type": "string", **limits, **({"maxLength": rule.longest} if rule.longest else {})}


def _integer(rule: rules.Integer, path: tuple[str, ...]) -> Schema:
    limit = {} if rule.least is None else {"minimum": rule.least}
    return {"type": ["integer", "null"] if rule.null else "integer", **limit}


def _items(rule: rules.Items, path: tuple[str, ...]) -> Schema:
    least = {"minItems": rule.least} if rule.least else {}
    return {"type": "array", "items": rule_schema(rule.rule, (*path, "*")), **least}


def _fields(rule: rules.Fields, path: tuple[str, ...]) -> Schema:
    known = {
        key: False if isinstance(value, rules.Forbidden) else rule_schema(value, (*path, key))
        for key, value in rule.known.items()
    }
    schema: Schema = {"type": "object", "properties": {**known, **_suggestions(rule, path)}}
    if rule.required:
        schema["required"] = list(rule.required)
    return schema if rule.others else {**schema, "additionalProperties": False}


def _suggestions(rule: rules.Fields, path: tuple[str, ...]) -> Schema:
    """Describe known keys where any key is allowed, without restricting their values."""
    if not rule.others:
        return {}
    prefix = ".".join((*path, ""))
    known = {key.removeprefix(prefix): hint for key, hint in HINTS.items() if key.startswith(prefix)}
    free = (key for key in known if not key.startswith("*") and key.split(".")[0] not in rule.known)
    return {key: known[key] for key in free if key not in rule.known}


def _entries(rule: rules.Entries, path: tuple[str, ...]) -> Schema:
    """Set no type: the server's rule does not apply to values other than mappings."""
    names = {whole_match(rule.pattern): rule_schema(rule.rule, (*path, "*"))}
    return {"patternProperties": names, "additionalProperties": False, "minProperties": 1}


def _variants(rule: rules.Variants, path: tuple[str, ...]) -> Schema:
    choices = {"enum": list(rule.rules), **HINTS[".".join((*path, rule.key))]}
    return {
        "type": "object",
        "required": [rule.key],
        "properties": {rule.key: choices},
        "allOf": [
            {
                "if": {"required": [rule.key], "properties": {rule.key: {"const": name}}},
                "then": _fields(fields, path),
            }
            for name, fields in rule.rules.items()
        ],
    }


_WRITERS: dict[type, Callable[[Any, tuple[str, ...]], Schema]] = {
    rules.Anything: lambda rule, path: {},
    rules.Entries: _entries,
    rules.Fields: _fields,
    rules.Items: _items,
    rules.NumberOrText: lambda rule, path: {"type": ["string", "number"]},
    rules.OneOf: lambda rule, path: {"enum": list(rule.allowed)},
    rules.Text: _text,
    rules.Variants: _variants,
    rules.Integer: _integer,
}


def _hint(about: str, default: Any = None, examples: tuple[Any, ...] = ()) -> Schema:
    found = {"description": about, "default": default, "examples": list(examples)}
    return {name: value for name, value in found.items() if value not in (None, [])}


HINTS: dict[str, Schema] = {
    "": _hint("A job for OpenPAI, protocol version 2."),
    "protocolVersion": _hint("The version of this protocol.", examples=(2,)),
    "name": _hint("The job's name, unique among your jobs: letters, digits, _ and -.", examples=("mnist-1",)),
    "type": _hint("What this document describes.", examples=("job",)),
    "version": _hint("The version of your job, for yourself.", examples=("1.0",)),
    "contributor": _hint("Who wrote it."),
    "description": _hint("What the job does."),
    "prerequisites": _hint(
        "What the job needs to run: images, and scripts, data and outputs that commands refer to."
    ),
    "prerequisites.*": _hint("An image, script, data set or output; `type` says which."),
    "prerequisites.*.protocolVersion": _hint("The version of this protocol.", examples=(2,)),
    "prerequisites.*.name": _hint("The name by which task roles refer to it.", examples=("image",)),
    "prerequisites.*.type": _hint("dockerimage, script, data or output."),
    "prerequisites.*.version": _hint("Its version, for yourself."),
    "prerequisites.*.contributor": _hint("Who provided it."),
    "prerequisites.*.description": _hint("What it is."),
    "prerequisites.*.uri": _hint(
        "Where it is: an image's name, or the address that commands see as <% $script.uri %> and the like.",
        examples=("python:3.11",),
    ),
    "prerequisites.*.uri.*": _hint("One address."),
    "prerequisites.*.plugin": _hint("The plugin that makes it available."),
    "prerequisites.*.require": _hint("Prerequisites that this one needs."),
    "prerequisites.*.require.*": _hint("The name of a prerequisite."),
    "prerequisites.*.auth": _hint("The login for a private image registry."),
    "prerequisites.*.auth.username": _hint("The user at the registry."),
    "prerequisites.*.auth.password": _hint(
        "The password; put it under `secrets` and refer to it here.", examples=("<% $secrets.registry %>",)
    ),
    "prerequisites.*.auth.registryuri": _hint("The registry.", examples=("docker.io",)),
    "parameters": _hint("Values that commands use as <% $parameters.NAME %>."),
    "secrets": _hint("Values that commands use as <% $secrets.NAME %>; the server never shows them again."),
    "jobRetryCount": _hint("How often a failed job is retried.", default=0),
    "taskRoles": _hint("The task roles of the job, by names that you choose."),
    "taskRoles.*": _hint("A task role: a number of identical tasks that run in parallel."),
    "taskRoles.*.protocolVersion": _hint("The version of this protocol.", examples=(2,)),
    "taskRoles.*.instances": _hint("Number of tasks of this role.", default=1),
    "taskRoles.*.completion": _hint("When the end of single tasks ends the whole job."),
    "taskRoles.*.completion.minFailedInstances": _hint(
        "Number of failed tasks that fail the job; -1 for none.", default=1
    ),
    "taskRoles.*.completion.minSucceededInstances": _hint(
        "Number of succeeded tasks that make the job succeed; -1 for none. All of them if not given."
    ),
    "taskRoles.*.taskRetryCount": _hint(
        "How often a failed task is retried; only with `gangAllocation: false` in extras.",
        default=0,
    ),
    "taskRoles.*.prerequisites": _hint("Names of prerequisites that this role needs."),
    "taskRoles.*.prerequisites.*": _hint("The name of a prerequisite."),
    "taskRoles.*.dockerImage": _hint("The name of the prerequisite of type dockerimage to run in."),
    "taskRoles.*.data": _hint("The name of a data prerequisite, <% $data %> in commands."),
    "taskRoles.*.output": _hint("The name of an output prerequisite, <% $output %> in commands."),
    "taskRoles.*.script": _hint("The name of a script prerequisite, <% $script %> in commands."),
    "taskRoles.*.extraContainerOptions": _hint("Options of the container."),
    "taskRoles.*.extraContainerOptions.shmMB": _hint("Shared memory (/dev/shm), in MB.", examples=(64,)),
    "taskRoles.*.extraContainerOptions.infiniband": _hint("Whether InfiniBand devices are needed."),
    "taskRoles.*.resourcePerInstance": _hint("What each task gets."),
    "taskRoles.*.resourcePerInstance.cpu": _hint("CPU cores.", examples=(4,)),
    "taskRoles.*.resourcePerInstance.memoryMB": _hint("Memory, in MB.", examples=(8192,)),
    "taskRoles.*.resourcePerInstance.gpu": _hint("GPUs.", examples=(0, 1)),
    "taskRoles.*.resourcePerInstance.ports": _hint(
        "Number of ports by label; ssh and http ports are always there."
    ),
    "taskRoles.*.resourcePerInstance.ports.*": _hint(
        "Number of ports; commands find them in PAI_PORT_LIST_<role>_<index>_<label>."
    ),
    "taskRoles.*.commands": _hint("The commands that each task runs, in order."),
    "taskRoles.*.commands.*": _hint("A shell command."),
    "deployments": _hint("Variants of the job; `defaults` chooses one."),
    "deployments.*": _hint("Commands that run before and after those of the roles."),
    "deployments.*.protocolVersion": _hint("The version of this protocol.", examples=(2,)),
    "deployments.*.name": _hint("The name by which `defaults` chooses it."),
    "deployments.*.taskRoles": _hint("The roles it adds commands to."),
    "deployments.*.taskRoles.*": _hint("What it adds to this role."),
    "deployments.*.taskRoles.*.preCommands": _hint("Commands that run before those of the role."),
    "deployments.*.taskRoles.*.preCommands.*": _hint("A shell command."),
    "deployments.*.taskRoles.*.postCommands": _hint("Commands that run after those of the role."),
    "deployments.*.taskRoles.*.postCommands.*": _hint("A shell command."),
    "defaults": _hint("The default deployment and virtual cluster."),
    "defaults.deployment": _hint("The deployment to use."),
    "defaults.virtualCluster": _hint("The virtual cluster to run in.", default="default"),
    "extras": _hint("Options of the platform; you may add your own keys."),
    "extras.storages": _hint(
        "Storages to mount, each at ${PAI_MOUNT_ROOT-}/mnt/<name>; an empty list for your default ones."
    ),
    "extras.gangAllocation": _hint(
        "Whether all tasks start together; `false` allows to retry single tasks.", default=True
    ),
    "extras.hivedScheduler": _hint("Options of the HiveD scheduler, if the cluster has it."),
    "extras.com.microsoft.pai.runtimeplugin": _hint("Plugins to run around the commands: ssh, cmd, git, ..."),
    "extras.jobStatusChangeNotification": _hint("The state changes to be notified of by email."),
    "extras.jobPolicy": _hint("What the embedded cluster does with the job by itself; OpenPAI ignores it."),
    "extras.jobPolicy.after": _hint("Jobs that this one waits for."),
    "extras.jobPolicy.after.*": _hint("A job, and how it must have ended."),
    "extras.jobPolicy.after.*.job": _hint("The job's name, or USER~NAME for a job of another user."),
    "extras.jobPolicy.after.*.when": _hint("How it must have ended.", default="succeeded"),
    "extras.jobPolicy.idleStopSeconds": _hint("Stop the job when its GPUs have been idle for so long."),
    "extras.jobPolicy.keepFailedSeconds": _hint("Keep the environment of a failed task for so long."),
    "extras.jobPolicy.requeues": _hint("How often a task that reaches its time limit runs again."),
    "extras.jobPolicy.graceSeconds": _hint("How long before its time limit such a task gets TERM."),
    "extras.submitFrom": _hint("The program that submitted the job."),
}
"""What editors show for each part; a star stands for a name that the user chooses, or an index in a list."""
