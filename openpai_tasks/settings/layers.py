"""The places that settings are read from, weakest first: Invoke's files, our own, and the environment."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from openpai_tasks.errors import ConfigError
from openpai_tasks.settings import ownership, trust
from openpai_tasks.settings.home import home

SECTION = "openpai"
PREFIX = "INVOKE_OPENPAI_"


@dataclass(frozen=True)
class Layer:
    """What one place says; ``naming`` names the variable of the environment a value came from."""

    origin: str
    values: Mapping[Any, Any]
    naming: Mapping[str, str] = field(default_factory=dict)
    is_ours: bool = False
    is_own: bool = True  # False for what comes with a project: somebody else may have written it
    is_project: bool = False  # a file of a project, and no code: what reaches further needs trust
    ignored: str = ""  # why a file of a project does not count at all


def layers(config: Any = None) -> Iterator[Layer]:
    """The places settings are read from, weakest first."""
    yield Layer("tasks.py", section(config, "_collection", "tasks.py"), is_own=False)
    yield _file_layer(config, "system")
    yield _file_layer(config, "user")
    yield defaults_layer(defaults_path(is_global=True))
    yield project_layer(_file_layer(config, "project"))
    if trust.is_project_file(defaults_path(is_global=False)):
        yield project_layer(defaults_layer(defaults_path(is_global=False)))
    yield _environment()
    yield _file_layer(config, "runtime")
    yield Layer("this program", section(config, "_overrides", "this program"))
    yield Layer("this program", section(config, "_modifications", "this program"))


def _file_layer(config: Any, level: str) -> Layer:
    origin = str(getattr(config, f"_{level}_path", None) or level)
    return Layer(origin, section(config, f"_{level}", origin), is_own=level != "project")


def project_layer(layer: Layer) -> Layer:
    """The layer of a project's file; one that somebody else could have written counts for nothing."""
    if not layer.values or layer.origin.endswith(".py"):  # code, which has already run
        return layer
    problem = ownership.problem(layer.origin)
    if problem:
        return Layer(layer.origin, {}, ignored=f"{layer.origin} is ignored: {problem}")
    return dataclasses.replace(layer, is_own=False, is_project=True)


def section(config: Any, level: str, origin: str) -> dict[str, Any]:
    """The ``openpai`` section of one level of Invoke's configuration, nested names joined by a dot."""
    data = getattr(config, level, None)
    values = data.get(SECTION) if isinstance(data, dict) else None
    if values is not None and not isinstance(values, dict):
        raise ConfigError(f"{origin}: {SECTION!r} must hold settings (name: value), got {values!r}")
    return flat(values or {})


def flat(values: Mapping[Any, Any]) -> dict[str, Any]:
    """The same with nested names joined by a dot."""
    joined: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            joined.update({f"{key}.{inner}": item for inner, item in value.items()})
        else:
            joined[str(key)] = value
    return joined


def _environment() -> Layer:
    """``INVOKE_OPENPAI_MEMORYMB`` and the like; an empty variable counts as not set."""
    given = {name: value for name, value in os.environ.items() if name.startswith(PREFIX) and value}
    values = {name.removeprefix(PREFIX): value for name, value in given.items()}
    return Layer("the environment", values, {name.removeprefix(PREFIX): name for name in given})


def defaults_path(is_global: bool) -> Path:
    """The user's own defaults, or those of the folder a command is run in."""
    return (home() if is_global else Path.cwd() / ".openpai") / "defaults.yaml"


def defaults_layer(path: Path) -> Layer:
    """What a defaults.yaml of ours says."""
    return Layer(str(path), flat(read_defaults(path)), is_ours=True)


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
