"""Our collections for a project's tasks.py (``namespace``), and a decorator for its own tasks (``task``)."""

from __future__ import annotations

import sys

# Invoke forbids writing .pyc files before it loads a tasks.py, which would make every start compile us again.
sys.dont_write_bytecode = bool(sys.flags.dont_write_bytecode)

import copy  # noqa: E402
from collections.abc import Callable  # noqa: E402
from typing import TYPE_CHECKING, Any  # noqa: E402

from invoke.collection import Collection  # noqa: E402
from invoke.tasks import Task  # noqa: E402

from openpai_tasks.compat import add_to_collection  # noqa: E402
from openpai_tasks.tasks.framework.invoke_patches import patch_invoke  # noqa: E402
from openpai_tasks.tasks.framework.task import LazyTask, task  # noqa: E402
from openpai_tasks.tasks.index import COLLECTIONS  # noqa: E402

if TYPE_CHECKING:
    from openpai_tasks.tasks.framework.base import connect, say, settings, show

__all__ = ["Namespace", "connect", "namespace", "say", "settings", "show", "task"]


def __getattr__(name: str) -> Any:
    """Load what the bodies of tasks use with the first of them."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from openpai_tasks.tasks.framework import base

    return getattr(base, name)


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
            from openpai_tasks.errors import ConfigError

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
    for name, (summary, entries) in COLLECTIONS.items():
        root.add_collection(_collection(name, summary, entries))
    for item in own:
        add_to_collection(root, item)
    if defaults:
        root.configure({"openpai": defaults})
    return root


def _collection(name: str, summary: str, entries: dict[str, tuple[Any, ...]]) -> Namespace:
    collection = Namespace(name)
    collection.__doc__ = summary
    for task_name, entry in entries.items():
        collection.add_task(LazyTask(task_name, *entry))
    return collection
