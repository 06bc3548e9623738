"""The files of a new project; nothing that exists is changed."""

from __future__ import annotations

import os
import re
from pathlib import Path

from openpai_tasks.errors import PathError
from openpai_tasks.lazy_dataclass import dataclass

TASKS = '''"""This project's tasks: all of openpai_tasks, and your own."""

from openpai_tasks.tasks import namespace

ns = namespace()
'''
FABFILE = '''"""The same tasks for Fabric: `fab --list`, `fab container.ssh JOB`."""

from tasks import ns

__all__ = ["ns"]
'''
IGNORED = """# Files that are not uploaded with jobs, with the rules of .gitignore.
.env
.venv/
venv/
.ipynb_checkpoints/
*.log
"""
SETTINGS = "# Settings of this project; `pai config.show` lists them all and says where each came from.\n"
WRITTEN, KEPT = "written", "kept: it exists"


@dataclass(frozen=True)
class ProjectFile:
    """A file of a project, and what was done with it."""

    file: str
    result: str


def write_project(folder: Path, settings: dict[str, str]) -> list[ProjectFile]:
    """Write invoke.yaml with these settings, tasks.py, fabfile.py and .paiignore where they are missing."""
    import yaml

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as err:
        raise PathError(f"cannot create the folder {folder}: {err.strerror}") from err
    text = SETTINGS + yaml.safe_dump({"openpai": settings}, sort_keys=False, allow_unicode=True)
    has_settings = any((folder / f"invoke.{suffix}").exists() for suffix in ("yml", "json", "py"))
    files = {"tasks.py": TASKS, "fabfile.py": _fabfile(folder / "tasks.py"), ".paiignore": IGNORED}
    files |= {} if has_settings else {"invoke.yaml": text}
    return [ProjectFile(name, _write_new(folder / name, files[name])) for name in sorted(files)]


def _fabfile(tasks: Path) -> str:
    """Return a fabfile with the tasks of the project; with ours alone if its tasks.py has no namespace."""
    try:
        return FABFILE if re.search(r"^ns\b", tasks.read_text(encoding="utf-8"), re.M) else TASKS
    except FileNotFoundError:
        return FABFILE
    except (OSError, UnicodeDecodeError):
        return TASKS


def _write_new(path: Path, text: str) -> str:
    """Write a file that others cannot change, unless its name is taken, even by a broken link."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    except FileExistsError:
        return KEPT
    except OSError as err:
        raise PathError(f"cannot write {path}: {err.strerror}") from err
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as err:
        path.unlink()  # the next run would keep a part of it
        raise PathError(f"cannot write {path}: {err.strerror}") from err
    return WRITTEN
