"""The options of a job, and the request that they make.

Commands, the Python API, the portal's form and the magics read what they were given into ``JobOptions``. A
value has its type in Python, or is text as on a command line: ``env`` is a mapping or a list of NAME=VALUE.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Any, TypeVar

from openpai_tasks.errors import ConfigError, InvalidOption, ProtocolError
from openpai_tasks.hooks import hook
from openpai_tasks.hooks.hook import Hook
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol import JobRequest
from openpai_tasks.protocol.document import kept_files
from openpai_tasks.protocol.document.policy import WHEN, Dependency, JobPolicy, priority_class
from openpai_tasks.protocol.document.ports import check_port
from openpai_tasks.protocol.document.scripts import variable
from openpai_tasks.protocol.problems import closest
from openpai_tasks.sdk.amounts import at_least, megabytes, parse_int, read
from openpai_tasks.sdk.jobs.updates import Update, parse_update
from openpai_tasks.settings.config import BUILT_IN, Settings
from openpai_tasks.text.durations import seconds
from openpai_tasks.text.hints import command, flag, option

T = TypeVar("T")

Ask = Callable[[str], str]
"""Returns the value of the secret with that name."""

_WIDTH = 88  # of the lines of examples
_ROLE_NAME = re.compile(r"[a-z][a-z0-9]*")
_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class JobOptions:
    """The options that were given, by their names in Python; others are None or empty."""

    command: str = ""
    job_name: str = ""
    image: str | None = None  # like the other settings, "" overrides that of the project
    sources: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    pip_installs: tuple[str, ...] = ()
    python: str | None = None
    instances: int | None = None
    role: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # fields of each ``RoleRequest``
    cpu: int | None = None
    gpu: int | None = None
    memoryMB: int | None = None
    shm: int | None = None  # MB
    ports: Mapping[str, int] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    secret: tuple[str, ...] = ()  # names
    retries: int | None = None
    max_time: int | None = None  # seconds
    tag: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    update: tuple[Update, ...] = field(default=(), repr=False)
    workspace: str | None = None
    virtual_cluster: str | None = None
    ssh: bool = False
    template: str = ""
    parameter: Mapping[str, Any] = field(default_factory=dict)
    after_any: tuple[str, ...] = ()
    after_failed: tuple[str, ...] = ()
    priority: str | None = None  # OpenPAI's class
    requeue_on_timeout: int | None = None
    grace: int | None = None  # seconds
    idle_stop: int | None = None  # seconds
    notify: tuple[Hook, ...] = field(default=(), repr=False)
    keep_failed: int | None = None  # seconds

    @property
    def needs_ssh(self) -> bool:
        """Whether its owner is to log in to it."""
        return self.ssh or bool(self.keep_failed)


SETTINGS = (
    *("image", "sources", "outputs", "pip_installs", "python", "cpu", "gpu"),
    *("workspace", "virtual_cluster"),
)
"""Options that override the settings of the same name; so does ``memoryMB``."""


def read_options(given: Mapping[str, Any], base: JobOptions | None = None) -> JobOptions:
    """Read options by their names, and add them to others; None, False or empty values count as not given.

    An empty text counts for an option that overrides a setting.
    """
    values = {
        name: value for name, value in given.items() if is_given(value) or (name in SETTINGS and value == "")
    }
    read_values = {name: read(name, READERS[name], value) for name, value in values.items()}
    return dataclasses.replace(base or JobOptions(), **read_values)


def is_given(value: Any) -> bool:
    return value is not False and value not in (None, "", (), [], {})


def setting_overrides(options: JobOptions) -> dict[str, Any]:
    """Return the settings that options override; None for those that were not given."""
    return {name: getattr(options, name) for name in SETTINGS} | {"memory_mb": options.memoryMB}


def build_changes(options: JobOptions, ask: Ask) -> JobRequest:
    """Build the request of a resubmission: what no option gives stays as it was."""
    if options.requeue_on_timeout == 0:
        raise InvalidOption("requeue_on_timeout", "must be >= 1, got 0")
    return JobRequest(
        name=options.job_name,
        image=options.image or "",
        cpu=options.cpu,
        gpu=options.gpu,
        memory_mb=options.memoryMB,
        max_seconds=options.max_time,
        virtual_cluster=options.virtual_cluster or "",
        secrets=read_secrets(options.secret, ask),
        updates=options.update,
        policy=build_policy(options),
        priority=options.priority or "",
        hooks=request_hooks(options),
    )


def build_policy(options: JobOptions) -> JobPolicy:
    """Build what the cluster does with a job by itself."""
    names = zip(WHEN, (options.after, options.after_any, options.after_failed), strict=True)
    return JobPolicy(
        after=tuple(Dependency(job, when) for when, jobs in names for job in jobs),
        idle_stop=options.idle_stop or 0,
        keep_failed=options.keep_failed or 0,
        requeues=options.requeue_on_timeout or 0,
        grace=options.grace or 0,
    )


def check_time_limit(seconds: int | None, requeues: int, grace: int) -> None:
    """Raise for options of a time limit that do not fit together."""
    if requeues and not seconds:
        raise InvalidOption("requeue_on_timeout", f"needs a time limit: add {option('max_time')}")
    if grace and not requeues:
        raise InvalidOption("grace", f"needs {option('requeue_on_timeout')}")
    if requeues and (seconds or 0) <= (grace or 1):
        raise InvalidOption("grace", f"must be shorter than {option('max_time')}")


def build_request(options: JobOptions, settings: Settings, ask: Ask) -> JobRequest:
    """Build the request from options and settings; options that are also settings are in ``settings``."""
    check_variables("secret", options.secret)
    check_time_limit(options.max_time, options.requeue_on_timeout or 0, options.grace or 0)
    request = JobRequest(
        command=options.command,
        name=options.job_name,
        instances=options.instances or 1,
        image=settings.image,
        cpu=settings.cpu,
        gpu=settings.gpu,
        memory_mb=settings.memory_mb,
        is_memory_asked=is_memory_asked(settings),
        shm_mb=options.shm,
        ports=options.ports,
        virtual_cluster=settings.virtual_cluster,
        retries=options.retries or 0,
        max_seconds=options.max_time,
        pip_installs=settings.pip_installs,
        python=settings.python,
        environment=options.env,
        secrets=read_secrets(options.secret, ask),
        sources=settings.sources,
        outputs=kept_files.check(settings.outputs),
        workspace=settings.workspace,
        tags=options.tag,
        updates=options.update,
        policy=build_policy(options),
        priority=options.priority or "",
        hooks=request_hooks(options, settings),
    )
    if options.template:
        return _with_template(request, options)
    request = _with_roles(request, options.role)
    check_idle_stop(request.policy, [role.gpu for role in request.all_roles])
    return request


def check_idle_stop(policy: JobPolicy, gpus: Iterable[int | None]) -> None:
    """Raise if a job without GPUs is to be stopped when they are idle."""
    if policy.idle_stop and not any(gpus):
        raise InvalidOption("idle_stop", f"needs a job with GPUs: add {option('gpu')}")


def request_hooks(options: JobOptions, settings: Settings | None = None) -> tuple[str, ...]:
    """Return the hooks of the options and, with ``settings``, those of every job."""
    every = map(hook.parse, settings.notify) if settings else ()
    try:
        own = [one.resolved() for one in options.notify]
    except ConfigError as err:
        err.field = "notify"
        raise
    return tuple(one.dump() for one in (*own, *(one.resolved() for one in every)))


def is_memory_asked(settings: Settings) -> bool:
    """Return whether the memory setting is a limit; on the embedded cluster, the built-in default is not."""
    return not settings.is_embedded or settings.origins.get("memoryMB") != BUILT_IN


def _with_roles(request: JobRequest, given: Mapping[str, Mapping[str, Any]]) -> JobRequest:
    """Add the roles to the request; the other options are their defaults."""
    every = request.first_role
    roles = tuple(dataclasses.replace(every, name=name, **changes) for name, changes in given.items())
    command = request.command or (roles[0].command if roles else "")
    return dataclasses.replace(request, roles=roles, command=command)


def _with_template(request: JobRequest, options: JobOptions) -> JobRequest:
    """Check options that a template excludes, and default the command to the template's name."""
    for name in ("role", "ports", "max_time"):
        if getattr(options, name):
            raise InvalidOption(name, f"cannot be combined with {option('template')}, which defines it")
    return dataclasses.replace(request, command=request.command or options.template)


def check_commands(request: JobRequest) -> None:
    """Raise if a role has no command."""
    for one in request.all_roles:
        if not one.command.strip():
            whose = f" of role {one.name!r}" if request.roles else ""
            raise ConfigError(f"the command{whose} is empty: give the command to run")


def read_secrets(names: Iterable[str], ask: Ask) -> dict[str, str]:
    """Read secrets by name."""
    return {name: ask(name) for name in dict.fromkeys(names)}


# Options as texts that users can run


def as_command(given: Mapping[str, Any], alias: str = "") -> str:
    """Return the command line with these options; it asks for secrets, so they have only names."""
    given = dict(given)
    text = given.pop("command", "")
    # A word alone could be the name of a task, and a dash begins a flag.
    parts = [[text if re.search(r"\s", text) and not text.startswith("-") else f"--command={text}"]]
    for name, value in [*given.items(), *([("cluster_alias", alias)] if alias else [])]:
        if isinstance(value, Mapping):
            value = tuple(f"{key}={item}" for key, item in value.items())
        for one in map(str, value if isinstance(value, tuple) else (value,)):
            parts.append([f"{flag(name)}={one}"] if one.startswith("-") else [flag(name), one])
    texts = [command("job.sub", *parts[0]), *(shlex.join(part) for part in parts[1:])]
    line = " ".join(texts)
    return line if len(line) <= _WIDTH else " \\\n  ".join(texts)


def as_python(given: Mapping[str, Any], alias: str = "") -> str:
    """Return the program that submits the same; it reads secrets from variables of their names."""
    given = dict(given)
    words = [repr(given.pop("command", ""))]
    words += [
        f"{name}={list(value) if isinstance(value, tuple) else value!r}" for name, value in given.items()
    ]
    words += [f"cluster={alias!r}"] if alias else []
    line = f"job = submit({', '.join(words)})"
    if len(line) > _WIDTH:
        line = "job = submit(\n" + "".join(f"    {word},\n" for word in words) + ")"
    return f"from openpai_tasks import submit\n\n{line}\n"


# Readers of values


def _words(value: Any) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def _job_names(value: Any) -> tuple[str, ...]:
    """Return the names; in texts, commas separate them. An empty text may be a variable that is not set."""
    words = _words(value)
    if any(not word.strip(" ,") for word in words):
        raise ValueError("needs the name of a job, got ''")
    return tuple(name.strip() for word in words for name in word.split(",") if name.strip())


def _pairs(value: Any, parse: Callable[[str], tuple[str, T]]) -> dict[str, T]:
    """Return a mapping, or the mapping that is given as a list of texts."""
    return dict(value if isinstance(value, Mapping) else map(parse, _words(value)))


def _variables(value: Any) -> dict[str, str]:
    found = _pairs(value, _parse_variable)
    check_variables("env", found)
    return found


def check_variables(field: str, names: Iterable[str]) -> None:
    """Raise for a name that a shell cannot export."""
    for name in names:
        try:
            variable(name)
        except ProtocolError as err:
            raise InvalidOption(field, f": {err}") from None


def _parse_variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"needs NAME=VALUE, got {text!r}")
    return name, value


def _secrets(value: Any) -> tuple[str, ...]:
    """Return the names; values on a command line could be seen by others."""
    names = _words(value)
    for name in names:
        if "=" in name:
            hint = f"use {option('secret')} {name.partition('=')[0]}, which asks for the value"
            raise ConfigError(f"do not give a secret's value on the command line: {hint}")
    return names


def _updates(value: Any) -> tuple[Update, ...]:
    return tuple(value.items()) if isinstance(value, Mapping) else tuple(map(parse_update, _words(value)))


def _parse_parameter(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise ValueError(f"needs name=value, got {text!r}")
    return name, value


def _ports(value: Any, equals: str = "=") -> dict[str, int]:
    ports = _pairs(value, lambda text: _parse_port(text, equals))
    for label, count in ports.items():
        if not _LABEL.fullmatch(label):
            raise ValueError(f"needs a label such as web{equals}1, got {label!r}")
        try:
            check_port(count, label)
        except ProtocolError as err:
            raise ValueError(str(err)) from None
    return ports


def _parse_port(text: str, equals: str) -> tuple[str, int]:
    """Parse ``web``, one port with that label, ``web=2``, two ports, or ``web=8080``, a program's port."""
    label, has_count, count = text.partition(equals)
    return label, parse_int(count) if has_count else 1


def _roles(value: Any) -> dict[str, dict[str, Any]]:
    """Read ``{"worker": {"instances": 2, "gpu": 1}}`` or texts such as ``worker:instances=2,gpu=1``."""
    if isinstance(value, Mapping):
        given = [
            (name, one if isinstance(one, Mapping) else {"instances": one}) for name, one in value.items()
        ]
    else:
        given = [_parse_role(text) for text in _words(value)]
    names = [name for name, _ in given]
    if len(set(names)) < len(names):
        raise ValueError(f": duplicate name in {', '.join(names)}")
    return {name: _role(name, keys) for name, keys in given}


def _parse_role(text: str) -> tuple[str, dict[str, str]]:
    """Parse ``worker:instances=2,gpu=1,command=python train.py``, where the command comes last."""
    name, _, rest = text.partition(":")
    head, has_command, command = f",{rest}".partition(",command=")
    keys = {}
    for part in filter(None, map(str.strip, head.split(","))):
        key, equals, value = part.partition("=")
        if not equals and key.isdecimal():
            key, value = "instances", key
        keys[key] = value
    return name, keys | ({"command": command} if has_command else {})


def _role(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    if not _ROLE_NAME.fullmatch(name):
        rule = "use lower-case letters and digits, as servers change other names"
        raise ValueError(f": invalid name {name!r}: {rule}")
    changes = {}
    for key, value in given.items():
        spelling = re.sub("[-_]", "", key).lower()
        if spelling not in ROLE_KEYS:
            known = "instances, cpu, gpu, mem, shm, image, ports, min-failed, min-succeeded, command"
            hint = closest(key, known.split(", ")) or f" (known: {known})"
            raise ValueError(f"{name}: unknown key {key!r}{hint}")
        where, reader = ROLE_KEYS[spelling]
        try:
            changes[where] = reader(value)
        except ValueError as err:
            raise ValueError(f"{name}: {key} {err}") from None
    return changes


def _count(least: int) -> Callable[[Any], int]:
    check = at_least(least)
    return lambda value: check(parse_int(value) if isinstance(value, str) else value)


def _text(value: str) -> str:
    if not value:
        raise ValueError("is empty")
    return value


def _role_ports(value: Any) -> dict[str, int]:
    """Read ports; in text they are ``web+rpc:2``, as commas separate the keys of a role."""
    return _ports(value.split("+") if isinstance(value, str) else value, ":")


ROLE_KEYS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "instances": ("instances", _count(1)),
    "cpu": ("cpu", _count(1)),
    "gpu": ("gpu", _count(0)),
    "mem": ("memory_mb", megabytes),
    "memorymb": ("memory_mb", megabytes),
    "memory": ("memory_mb", megabytes),
    "shm": ("shm_mb", megabytes),
    "shmmb": ("shm_mb", megabytes),
    "image": ("image", _text),
    "ports": ("ports", _role_ports),
    "minfailed": ("min_failed", _count(-1)),
    "minsucceeded": ("min_succeeded", _count(-1)),
    "command": ("command", str.strip),
}
"""Keys of a role, with the field of ``RoleRequest`` that they set and their readers."""

READERS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(
        ("command", "job_name", "image", "python", "workspace", "virtual_cluster", "template"), str
    ),
    **dict.fromkeys(("sources", "outputs", "pip_installs", "tag"), _words),
    **dict.fromkeys(("after", "after_any", "after_failed"), _job_names),
    **dict.fromkeys(("memoryMB", "shm"), megabytes),
    "instances": at_least(1),
    "role": _roles,
    "cpu": at_least(1),
    "gpu": at_least(0),
    "ports": _ports,
    "env": _variables,
    "secret": _secrets,
    "retries": at_least(0),
    "max_time": seconds,
    "update": _updates,
    "ssh": bool,
    "parameter": lambda value: _pairs(value, _parse_parameter),
    "priority": priority_class,
    "requeue_on_timeout": at_least(0),
    "grace": seconds,
    "idle_stop": seconds,
    "notify": hook.parse_all,
    "keep_failed": seconds,
}
"""How each option is read; a reader raises ValueError with what is wrong."""
