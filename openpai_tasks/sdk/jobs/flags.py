"""From the flags of ``job.sub``, as they were typed, to a request for a job."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from openpai_tasks.errors import ConfigError
from openpai_tasks.protocol import JobRequest, RoleRequest
from openpai_tasks.protocol.document.scripts import variable as variable_name
from openpai_tasks.protocol.problems import closest
from openpai_tasks.sdk.amounts import at_least, megabytes, parse_seconds, whole
from openpai_tasks.settings.config import Settings

_ROLE_NAME = re.compile(r"[a-z][a-z0-9]*")
_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

Ask = Callable[[str], str]
"""Gives the value of the secret with that name."""


NAMES = frozenset(
    {
        *(
            "job_name",
            "image",
            "sources",
            "pip_installs",
            "python",
            "instances",
            "role",
            "cpu",
            "gpu",
            "memoryMB",
        ),
        *("shm", "ports", "env", "secret", "retries", "max_time", "tag", "after", "update", "workspace"),
        *("virtual_cluster", "preview"),
    }
)
"""The flags of every command that makes a job."""


def build_request(flags: Mapping[str, Any], settings: Settings, ask: Ask) -> JobRequest:
    """The job that flags and settings describe; a flag that is missing, None or empty was not given.

    The flags have the names of `job.sub`'s. ``settings`` already hold those that are settings, too.
    """
    given = {name: value for name, value in flags.items() if value not in (None, "", (), [])}
    request = JobRequest(
        command=given.get("command", ""),
        name=given.get("job_name", ""),
        instances=at_least(given.get("instances", 1), 1, "--instances"),
        image=settings.image,
        cpu=settings.cpu,
        gpu=settings.gpu,
        memory_mb=settings.memory_mb,
        shm_mb=megabytes(given["shm"], "--shm") if "shm" in given else None,
        ports=dict(port(text, "=", "--ports") for text in given.get("ports", ())),
        virtual_cluster=settings.virtual_cluster,
        retries=at_least(given.get("retries", 0), 0, "--retries"),
        max_seconds=parse_seconds(given["max_time"], "--max-time") if "max_time" in given else None,
        pip_installs=settings.pip_installs,
        python=settings.python,
        environment=dict(map(variable, given.get("env", ()))),
        secrets=secrets(given.get("secret", ()), ask),
        sources=settings.sources,
        workspace=settings.workspace,
        tags=tuple(given.get("tag", ())),
        after=tuple(given.get("after", ())),
        updates=tuple(given.get("update", ())),
    )
    if "template" in given:
        return _templated(request, given)
    return _with_roles(request, given.get("role", ()))


def _with_roles(request: JobRequest, texts: Sequence[str]) -> JobRequest:
    """The request with its roles; each has what the other flags say, unless it says otherwise itself."""
    roles = tuple(role(text, request.first_role) for text in texts)
    names = [one.name for one in roles]
    if len(set(names)) < len(names):
        raise ConfigError(f"--role: a name is given twice: {', '.join(names)}")
    command = request.command or (roles[0].command if roles else "")
    return dataclasses.replace(request, roles=roles, command=command)


def _templated(request: JobRequest, given: Mapping[str, Any]) -> JobRequest:
    """A template brings its own roles, and gives the job its name."""
    lost = {"--role": "role", "--ports": "ports", "--max-time": "max_time"}
    for flag, name in lost.items():
        if name in given:
            raise ConfigError(f"{flag} and --template cannot be combined: the template says it")
    return dataclasses.replace(request, command=request.command or given["template"])


def check_commands(request: JobRequest) -> None:
    """Raise where a role has nothing to run."""
    for one in request.all_roles:
        if not one.command.strip():
            hint = f" (role {one.name!r} has none)" if request.roles else ""
            raise ConfigError(f"the command is empty: say what the job shall run{hint}")


def secrets(names: Iterable[str], ask: Ask) -> dict[str, str]:
    """The secrets by name; a value is never on the command line, where others could see it."""
    found = dict.fromkeys(names)
    for name in found:
        if "=" in name:
            hint = f"write --secret {name.partition('=')[0]}, and it is asked for"
            raise ConfigError(f"a secret's value does not go on the command line: {hint}")
        variable_name(name)
    return {name: ask(name) for name in found}


def role(text: str, every: RoleRequest) -> RoleRequest:
    """``worker:instances=2,gpu=1,command=python train.py``; the command takes all the rest of the text."""
    name, _, rest = text.partition(":")
    if not _ROLE_NAME.fullmatch(name):
        said = f"a role's name is lower-case letters and digits, got {name!r}"
        raise ConfigError(f"--role: {said} (servers change other names)")
    head, has_command, command = _cut_command(rest)
    changes: dict[str, Any] = {}
    for part in filter(None, map(str.strip, head.split(","))):
        key, equals, value = part.partition("=")
        if not equals and key.isdecimal():
            key, value = "instances", key
        spelling = re.sub("[-_]", "", key).lower()
        if spelling not in ROLE_KEYS:
            known = "instances, cpu, gpu, mem, shm, image, ports, min-failed, min-succeeded, command"
            hint = closest(key, known.split(", ")) or f" (known: {known})"
            raise ConfigError(f"--role {name}: no key {key!r}{hint}")
        where, read = ROLE_KEYS[spelling]
        changes[where] = read(value, f"--role {name}: {key}")
    if has_command:
        changes["command"] = command.strip()
    return dataclasses.replace(every, name=name, **changes)


def _cut_command(text: str) -> tuple[str, bool, str]:
    if text.startswith("command="):
        return "", True, text.removeprefix("command=")
    head, mark, command = text.partition(",command=")
    return head, bool(mark), command


def port(text: str, equals: str, where: str) -> tuple[str, int]:
    """``web`` is one port with that label, ``web=2`` two."""
    label, has_count, count = text.partition(equals)
    if not _LABEL.fullmatch(label):
        raise ConfigError(f"{where} needs a label such as web{equals}1, got {text!r}")
    return label, at_least(whole(count, f"{where} {label}"), 1, f"{where} {label}") if has_count else 1


def variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"--env needs NAME=VALUE, got {text!r}")
    return name, value


def _count(least: int) -> Callable[[str, str], int]:
    return lambda text, where: at_least(whole(text, where), least, where)


def _text(text: str, where: str) -> str:
    if not text:
        raise ConfigError(f"{where} is empty")
    return text


def _ports(text: str, where: str) -> dict[str, int]:
    """``web+rpc:2``, as commas part the keys of a role."""
    return dict(port(part, ":", where) for part in text.split("+"))


ROLE_KEYS: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "instances": ("instances", _count(1)),
    "cpu": ("cpu", _count(1)),
    "gpu": ("gpu", _count(0)),
    "mem": ("memory_mb", megabytes),
    "memorymb": ("memory_mb", megabytes),
    "memory": ("memory_mb", megabytes),
    "shm": ("shm_mb", megabytes),
    "shmmb": ("shm_mb", megabytes),
    "image": ("image", _text),
    "ports": ("ports", _ports),
    "minfailed": ("min_failed", _count(-1)),
    "minsucceeded": ("min_succeeded", _count(-1)),
}
"""What can be said of a role, the field it goes to, and how it is read."""
