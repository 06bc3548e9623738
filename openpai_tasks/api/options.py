"""The options of a job in Python: the flags of `job.sub`, with Python values."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypedDict

from openpai_tasks.errors import ConfigError
from openpai_tasks.protocol.problems import closest
from openpai_tasks.sdk.sweeps.grid import value_text

Words = str | os.PathLike[str] | Iterable[Any]
"""One word or several; a job stands for its name."""


class HasName(Protocol):
    """A job, by a handle or a status."""

    @property
    def name(self) -> str: ...


class CommonOptions(TypedDict, total=False):
    """The options of ``JobOptions``, except those that old programs pass by position."""

    job_name: str | None
    python: str | None
    instances: int | None
    role: Words | None
    cpu: int | None
    gpu: int | None
    memoryMB: int | str | None
    shm: int | str | None
    ports: Mapping[str, int] | Words | None
    env: Mapping[str, Any] | Words | None
    secret: Mapping[str, str] | Words | None
    outputs: Words | None
    retries: int | None
    max_time: int | str | None
    tag: Words | None
    after: HasName | Words | None
    update: Mapping[str, Any] | Words | None
    workspace: str | None
    virtual_cluster: str | None
    ssh: bool


class JobOptions(CommonOptions, total=False):
    """What a job needs and how it runs; each option is a flag of `job.sub`.

    Options that are not given come from the project's settings, as for commands.
    """

    image: str | None
    sources: Words | None
    pip_installs: Words | None
    template: str | None
    parameter: Mapping[str, Any] | Words | None


OF_DOCUMENTS = ("job_name", "virtual_cluster", "update", "tag", "after", "secret")
"""The options of a job whose document is given: a job file or a request."""

_SEVERAL = {"sources", "pip_installs", "role", "ports", "env", "secret", "tag", "after", "update"}
_SEVERAL |= {"outputs", "parameter"}

Flags = dict[str, Any]
"""Values of flags by name, as a command gets them from its command line."""


def read_options(options: Mapping[str, Any], known: Iterable[str] = ()) -> Flags:
    """Return the options as flags; refuse unknown names, or those that are not ``known``."""
    check_names(options, tuple(known) or tuple(JobOptions.__annotations__))
    given = {name: value for name, value in options.items() if value is not None and value is not False}
    return {name: _as_typed(name, value) for name, value in given.items()}


def check_names(options: Iterable[str], known: tuple[str, ...]) -> None:
    """Raise for an option that does not exist here."""
    for name in options:
        if name in known:
            continue
        if name in JobOptions.__annotations__:
            raise ConfigError(f"the option {name!r} does not fit here: the document has it (use update=)")
        hint = closest(name, known) or f" (known: {', '.join(known)})"
        raise ConfigError(f"no option named {name!r}{hint}")


def _as_typed(name: str, value: Any) -> Any:
    """Return a value as a command line gives it."""
    if name == "secret" and isinstance(value, Mapping):
        return tuple(value)
    if isinstance(value, Mapping):
        text = json.dumps if name == "update" else value_text
        return tuple(f"{key}={text(item)}" for key, item in value.items())
    if name in _SEVERAL:
        return words(value)
    if name in ("instances", "retries") and not isinstance(value, int):
        raise ConfigError(f"{name} needs a whole number, got {value!r}")
    return str(value) if name in ("memoryMB", "shm", "max_time") else value


def words(given: HasName | Words) -> tuple[str, ...]:
    """Return one word or several as a tuple of texts."""
    several = (given,) if isinstance(given, (str, os.PathLike)) or hasattr(given, "name") else given
    return tuple(os.fspath(word) if isinstance(word, (str, os.PathLike)) else _name(word) for word in several)


def _name(value: Any) -> str:
    return str(getattr(value, "name", value))


def secret_values(options: Mapping[str, Any]) -> dict[str, str]:
    """Return the secrets whose values are given."""
    given = options.get("secret")
    return {str(name): str(value) for name, value in given.items()} if isinstance(given, Mapping) else {}


def secret_reader(values: Mapping[str, str], is_chosen: bool = True) -> Callable[[str], str]:
    """Return a function that reads secrets, from the given values or the environment; nobody is asked.

    Unless the caller has chosen their names, variables with a login to a cluster are never read.
    """

    def read(name: str) -> str:
        variable = name.replace(".", "_").replace("-", "_")
        if name in values:
            return values[name]
        if variable in os.environ and (is_chosen or not variable.upper().startswith("OPENPAI_")):
            return os.environ[variable]
        raise ConfigError(f"secret {name!r} is needed: pass secret={{{name!r}: ...}}, or set {variable}")

    return read
