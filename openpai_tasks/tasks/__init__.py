"""Our collections for a project's tasks.py (``namespace``), and a decorator for its own tasks (``task``)."""

from __future__ import annotations

import sys

# Invoke forbids writing .pyc files before it loads a tasks.py, which would make every start compile us again.
sys.dont_write_bytecode = bool(sys.flags.dont_write_bytecode)

import copy  # noqa: E402
from collections.abc import Callable  # noqa: E402
from importlib import import_module  # noqa: E402
from types import ModuleType  # noqa: E402
from typing import Any  # noqa: E402

from invoke.collection import Collection  # noqa: E402
from invoke.tasks import Task  # noqa: E402

from openpai_tasks.compat import add_to_collection  # noqa: E402
from openpai_tasks.errors import ConfigError  # noqa: E402
from openpai_tasks.tasks.framework.base import connect, say, settings, show, task  # noqa: E402
from openpai_tasks.tasks.framework.invoke_patches import patch_invoke  # noqa: E402

__all__ = ["Namespace", "connect", "namespace", "say", "settings", "show", "task"]

COLLECTIONS = {
    "cluster": ("cluster",),
    "job": ("job", "job_submit", "job_results", "job_schema", "job_templates", "job_after"),
    "storage": ("storage", "storage_places", "storage_packing", "storage_usage"),
    "container": ("container", "container_start", "container_images"),
    "notebook": ("notebook", "notebook_serve"),
    "config": ("config",),
}
"""The modules of this package that each collection takes its tasks from."""


class Namespace(Collection):
    """A Collection in which a project can replace our tasks by its own."""

    def __deepcopy__(self, memo: Any) -> Namespace:
        """Return itself: Invoke copies the whole tree at every start, and nothing changes it afterwards."""
        return self

    def override(self, name: str, theirs: Task[Any] | None = None) -> Any:
        """Replace the task ``name`` by ``theirs`` and return ours; without ``theirs``, return a decorator."""
        folder, _, last = name.rpartition(".")
        try:
            home = self.subcollection_from_path(folder) if folder else self
            ours: Task[Any] = home.tasks[home.transform(last)]
        except KeyError:
            known = ", ".join(sorted(self.task_names))
            raise ConfigError(f"no task named {name!r} to override (known: {known})") from None

        def put(new: Task[Any] | Callable[..., Any]) -> Task[Any]:
            made: Task[Any] = new if isinstance(new, Task) else task(new)
            twin = copy.copy(made)
            twin.aliases = (*made.aliases, *(alias for alias in ours.aliases if alias not in made.aliases))
            home.tasks[home.transform(last)] = twin
            return made

        if theirs is None:
            return put
        put(theirs)
        return ours


def namespace(*own: Any, **defaults: Any) -> Namespace:
    """Return our collections with a project's ``own`` tasks and collections, and its default settings."""
    patch_invoke()
    root = Namespace()
    for name, modules in COLLECTIONS.items():
        root.add_collection(_collection(name, [import_module(f"{__name__}.{module}") for module in modules]))
    for item in own:
        add_to_collection(root, item)
    if defaults:
        root.configure({"openpai": defaults})
    return root


def _collection(name: str, modules: list[ModuleType]) -> Namespace:
    collection = Namespace(name)
    collection.__doc__ = modules[0].__doc__
    for module in modules:
        for item in vars(module).values():
            if isinstance(item, Task) and item.__module__ == module.__name__:
                collection.add_task(item)
    return collection
