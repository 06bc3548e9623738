"""Write tasks/index.py, from which tasks are listed without being loaded.

``python -m openpai_tasks.tasks.framework.write_index`` does it.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

from invoke.tasks import Task
from invoke.util import helpline

MODULES = {
    "cluster": ("cluster",),
    "job": ("job", "job_submit", "job_results", "job_schema", "job_templates", "job_after"),
    "storage": ("storage", "storage_places", "storage_packing", "storage_usage"),
    "container": ("container", "container_start", "container_images"),
    "notebook": ("notebook", "notebook_serve"),
    "paddle": ("paddle",),
    "config": ("config",),
}
"""The modules that each collection takes its tasks from."""

PACKAGE = "openpai_tasks.tasks"
FILE = Path(__file__).parent.parent / "index.py"
HEAD = '''"""The tasks of each collection, so that they can be listed without being loaded.

Written by `python -m openpai_tasks.tasks.framework.write_index`; do not edit.
"""

from __future__ import annotations

from typing import Any

COLLECTIONS: dict[str, tuple[str, dict[str, tuple[Any, ...]]]] = {
'''


def index() -> str:
    """Return the content of the file, from the tasks themselves."""
    lines = [HEAD]
    for collection, names in MODULES.items():
        modules = [import_module(f"{PACKAGE}.{name}") for name in names]
        lines += [f"{collection!r}: ({helpline(modules[0])!r}, {{\n"]
        lines += [f"    {name!r}: {entry!r},\n" for module in modules for name, entry in _entries(module)]
        lines += ["}),\n"]
    return "".join([*lines, "}\n"])


def _entries(module: ModuleType) -> Iterator[tuple[str, tuple[object, ...]]]:
    """Yield the tasks that a module defines."""
    for attribute, task in vars(module).items():
        if isinstance(task, Task) and task.__module__ == module.__name__:
            summary = helpline(task) or ""
            yield task.name, (module.__name__, attribute, tuple(task.aliases), task.is_default, summary)


if __name__ == "__main__":
    FILE.write_text(index(), encoding="utf-8")
