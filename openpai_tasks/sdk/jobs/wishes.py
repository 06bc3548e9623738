"""The flags of ``job.sub``, as they were typed, to the spec of a job."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from openpai_tasks.errors import ConfigError
from openpai_tasks.protocol import JobSpec, RoleSpec
from openpai_tasks.protocol.document.scripts import variable as variable_name
from openpai_tasks.protocol.problems import closest
from openpai_tasks.sdk.amounts import at_least, megabytes, seconds, whole
from openpai_tasks.settings.config import Settings

ROLE = "main"

_ROLE_NAME = re.compile(r"[a-z][a-z0-9]*")
_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Wish:
    """What the flags say beyond the settings; values that may be secret stay out of the repr."""

    command: str = ""
    name: str = ""
    instances: int = 1
    roles: tuple[str, ...] = ()
    ports: tuple[str, ...] = ()
    shm: str = ""
    variables: tuple[str, ...] = field(default=(), repr=False)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    retries: int = 0
    max_time: str = ""
    template: str = ""
    ssh_key: str = ""


def spec(wish: Wish, settings: Settings) -> JobSpec:
    """The job that is wished for; each role has what the flags say, unless it says otherwise itself."""
    every = RoleSpec(
        name=ROLE,
        command=wish.command,
        instances=at_least(wish.instances, 1, "--instances"),
        image=settings.image,
        cpu=settings.cpu,
        gpu=settings.gpu,
        memory_mb=settings.memory_mb,
        shm_mb=megabytes(wish.shm, "--shm") if wish.shm else None,
        ports=dict(port(text, "=", "--ports") for text in wish.ports),
    )
    roles = _templated(wish, every) if wish.template else _roles(wish.roles, every)
    return JobSpec(
        command=wish.command or roles[0].command,
        name=wish.name,
        image=settings.image,
        virtual_cluster=settings.virtual_cluster or None,
        retries=at_least(wish.retries, 0, "--retries"),
        pip_installs=settings.pip_installs,
        python=settings.python,
        environment=dict(map(variable, wish.variables)),
        secrets=wish.secrets,
        max_seconds=seconds(wish.max_time, "--max-time") if wish.max_time else None,
        roles=roles,
        ssh_key=wish.ssh_key,
    )


def _roles(texts: Iterable[str], every: RoleSpec) -> tuple[RoleSpec, ...]:
    roles = tuple(role(text, every) for text in texts) or (every,)
    names = [one.name for one in roles]
    if len(set(names)) < len(names):
        raise ConfigError(f"--role: a name is given twice: {', '.join(names)}")
    for one in roles:
        if not one.command.strip():
            hint = f" (role {one.name!r} has none)" if texts else ""
            raise ConfigError(f"the command is empty: say what the job shall run{hint}")
    return roles


def _templated(wish: Wish, every: RoleSpec) -> tuple[RoleSpec, ...]:
    """A template brings its own roles; what is said of them here would be lost."""
    lost = {"--role": wish.roles, "--ports": wish.ports, "--max-time": wish.max_time}
    for flag, value in lost.items():
        if value:
            raise ConfigError(f"{flag} and --template cannot be combined: the template says it")
    return (dataclasses.replace(every, command=wish.template),)  # it gives the job its name


def secrets(names: Iterable[str], ask: Callable[[str], str]) -> dict[str, str]:
    """The secrets by name; a value is never on the command line, where others could see it."""
    found = dict.fromkeys(names)
    for name in found:
        if "=" in name:
            hint = f"write --secret {name.partition('=')[0]}, and it is asked for"
            raise ConfigError(f"a secret's value does not go on the command line: {hint}")
        variable_name(name)
    return {name: ask(name) for name in found}


def role(text: str, every: RoleSpec) -> RoleSpec:
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
