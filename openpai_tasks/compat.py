"""Private attributes and bugs of Python and other libraries, each with the versions it was seen in.

Methods of Invoke are replaced in tasks/framework/invoke_patches.py.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

# Invoke 2.2.1 and 3.0.3: `invoke.context` imports Mock from unittest.mock, for MockContext, and `invoke.util`
# two YAML parsers, for configuration files. Without them, `pai job.list` takes 1.1 times as long as
# `import invoke`, with them 1.4 times; few commands use them.


class _LoadedOnUse(ModuleType):
    """Stands for a module that is loaded when one of its names is used."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # asked for by the import system
            raise AttributeError(name)
        self.leave()
        return getattr(importlib.import_module(self.__name__), name)

    def leave(self) -> None:
        """Let the next import of the name find the real module."""
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]


def _make_mock(*args: Any, **kwargs: Any) -> Any:
    from unittest.mock import Mock

    return Mock(*args, **kwargs)


def load_invoke() -> None:
    """Import Invoke, but not yet the modules that only its tests and configuration files need."""
    mock, yaml = _LoadedOnUse("unittest.mock"), _LoadedOnUse("invoke.vendor.yaml")
    vars(mock)["Mock"] = _make_mock
    for standin in (mock, yaml):
        sys.modules.setdefault(standin.__name__, standin)
    try:
        importlib.import_module("invoke")
    finally:
        mock.leave()
        yaml.leave()


# Invoke 2.2.1 and 3.0.3: Config keeps each level of the settings in `_LEVEL`, and where a level was read from
# in `_LEVEL_path`; `_project_prefix` is the folder that project files are looked for in.


def config_level(config: Any, level: str) -> Any:
    """Return the settings of one level (``project``, ``user``, ...) of an Invoke configuration, if any."""
    return getattr(config, f"_{level}", None)


def config_path(config: Any, level: str) -> str | None:
    """Return the file that a level of an Invoke configuration was read from."""
    path = getattr(config, f"_{level}_path", None)
    return None if path is None else str(path)


def is_config_found(config: Any, level: str) -> bool:
    """Return whether the file of a level was there."""
    return bool(getattr(config, f"_{level}_found", None))


def set_config_level(config: Any, level: str, values: dict[str, Any]) -> None:
    """Replace the settings of one level; a plain assignment would make the attribute a setting."""
    config._set(**{f"_{level}": values})
    config.merge()


def project_folder(config: Any) -> str | None:
    """Return the folder whose invoke.yaml counts."""
    folder = getattr(config, "_project_prefix", None)
    return None if folder is None else str(folder)


def is_of_fabric(config: Any) -> bool:
    """Whether a configuration reads the files of Fabric (fabric.yaml) instead of Invoke's."""
    return getattr(type(config), "prefix", None) == "fabric"


# Invoke 2.2.1 and 3.0.3: only `_add_object` takes tasks and collections alike.


def add_to_collection(collection: Any, item: Any) -> None:
    """Add a task or a collection."""
    collection._add_object(item)


# PyJWT 2.15: it loads cryptography, if that is installed, for algorithms with public keys.


@contextlib.contextmanager
def hidden_module(name: str) -> Iterator[None]:
    """Make a module seem not to be installed, unless it is loaded already."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[name]


# Python 3.10 to 3.14: `threading._register_atexit`, which concurrent.futures uses; the last one runs first.


def call_before_threads_end(call: Callable[[], None]) -> None:
    """Call a function at the end of the program, while thread pools can still be used."""
    import concurrent.futures.thread  # noqa: F401 - it must be registered before

    threading._register_atexit(call)  # type: ignore[attr-defined]


# Python 3.10 to 3.14: Ctrl-C in `Event.wait` may leave its lock held, so that `Event.set` never returns.

_STEP = 0.02  # seconds


def wait_for_event(event: threading.Event, seconds: float) -> bool:
    """Wait until the event is set, up to a number of seconds; return whether it is set."""
    limit = time.monotonic() + seconds
    while not event.is_set() and (left := limit - time.monotonic()) > 0:
        time.sleep(min(_STEP, left))
    return event.is_set()


# Python 3.10 to 3.14: Thread.start waits forever for a thread that has no memory to begin with
# (https://github.com/python/cpython/issues/140746). A thread needs its stack and some kilobytes.

_USUAL_STACK, _BEYOND_STACK = 8 << 20, 1 << 20


def refuse_threads_without_memory() -> None:
    """Let the start of a thread fail at once if there is no memory for it."""
    import mmap  # only servers need them
    import resource

    name = "_start_joinable_thread" if sys.version_info >= (3, 13) else "_start_new_thread"
    start = getattr(threading, name)
    stack = resource.getrlimit(resource.RLIMIT_STACK)[0]
    size = (_USUAL_STACK if stack == resource.RLIM_INFINITY else stack) + _BEYOND_STACK

    def start_with_memory(*args: Any, **kwargs: Any) -> Any:
        try:
            mmap.mmap(-1, size).close()
        except OSError:
            raise RuntimeError("can't start new thread") from None
        return start(*args, **kwargs)

    setattr(threading, name, start_with_memory)
