"""The settings: their table, the places they are read from, and the two files of our own.

Weakest first: built in, tasks.py, Invoke's system and user files, ``~/.openpai/defaults.yaml``, the
project's ``invoke.yaml``, ``./.openpai/defaults.yaml``, ``INVOKE_OPENPAI_*``, ``inv -f FILE``, the flag.
They stay out of Invoke's merged configuration, where a clash of two keys would break every command;
each place's own ``openpai`` section is read instead. Secrets are no settings (credentials.py).
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from openpai_tasks.errors import ConfigError
from openpai_tasks.home import home, locked, write_private

SECTION = "openpai"
PREFIX = "INVOKE_OPENPAI_"
BUILT_IN = "built-in"
FLAG = "flag"

Value = str | int | float | bool | tuple[str, ...]

TRUE = ("true", "yes", "on", "1")
FALSE = ("false", "no", "off", "0")
_KINDS = {int: "a whole number", float: "a number", bool: "true or false", tuple: "a list", str: "text"}


def _setting(name: str, default: Any, about: str, least: float | None = None, among: str = "") -> Any:
    details = {"name": name, "about": about, "least": least, "among": tuple(among.split())}
    return field(default=default, metadata=details)


@dataclass(frozen=True)
class Settings:
    """Every setting, typed; ``origins`` says where each one came from."""

    cluster_alias: str = _setting("cluster-alias", "local", "the cluster that commands speak to")
    image: str = _setting("image", "python:3", "the docker image that jobs run in")
    workspace: str = _setting("workspace", "", "folder on the storage that jobs keep their files in")
    virtual_cluster: str = _setting("virtual-cluster", "", "the part of the cluster that jobs run in")
    cpu: int = _setting("cpu", 2, "CPU cores of a job", least=1)
    gpu: int = _setting("gpu", 0, "GPUs of a job", least=0)
    memory_mb: int = _setting("memoryMB", 4096, "memory of a job, in MB", least=1)
    sources: tuple[str, ...] = _setting("sources", (), "files and folders that jobs take along")
    pip_installs: tuple[str, ...] = _setting("pip-installs", (), "packages that jobs install first")
    python: str = _setting("python", "python3", "the python in the image that installs packages")
    clusters_in_local: bool = _setting(
        "clusters-in-local", False, "keep clusters.yaml in ./.openpai, not in ~/.openpai"
    )
    output: str = _setting("output", "table", "how results are shown", among="table json yaml csv")
    editor: str = _setting("editor", "", "the program that `cluster.edit` opens")
    http_timeout: float = _setting("http-timeout", 30.0, "seconds to wait for a cluster's answer", least=0.1)
    local_body_limit: int = _setting(
        "local.body-limit", 100, "KB that a request to the embedded cluster may carry", least=1
    )
    local_enforce: bool = _setting(
        "local.enforce", False, "the embedded cluster holds jobs back that are larger than the machine"
    )
    local_engine: str = _setting(
        "local.engine", "process", "how the embedded cluster runs tasks", among="process docker podman"
    )
    local_profile: str = _setting(
        "local.profile", "union", "the OpenPAI that the embedded cluster is", among="union 0.14 0.18 1.8"
    )
    local_ssh: str = _setting(
        "local.ssh", "auto", "what serves ssh in the embedded cluster", among="auto sshd asyncssh off"
    )
    ssh_key: str = _setting("ssh.key", "", "the private key that opens containers; else one of our own")
    ssh_user: str = _setting("ssh.user", "root", "whom to log in to containers as")
    ssh_timeout: float = _setting("ssh.timeout", 15.0, "seconds to wait for a container's answer", least=1)
    ssh_gateway: str = _setting("ssh.gateway", "", "the host that leads to the containers: USER@HOST:PORT")
    ssh_gateway_key: str = _setting("ssh.gateway-key", "", "the private key that opens the gateway")
    container_engine: str = _setting(
        "container.engine", "auto", "what builds and checks images", among="auto docker podman"
    )
    storage_mounts: tuple[str, ...] = _setting(
        "storage.mounts", (), "where shares are mounted here: CLUSTER/STORAGE=FOLDER or ADDRESS=FOLDER"
    )
    origins: Mapping[str, str] = field(default_factory=dict, repr=False)
    unknown: tuple[str, ...] = field(default=(), repr=False)

    @classmethod
    def load(cls, config: Any = None, flags: Mapping[str, Any] | None = None) -> Settings:
        """Read every place; ``config`` is Invoke's, ``flags`` what the command line said, by field."""
        values: dict[str, Any] = {}
        origins = {name: BUILT_IN for name in VARIABLES}
        unknown: list[str] = []
        for layer in layers(config):
            for given, value in layer.values.items():
                variable = _BY_SPELLING.get(_spelling(given))
                if variable is None and layer.is_ours:
                    continue  # older clients kept more in there
                if variable is None:
                    unknown.append(f"{layer.origin}: {_unknown(given)}")
                elif value not in (None, ""):
                    origin = layer.naming.get(given, layer.origin)
                    values[variable.field] = variable.read(value, origin)
                    origins[variable.name] = origin
        for key, value in (flags or {}).items():
            if value is not None and value != [] and value != ():
                variable = _BY_FIELD[key]
                values[key] = variable.read(value, f"--{variable.name}")
                origins[variable.name] = FLAG
        return cls(**values, origins=origins, unknown=tuple(unknown))


@dataclass(frozen=True)
class Variable:
    """One row of the table: its name as people write it, what it may be, and what it is for."""

    name: str
    field: str
    default: Value
    about: str
    least: float | None
    among: tuple[str, ...]

    @property
    def kind(self) -> type:
        return type(self.default)

    def read(self, value: Any, origin: str) -> Value:
        """``value`` as this setting's type, or an error that names where it was written."""
        if self.among and isinstance(value, float):
            value = str(value)  # YAML takes 0.14 for a number
        read: Value | None = _READERS[self.kind](value)
        if read is None:
            raise ConfigError(f"{origin}: {self.name} must be {_KINDS[self.kind]}, got {value!r}")
        if self.least is not None and isinstance(read, (int, float)) and not read >= self.least:
            raise ConfigError(f"{origin}: {self.name} must be at least {self.least:g}, got {value!r}")
        if isinstance(read, float) and not math.isfinite(read):
            raise ConfigError(f"{origin}: {self.name} must be a finite number, got {value!r}")
        if self.among and read not in self.among:
            raise ConfigError(f"{origin}: {self.name} must be one of {', '.join(self.among)}, got {value!r}")
        return read


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _truth(value: Any) -> bool | None:
    word = str(value).lower()
    return word in TRUE if word in TRUE + FALSE and isinstance(value, (bool, int, str)) else None


def _whole(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        return None
    try:
        return int(value)
    except ValueError:
        return None


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        return float(value)
    except ValueError:
        return None


def _words(value: Any) -> tuple[str, ...] | None:
    if isinstance(value, str):
        return tuple(word.strip() for word in value.split(",") if word.strip())
    if isinstance(value, (list, tuple)) and all(isinstance(word, str) for word in value):
        return tuple(value)
    return None


_READERS: dict[type, Any] = {str: _text, bool: _truth, int: _whole, float: _number, tuple: _words}


def _spelling(name: object) -> str:
    """``memory_mb``, ``memory-mb`` and ``memoryMB`` are one name."""
    return "".join(char for char in str(name).lower() if char not in "-_.")


VARIABLES: dict[str, Variable] = {
    item.metadata["name"]: Variable(field=item.name, default=cast(Value, item.default), **item.metadata)
    for item in dataclasses.fields(Settings)
    if item.metadata
}
_BY_SPELLING = {_spelling(name): variable for name, variable in VARIABLES.items()}
_BY_FIELD = {variable.field: variable for variable in VARIABLES.values()}


def find(name: str) -> Variable:
    """The setting of that name, in any spelling."""
    try:
        return _BY_SPELLING[_spelling(name)]
    except KeyError:
        raise ConfigError(f"{_unknown(name)} (known: {', '.join(VARIABLES)})") from None


def _unknown(name: object) -> str:
    near = difflib.get_close_matches(str(name), VARIABLES, 1)
    return f"no setting is named {str(name)!r}" + (f", did you mean {near[0]}?" if near else "")


@dataclass(frozen=True)
class Layer:
    """What one place says; ``naming`` names the variable of the environment a value came from."""

    origin: str
    values: Mapping[Any, Any]
    naming: Mapping[str, str] = field(default_factory=dict)
    is_ours: bool = False


def layers(config: Any = None) -> Iterator[Layer]:
    """The places settings are read from, weakest first."""
    yield Layer("tasks.py", _section(config, "_collection", "tasks.py"))
    yield _file_layer(config, "system")
    yield _file_layer(config, "user")
    yield _defaults_layer(defaults_path(is_global=True))
    yield _file_layer(config, "project")
    if defaults_path(is_global=False) != defaults_path(is_global=True):
        yield _defaults_layer(defaults_path(is_global=False))
    yield _environment()
    yield _file_layer(config, "runtime")
    yield Layer("this program", _section(config, "_overrides", "this program"))
    yield Layer("this program", _section(config, "_modifications", "this program"))


def _file_layer(config: Any, level: str) -> Layer:
    origin = str(getattr(config, f"_{level}_path", None) or level)
    return Layer(origin, _section(config, f"_{level}", origin))


def _section(config: Any, level: str, origin: str) -> dict[str, Any]:
    """The ``openpai`` section of one level of Invoke's configuration, nested names joined by a dot."""
    data = getattr(config, level, None)
    section = data.get(SECTION) if isinstance(data, dict) else None
    if section is not None and not isinstance(section, dict):
        raise ConfigError(f"{origin}: {SECTION!r} must hold settings (name: value), got {section!r}")
    return _flat(section or {})


def _flat(section: Mapping[Any, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in section.items():
        if isinstance(value, dict):
            flat.update({f"{key}.{inner}": item for inner, item in value.items()})
        else:
            flat[str(key)] = value
    return flat


def _environment() -> Layer:
    """``INVOKE_OPENPAI_MEMORYMB`` and the like; an empty variable counts as not set."""
    given = {name: value for name, value in os.environ.items() if name.startswith(PREFIX) and value}
    values = {name.removeprefix(PREFIX): value for name, value in given.items()}
    return Layer("the environment", values, {name.removeprefix(PREFIX): name for name in given})


def defaults_path(is_global: bool) -> Path:
    """The user's own defaults, or those of the folder a command is run in."""
    return (home() if is_global else Path.cwd() / ".openpai") / "defaults.yaml"


def _defaults_layer(path: Path) -> Layer:
    return Layer(str(path), _flat(read_defaults(path)), is_ours=True)


def read_defaults(path: Path) -> dict[str, Any]:
    """What a defaults.yaml holds; nothing where there is none."""
    import yaml

    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as err:
        raise ConfigError(f"cannot read {path}: {err}") from err
    except yaml.YAMLError as err:
        mark = getattr(err, "problem_mark", None)
        place = f", line {mark.line + 1}" if mark else ""
        raise ConfigError(f"{path}{place}: not valid YAML; mend or remove the file") from err
    if data is not None and not isinstance(data, dict):
        raise ConfigError(f"{path} must hold settings (name: value); mend or remove the file")
    return data or {}


def change_defaults(path: Path, values: Mapping[str, Value], remove: Iterable[str] = ()) -> None:
    """Set and remove settings in a defaults.yaml, keeping the rest, whoever else writes it now."""
    import yaml

    gone = {_spelling(name) for name in (*remove, *values)}
    with locked(path):
        kept = {key: item for key, item in _flat(read_defaults(path)).items() if _spelling(key) not in gone}
        kept |= {key: list(item) if isinstance(item, tuple) else item for key, item in values.items()}
        text = yaml.safe_dump(kept, sort_keys=False, allow_unicode=True) if kept else ""
        write_private(path, text)
