"""Find a project's folder and its Invoke settings, from the current folder upwards."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openpai_tasks.settings import ownership

if TYPE_CHECKING:
    from invoke.config import Config

    from openpai_tasks.settings.config import Settings

SETTINGS_FILES = ("invoke.yaml", "invoke.yml", "invoke.json", "invoke.py")
MARKS = ("invoke", "fabric", "openpai_tasks", "invocations")


def load_settings(flags: Mapping[str, Any] | None = None) -> Settings:
    """Load the settings that commands have in this folder; ``flags`` override every other source.

    A project's tasks.py is not run, so settings in its code do not count.
    """
    from openpai_tasks.settings.config import Settings

    config, problem = load_config()
    loaded = Settings.load(config, flags)
    return dataclasses.replace(loaded, unknown=(problem, *loaded.unknown)) if problem else loaded


def load_config() -> tuple[Config, str]:
    """Load Invoke's configuration for this folder, and why the project's part is ignored, if it is."""
    from invoke.config import Config

    config = Config(lazy=True)
    config.load_system()
    config.load_user()
    folder = project_folder(Path.cwd())
    problem = settings_problem(folder) if folder else ""
    if folder and not problem:
        config.set_project_location(str(folder))
        config.load_project()
    return config, problem


def project_folder(start: Path) -> Path | None:
    """Return the nearest folder with a tasks.py for Invoke, else the nearest one with an invoke.yaml."""
    for folder in upwards(start):
        file, package = folder / "tasks.py", folder / "tasks" / "__init__.py"
        if is_file(file) and is_for_invoke(file):
            return folder
        if is_file(package) and is_for_invoke(*package.parent.glob("*.py")):
            return folder
    return settings_folder(start)


def settings_folder(start: Path) -> Path | None:
    """Return the nearest folder, from here up, with an invoke.yaml."""
    for folder in upwards(start):
        if any(is_file(folder / name) for name in SETTINGS_FILES):
            return folder
    return None


def settings_problem(folder: Path) -> str:
    """Return why a project's settings (an invoke.py runs code) are ignored; empty if they count."""
    files = (folder / name for name in SETTINGS_FILES)
    file = next((file for file in files if is_file(file)), None)
    problem = ownership.problem(file) if file else ""
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
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:  # another user's
        return ""
