"""The virtual environment of a project, if commands run here would not use it.

A job of the embedded cluster runs as its command would in the user's shell: it uses the active environment,
not that of the project, nor the one that `pai` is installed in, which has only `pai` if pipx made it.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from openpai_tasks.backends.base import Backend
from openpai_tasks.files.regular import open_regular
from openpai_tasks.loopback import lock
from openpai_tasks.protocol.environment import python_folder
from openpai_tasks.sdk import git
from openpai_tasks.sdk.clusters import embedded
from openpai_tasks.settings import engines, project
from openpai_tasks.settings.ownership import is_trusted_by_variable, problem

NAMES = (".venv", "venv")
USES_PYTHON = re.compile(r"(?:^|[\s;&|('\"])(?:python|pip|torchrun|pytest)[0-9.]*(?=\s|$)")
MARK = "pyvenv.cfg"
LONGEST = 16 << 10
"""Bytes of a script that activates an environment; real ones have a quarter of that."""
FOREIGN = "it was not made here, so activate it only if you trust its author"


def inactive_environments(folder: Path, own: bool = False) -> list[Path]:
    """Return the virtual environments of the project; with ``own``, that of `pai` if called by its path."""
    if python_folder(os.environ):
        return []
    used = shutil.which("python") or shutil.which("python3") or ""
    found = dict.fromkeys([*_of_project(folder), *(_of_this_program() if own else ())])
    return [one for one in found if not _same(Path(used).parent, one / "bin")]


def _of_project(folder: Path) -> Iterator[Path]:
    top = project.project_folder(folder) or folder.absolute()
    for parent in project.upwards(folder):
        yield from (parent / name for name in NAMES if project.is_file(parent / name / MARK))
        if parent == top:
            return


def _of_this_program() -> Iterator[Path]:
    """Yield its own environment, unless it was found through a link, as pipx and `uv tool` make them."""
    if sys.prefix != sys.base_prefix and _same(Path(sys.argv[0]).parent, Path(sys.prefix) / "bin"):
        yield Path(sys.prefix)


def _same(one: Path, other: Path) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def activation(environment: Path) -> str:
    """Return the shell command that activates it; empty unless the user has made it: it runs a script."""
    if not _is_own(environment):
        return ""
    here = Path.cwd()
    near = environment.relative_to(here) if environment.is_relative_to(here) else environment
    return f". {shlex.quote(str(near / 'bin' / 'activate'))}"


def _is_own(environment: Path) -> bool:
    """Return whether the environment was made here, and no other user can have changed it.

    An environment in a clone is tracked by git; one from an archive names another folder.
    """
    if is_trusted_by_variable(environment):
        return True
    real = Path(os.path.realpath(environment))
    scripts = [real / MARK, real / "bin" / "activate"]
    if problem(environment, *scripts) or git.is_tracked(real, *scripts):
        return False
    try:
        with open_regular(scripts[-1]) as file:
            script = file.read(LONGEST)
    except OSError:
        return False
    return os.fsencode(real) in script or os.fsencode(environment) in script


def describe_inactive(client: Backend, command: str, folder: Path) -> str:
    """Return what a user should know before a command runs with another Python; empty if there is nothing."""
    if not client.runs_here or not USES_PYTHON.search(command):
        return ""
    found = inactive_environments(folder)
    facts = lock.read_status(embedded.folder()) or {}
    if not found or facts.get("engine", engines.DEFAULT) in engines.PROGRAMS:
        return ""
    activate = activation(found[0])
    how = f"`{activate}` activates it" if activate else FOREIGN
    return f"{found[0]} is not active, so the job uses another Python; {how}"
