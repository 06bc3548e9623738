"""Build a job request from the flags of ``job.sub``."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from openpai_tasks.errors import ConfigError
from openpai_tasks.protocol import JobRequest, RoleRequest
from openpai_tasks.protocol.document import kept_files
from openpai_tasks.protocol.document.ports import check_port
from openpai_tasks.protocol.document.scripts import variable as variable_name
from openpai_tasks.protocol.problems import closest
from openpai_tasks.sdk.amounts import at_least, megabytes, parse_int, parse_seconds
from openpai_tasks.settings.config import BUILT_IN, Settings

_ROLE_NAME = re.compile(r"[a-z][a-z0-9]*")
_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

Ask = Callable[[str], str]
"""Returns the value of the secret with that name."""


NAMES = frozenset(
    {
        *(
            "job_name",
            "image",
            "sources",
            "outputs",
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
"""The flags of every command that creates a job."""


SETTINGS = (
    "image",
    "sources",
    "outputs",
    "pip_installs",
    "python",
    "cpu",
    "gpu",
    "workspace",
    "virtual_cluster",
)
"""Flags that override the settings of the same name; so does ``memoryMB``."""


def setting_overrides(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that flags override; None for those that were not given."""
    memory = flags.get("memoryMB")
    given = {name: flags.get(name) for name in SETTINGS}
    return {**given, "memory_mb": None if memory is None else megabytes(memory, "--memoryMB (--mem)")}


def build_changes(flags: Mapping[str, Any], ask: Ask) -> JobRequest:
    """Build the request of a resubmission: what no flag gives stays as it was."""
    given = setting_overrides(flags)
    return JobRequest(
        name=flags.get("job_name") or "",
        image=given["image"] or "",
        cpu=given["cpu"],
        gpu=given["gpu"],
        memory_mb=given["memory_mb"],
        virtual_cluster=given["virtual_cluster"] or "",
        secrets=read_secrets(flags.get("secret") or (), ask),
        updates=tuple(flags.get("update") or ()),
    )


def is_memory_asked(settings: Settings) -> bool:
    """Return whether the memory setting is a limit; on the embedded cluster, the built-in default is not."""
    return not settings.is_embedded or settings.origins.get("memoryMB") != BUILT_IN


def build_request(flags: Mapping[str, Any], settings: Settings, ask: Ask) -> JobRequest:
    """Build the request from flags and settings; a missing, None or empty flag counts as not given.

    ``flags`` are named as in `job.sub`. Flags that are also settings are already in ``settings``.
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
        is_memory_asked=is_memory_asked(settings),
        shm_mb=megabytes(given["shm"], "--shm") if "shm" in given else None,
        ports=dict(parse_port(text, "=", "--ports") for text in given.get("ports", ())),
        virtual_cluster=settings.virtual_cluster,
        retries=at_least(given.get("retries", 0), 0, "--retries"),
        max_seconds=parse_seconds(given["max_time"], "--max-time") if "max_time" in given else None,
        pip_installs=settings.pip_installs,
        python=settings.python,
        environment=dict(map(parse_variable, given.get("env", ()))),
        secrets=read_secrets(given.get("secret", ()), ask, variable_name),
        sources=settings.sources,
        outputs=kept_files.check(settings.outputs),
        workspace=settings.workspace,
        tags=tuple(given.get("tag", ())),
        after=tuple(given.get("after", ())),
        updates=tuple(given.get("update", ())),
    )
    if "template" in given:
        return _with_template(request, given)
    return _with_roles(request, given.get("role", ()))


def _with_roles(request: JobRequest, texts: Sequence[str]) -> JobRequest:
    """Add the roles to the request; the other flags are their defaults."""
    roles = tuple(parse_role(text, request.first_role) for text in texts)
    names = [one.name for one in roles]
    if len(set(names)) < len(names):
        raise ConfigError(f"--role: duplicate name in {', '.join(names)}")
    command = request.command or (roles[0].command if roles else "")
    return dataclasses.replace(request, roles=roles, command=command)


def _with_template(request: JobRequest, given: Mapping[str, Any]) -> JobRequest:
    """Check flags that a template excludes, and default the command to the template's name."""
    lost = {"--role": "role", "--ports": "ports", "--max-time": "max_time"}
    for flag, name in lost.items():
        if name in given:
            raise ConfigError(f"{flag} cannot be combined with --template, which defines it")
    return dataclasses.replace(request, command=request.command or given["template"])


def check_commands(request: JobRequest) -> None:
    """Raise if a role has no command."""
    for one in request.all_roles:
        if not one.command.strip():
            whose = f" of role {one.name!r}" if request.roles else ""
            raise ConfigError(f"the command{whose} is empty: give the command to run")


def read_secrets(names: Iterable[str], ask: Ask, check: Callable[[str], object] = str) -> dict[str, str]:
    """Read secrets by name; refuse values on the command line, where others could see them."""
    found = dict.fromkeys(names)
    for name in found:
        if "=" in name:
            hint = f"use --secret {name.partition('=')[0]}, which asks for the value"
            raise ConfigError(f"do not give a secret's value on the command line: {hint}")
        check(name)
    return {name: ask(name) for name in found}


def parse_role(text: str, every: RoleRequest) -> RoleRequest:
    """Parse ``worker:instances=2,gpu=1,command=python train.py``, where the command comes last."""
    name, _, rest = text.partition(":")
    if not _ROLE_NAME.fullmatch(name):
        rule = "use lower-case letters and digits, as servers change other names"
        raise ConfigError(f"--role: invalid name {name!r}: {rule}")
    head, has_command, command = _split_command(rest)
    changes: dict[str, Any] = {}
    for part in filter(None, map(str.strip, head.split(","))):
        key, equals, value = part.partition("=")
        if not equals and key.isdecimal():
            key, value = "instances", key
        spelling = re.sub("[-_]", "", key).lower()
        if spelling not in ROLE_KEYS:
            known = "instances, cpu, gpu, mem, shm, image, ports, min-failed, min-succeeded, command"
            hint = closest(key, known.split(", ")) or f" (known: {known})"
            raise ConfigError(f"--role {name}: unknown key {key!r}{hint}")
        where, read = ROLE_KEYS[spelling]
        changes[where] = read(value, f"--role {name}: {key}")
    if has_command:
        changes["command"] = command.strip()
    return dataclasses.replace(every, name=name, **changes)


def _split_command(text: str) -> tuple[str, bool, str]:
    if text.startswith("command="):
        return "", True, text.removeprefix("command=")
    head, mark, command = text.partition(",command=")
    return head, bool(mark), command


def parse_port(text: str, equals: str, where: str) -> tuple[str, int]:
    """Parse ``web``, one port with that label, ``web=2``, two ports, or ``web=8080``, a program's port."""
    label, has_count, count = text.partition(equals)
    if not _LABEL.fullmatch(label):
        raise ConfigError(f"{where} needs a label such as web{equals}1, got {text!r}")
    place = f"{where} {label}"
    return label, check_port(parse_int(count, place), place) if has_count else 1


def parse_variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"--env needs NAME=VALUE, got {text!r}")
    return name, value


def _count(least: int) -> Callable[[str, str], int]:
    return lambda text, where: at_least(parse_int(text, where), least, where)


def _text(text: str, where: str) -> str:
    if not text:
        raise ConfigError(f"{where} is empty")
    return text


def _ports(text: str, where: str) -> dict[str, int]:
    """Parse ``web+rpc:2``, as commas separate the keys of a role."""
    return dict(parse_port(part, ":", where) for part in text.split("+"))


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
"""Keys of a role, with the field they set and their parser."""
