"""Find a project's folder and its Invoke settings, from the current folder upwards."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from importlib.util import cache_from_source
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openpai_tasks import compat
from openpai_tasks.errors import ConfigError
from openpai_tasks.files.regular import LARGEST, open_regular, read_limited
from openpai_tasks.protocol import json_text
from openpai_tasks.settings import ownership
from openpai_tasks.settings.home import home

if TYPE_CHECKING:
    from invoke.config import Config

SETTINGS_FILES = ("invoke.yaml", "invoke.yml", "invoke.json", "invoke.py")
MARKS = ("invoke", "fabric", "openpai_tasks", "invocations")


def load_config() -> tuple[Config, str]:
    """Load Invoke's configuration for this folder, and why the project's part is ignored, if it is."""
    return _read_files(project_folder(Path.cwd()))


def invoke_files(config: Config) -> Config:
    """Read Invoke's files for a program that reads others (`fab`); ``config`` is that program's."""
    folder = compat.project_folder(config)
    return _read_files(Path(folder) if folder else None)[0]


def _read_files(folder: Path | None) -> tuple[Config, str]:
    """Read the system's, the user's and the project's files; return also why the latter is ignored."""
    config = _config_class()(lazy=True)
    config.load_system(merge=False)
    config.load_user(merge=False)
    problem = settings_problem(folder) if folder else ""
    if folder and not problem:
        config.set_project_location(str(folder))
        config.load_project(merge=False)
    return config, problem


@functools.cache
def _config_class() -> type[Config]:
    from invoke.config import Config

    class LimitedConfig(Config):
        """Invoke's configuration, whose files may be a stranger's."""

        def _load_yaml(self, path: Any) -> dict[str, Any]:
            return read_yaml(Path(path))

        _load_yml = _load_yaml

        def _load_json(self, path: Any) -> dict[str, Any]:
            return read_json(Path(path))

    return LimitedConfig


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a settings file; raise ConfigError if it is not valid."""

    def load(text: str) -> Any:
        from openpai_tasks.protocol.yaml import limited  # most users have no such file

        return limited.load(text)

    return _read_settings(path, load)


def read_json(path: Path) -> dict[str, Any]:
    """Read a settings file; raise ConfigError if it is not valid."""
    return _read_settings(path, json_text.parse)


def _read_settings(path: Path, load: Callable[[str], Any]) -> dict[str, Any]:
    try:
        data = load(read_limited(path))
    except FileNotFoundError:
        raise  # Invoke tries several names
    except (ValueError, OSError) as err:
        mark = getattr(err, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        reason = getattr(err, "problem", None) or getattr(err, "strerror", None) or err
        raise ConfigError(f"cannot read {path}{line}: {str(reason).splitlines()[0]}") from err
    if data is not None and not isinstance(data, dict):
        raise ConfigError(f"{path} must be a mapping of settings (name: value)")
    return data or {}


def project_folder(start: Path) -> Path | None:
    """Return the nearest folder with a tasks.py for Invoke, else the nearest one with an invoke.yaml."""
    found = (folder for folder in upwards(start) if tasks_module(folder))
    return next(found, None) or settings_folder(start)


def tasks_module(folder: Path, name: str = "tasks") -> Path | None:
    """Return the folder's tasks.py, or the ``__init__.py`` of its package, if it is for Invoke."""
    file, package = folder / f"{name}.py", folder / name / "__init__.py"
    if is_file(file) and is_for_invoke(file):
        return file
    if is_file(package):  # in another user's, there may be millions of files
        modules = [package] if ownership.problem(package) else package.parent.glob("*.py")
        return package if is_for_invoke(*modules) else None
    return None


def settings_folder(start: Path) -> Path | None:
    """Return the nearest folder, from here up, with an invoke.yaml."""
    for folder in upwards(start):
        if any(is_file(folder / name) for name in SETTINGS_FILES):
            return folder
    return None


def own_folder(start: Path) -> Path:
    """Return the folder whose ``.openpai`` holds the settings for work in ``start``.

    The nearest one that has some, else that of the project, else ``start``; never one that another user
    could have made, nor the user's own home.
    """
    above = start.absolute().parents
    for folder in upwards(start):
        kept = [folder / ".openpai" / name for name in ("defaults.yaml", "clusters.yaml")]
        if any(map(is_file, kept)) and (folder not in above or _is_own(folder / ".openpai")):
            return folder
    found = project_folder(start)
    return found if found and (found not in above or _is_own(found / ".openpai")) else start.absolute()


def _is_own(folder: Path) -> bool:
    """Whether a ``.openpai`` is a project's that no other user could have made or can change."""
    is_home = folder.parent == Path.home() or os.path.realpath(folder) == os.path.realpath(home())
    return not is_home and not ownership.problem(folder)


def settings_problem(folder: Path) -> str:
    """Return why a project's settings (an invoke.py runs code) are ignored; empty if they count."""
    files = (folder / name for name in SETTINGS_FILES)
    file = next((file for file in files if is_file(file)), None)
    compiled = [cache_from_source(file)] if file and file.suffix == ".py" else []
    problem = ownership.problem(file, *compiled) if file else ""
    return f"{file} is ignored: {problem}" if problem else ""


def upwards(folder: Path) -> Iterator[Path]:
    """Return the folder and those above it."""
    folder = folder.absolute()
    return iter((folder, *folder.parents))


def is_file(path: Path) -> bool:
    """Whether it is a file; False if a parent folder may not be read."""
    try:
        return path.is_file()
    except OSError:
        return False


def is_for_invoke(*files: Path) -> bool:
    """Whether one of these files uses Invoke: other programs, such as Celery, have a tasks.py too."""
    return any(mark in _text(file) for file in files for mark in MARKS)


def _text(file: Path) -> str:
    try:
        with open_regular(file, follow=True) as opened:
            return opened.read(LARGEST).decode(errors="replace")
    except OSError:  # another user's
        return ""
