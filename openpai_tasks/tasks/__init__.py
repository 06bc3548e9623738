"""Our collections for a project's tasks.py (``namespace``), and a decorator for its own tasks (``task``)."""

from __future__ import annotations

from openpai_tasks.settings.ownership import allow_bytecode

# Invoke forbids writing .pyc files before it loads a tasks.py, which would make every start compile us again.
allow_bytecode()

import copy  # noqa: E402
from collections.abc import Callable  # noqa: E402
from importlib import import_module  # noqa: E402
from types import ModuleType  # noqa: E402
from typing import Any  # noqa: E402

from invoke.collection import Collection  # noqa: E402
from invoke.tasks import Task  # noqa: E402

from openpai_tasks.compat import add_to_collection  # noqa: E402
from openpai_tasks.errors import ConfigError  # noqa: E402
from openpai_tasks.tasks.framework.base import connect, say, settings, show  # noqa: E402
from openpai_tasks.tasks.framework.invoke_patches import patch_invoke  # noqa: E402
from openpai_tasks.tasks.framework.task import task  # noqa: E402

__all__ = ["Namespace", "connect", "namespace", "say", "settings", "show", "task"]

COLLECTIONS = ("cluster", "job", "storage", "container", "notebook", "paddle", "config")
"""Our collections; the tasks of each are in the module of that name."""


class Namespace(Collection):
    """A Collection in which a project can replace our tasks by its own."""

    def __bool__(self) -> bool:
        """Whether there are tasks; Invoke would load all of them to know."""
        return bool(self.collections) or bool(self.tasks)

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
            made = new if isinstance(new, Task) else task(new)
            twin = copy.copy(made)
            twin.aliases = (*made.aliases, *(alias for alias in ours.aliases if alias not in made.aliases))
            home.tasks[home.transform(last)] = twin
            return made

        if theirs is None:
            return put
        put(theirs)
        return ours


class ModuleTasks(Namespace):
    """The tasks of a module of ours, which is loaded when one of them is named, or all are listed."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        del self.tasks, self.default

    def __getattr__(self, name: str) -> Any:
        if name not in ("tasks", "default"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        loaded = Collection.from_module(self._module())
        self.tasks, self.default = loaded.tasks, loaded.default
        return getattr(self, name)

    @property
    def __doc__(self) -> str | None:  # type: ignore[override]
        return self._module().__doc__

    def _module(self) -> ModuleType:
        return import_module(f"{__name__}.{self.name}")


def namespace(*own: Any, **defaults: Any) -> Namespace:
    """Return our collections with a project's ``own`` tasks and collections, and its default settings."""
    patch_invoke()
    root = Namespace()
    for name in COLLECTIONS:
        root.add_collection(ModuleTasks(name))
    for item in own:
        add_to_collection(root, item)
    if defaults:
        root.configure({"openpai": defaults})
    return root
