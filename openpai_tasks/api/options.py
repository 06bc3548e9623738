"""The options of a job in Python: the flags of `job.sub`, with Python values."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypedDict

from openpai_tasks import sdk
from openpai_tasks.errors import ConfigError, InvalidOption
from openpai_tasks.protocol.problems import closest
from openpai_tasks.sdk.sweeps.grid import json_number, plain_number, value_text

_LISTS = {"sources", "outputs", "pip_installs", "tag", "after", "after_any", "after_failed"}
_MAPPINGS = {"role", "ports", "env", "update", "parameter"}  # or lists of texts such as NAME=VALUE

Words = str | os.PathLike[str] | Iterable[Any]
"""One word or several; a job is replaced by its name."""


class HasName(Protocol):
    """A job, by a handle or a status."""

    @property
    def name(self) -> str: ...


class ShortNames(TypedDict, total=False):
    """Other names of options, as on the command line."""

    mem: int | str | None
    pip: Words | None
    src: Words | None
    vc: str | None


SHORT_NAMES = {"mem": "memoryMB", "pip": "pip_installs", "src": "sources", "vc": "virtual_cluster"}


class CommonOptions(ShortNames, total=False):
    """The options of ``JobOptions``, except those that old programs pass by position."""

    job_name: str | None
    python: str | None
    instances: int | None
    role: Mapping[str, Any] | Words | None
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
    after_any: HasName | Words | None
    after_failed: HasName | Words | None
    priority: str | None
    requeue_on_timeout: int | None
    grace: int | str | None
    idle_stop: int | str | None
    notify: Any  # an address, a hook as in the setting of this name, or a list of them
    keep_failed: int | str | None


class JobOptions(CommonOptions, total=False):
    """What a job needs and how it runs; each option is a flag of `job.sub`.

    Options that are not given come from the project's settings, as for commands.
    """

    image: str | None
    sources: Words | None
    pip_installs: Words | None
    template: str | None
    parameter: Mapping[str, Any] | Words | None


NAMES = tuple(name for name in JobOptions.__annotations__ if name not in SHORT_NAMES)
OF_DOCUMENTS = (
    *("job_name", "virtual_cluster", "update", "tag", "secret"),
    *("after", "after_any", "after_failed", "notify"),
)
"""The options of a job whose document is given: a job file or a request."""

Options = sdk.jobs.JobOptions


def read_options(options: Mapping[str, Any], known: Iterable[str] = ()) -> Options:
    """Read the options; refuse unknown names, or those that are not ``known``."""
    options = full_names(options)
    check_names(options, tuple(known) or NAMES)
    given = {name: value for name, value in options.items() if value is not None}
    return sdk.jobs.read_options({name: _plain(name, value) for name, value in given.items()})


def full_names(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options without short names."""
    for short, name in SHORT_NAMES.items():
        if short in options and name in options:
            raise ConfigError(f"{short} and {name} are the same option: give one of them")
    return {SHORT_NAMES.get(name, name): value for name, value in options.items()}


def check_names(options: Iterable[str], known: tuple[str, ...]) -> None:
    """Raise for an option that does not exist here."""
    for name in options:
        if name in known:
            continue
        if name in NAMES:
            of_document = known == OF_DOCUMENTS
            why = "the document has it (use update=)" if of_document else "jobs of calls cannot have it"
            raise ConfigError(f"the option {name!r} does not fit here: {why}")
        if name in ("cluster", "cluster_alias"):
            raise ConfigError(f"the option {name!r} does not fit here: Job(cluster=) takes it")
        hint = closest(name, known) or f" (known: {', '.join(known)})"
        raise ConfigError(f"no option named {name!r}{hint}")


def _plain(name: str, value: Any) -> Any:
    """Return a value without types of other libraries: paths, handles of jobs, scalars of NumPy."""
    if name == "secret":
        return _secret_names(value)
    if name == "notify":
        return value
    if isinstance(value, Mapping):
        if name == "env":
            return {str(key): value_text(item) for key, item in value.items()}
        return {str(key): plain_value(item, name) for key, item in value.items()}
    return words(value, name) if name in _LISTS | _MAPPINGS else plain_number(value)


def plain_value(value: Any, name: str) -> Any:
    """Return a value that a document can hold, or raise."""
    if isinstance(value, Mapping):
        return {str(key): plain_value(item, name) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_value(item, name) for item in value]
    if value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    try:
        return float(value) if isinstance(value, float) else json_number(value)
    except TypeError as err:
        raise InvalidOption(name, f": cannot use a value in a job document: {err}") from err


def _secret_names(value: Any) -> tuple[str, ...]:
    names = tuple(value) if isinstance(value, Mapping) else words(value, "secret")
    for name in names:
        if "=" in name:
            mapping = f"secret={{{name.partition('=')[0]!r}: value}}"
            raise ConfigError(f"give the value of a secret in a mapping: {mapping}")
    return names


def words(given: HasName | Words, name: str) -> tuple[str, ...]:
    """Return one word or several as a tuple of texts; a status of a job also names its user."""
    several = (given,) if isinstance(given, (str, os.PathLike)) or hasattr(given, "name") else given
    if not isinstance(several, Iterable):
        raise InvalidOption(name, f"needs a text or a list of texts, got {given!r}")
    return tuple(
        os.fspath(word)
        if isinstance(word, (str, os.PathLike))
        else str(getattr(word, "key", "") or getattr(word, "name", word))
        for word in several
    )


def secret_values(options: Mapping[str, Any]) -> dict[str, str]:
    """Return the secrets whose values are given."""
    given = options.get("secret")
    return {str(name): str(value) for name, value in given.items()} if isinstance(given, Mapping) else {}


def secret_reader(values: Mapping[str, str]) -> Callable[[str], str]:
    """Return a function that reads secrets, from the given values or the environment; nobody is asked."""
    return lambda name: values[name] if name in values else document_secret(name, is_chosen=True)


def document_secret(name: str, is_chosen: bool) -> str:
    """Return a secret that a job's document names; from the environment only if the caller chose the name."""
    variable = name.replace(".", "_").replace("-", "_")
    if is_chosen and variable in os.environ:
        return os.environ[variable]
    otherwise = f"set {variable}" if is_chosen else f"secret={name!r} to take it from the variable {variable}"
    raise ConfigError(f"secret {name!r} is needed: pass secret={{{name!r}: ...}}, or {otherwise}")
