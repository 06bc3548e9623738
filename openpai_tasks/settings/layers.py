"""The sources of settings, weakest first: Invoke's files, ours, and the environment."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from openpai_tasks.compat import config_level, config_path, is_of_fabric
from openpai_tasks.errors import ConfigError
from openpai_tasks.files.regular import read_limited, reason
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.settings import ownership, project, trust
from openpai_tasks.settings.home import home

SECTION = "openpai"
PREFIX = "INVOKE_OPENPAI_"


@dataclass(frozen=True)
class Layer:
    """The settings of one source; ``naming`` maps names to the environment variables they came from."""

    origin: str
    values: Mapping[Any, Any]
    naming: Mapping[str, str] = field(default_factory=dict)
    is_ours: bool = False
    is_own: bool = True  # False for files of a project: another user may have written them
    is_project: bool = False  # a project's file that is not code: settings that reach further need trust
    ignored: str = ""  # why a project's file is ignored


def layers(config: Any = None) -> Iterator[Layer]:
    """Yield the sources of settings, weakest first."""
    yield Layer("tasks.py", section(config_level(config, "collection"), "tasks.py"), is_own=False)
    files = (project.invoke_files(config), config) if is_of_fabric(config) else (config,)
    yield from (_file_layer(one, level) for level in ("system", "user") for one in files)
    yield defaults_layer(defaults_path(is_global=True))
    yield from (project_layer(_file_layer(one, "project")) for one in files)
    own = defaults_path(is_global=False)
    if trust.is_project_file(own):
        problem = ownership.problem(own) if project.is_file(own) else ""
        yield _ignored(str(own), problem) if problem else project_layer(defaults_layer(own))
    yield _environment()
    yield _file_layer(config, "runtime")
    for level in ("overrides", "modifications"):
        yield Layer("this program", section(config_level(config, level), "this program"))


def _file_layer(config: Any, level: str) -> Layer:
    origin = config_path(config, level) or level
    return Layer(origin, section(config_level(config, level), origin), is_own=level != "project")


def project_layer(layer: Layer) -> Layer:
    """Mark the layer as a project's; empty it if another user could have written its file."""
    if not layer.values or layer.origin.endswith(".py"):  # its code has already run
        return layer
    if problem := ownership.problem(layer.origin):
        return _ignored(layer.origin, problem)
    return dataclasses.replace(layer, is_own=False, is_project=True)


def _ignored(origin: str, problem: str) -> Layer:
    return Layer(origin, {}, ignored=f"{origin} is ignored: {problem}")


def section(data: Any, origin: str) -> dict[str, Any]:
    """Return the ``openpai`` section of a settings file, nested names joined by dots."""
    values = data.get(SECTION) if isinstance(data, dict) else None
    if values is not None and not isinstance(values, dict):
        raise ConfigError(f"{origin}: {SECTION!r} must be a mapping of settings, got {values!r}")
    return flat(values or {})


def flat(values: Mapping[Any, Any]) -> dict[str, Any]:
    """Join nested names with dots."""
    joined: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            joined.update({f"{key}.{inner}": item for inner, item in value.items()})
        else:
            joined[str(key)] = value
    return joined


def _environment() -> Layer:
    """Read ``INVOKE_OPENPAI_MEMORYMB`` and so on; empty variables count as not set."""
    given = {name: value for name, value in os.environ.items() if name.startswith(PREFIX) and value}
    values = {name.removeprefix(PREFIX): value for name, value in given.items()}
    return Layer("the environment", values, {name.removeprefix(PREFIX): name for name in given})


def defaults_path(is_global: bool) -> Path:
    """Return the defaults.yaml of the user, or of the project that the current folder belongs to."""
    return (home() if is_global else project.own_folder(Path.cwd()) / ".openpai") / "defaults.yaml"


def defaults_layer(path: Path) -> Layer:
    """Read a defaults.yaml as a layer."""
    return Layer(str(path), flat(read_defaults(path)), is_ours=True)


def read_defaults(path: Path) -> dict[str, Any]:
    """Read a defaults.yaml; empty if there is none."""
    try:
        text = read_limited(path)
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as err:
        raise ConfigError(f"cannot read {path}: {reason(err)}") from err
    from openpai_tasks.protocol.yaml import limited

    try:
        data = limited.load(text)
    except limited.InvalidYaml as err:
        place = f", line {err.problem_mark.line + 1}" if err.problem_mark else ""
        why = f" ({err.problem})" if err.problem else ""
        raise ConfigError(f"{path}{place}: not valid YAML{why}; fix or remove the file") from err
    if data is not None and not isinstance(data, dict):
        raise ConfigError(f"{path} must be a mapping of settings (name: value); fix or remove the file")
    return data or {}
