"""Let errors of the API name Python's arguments instead of the flags of commands.

Commands and the API call the same SDK, whose messages name flags: ``--max-time must be ...``.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from typing import Any, TypeVar

from openpai_tasks.api.options import NAMES
from openpai_tasks.errors import PaiError
from openpai_tasks.hints import replace_flags

ClassT = TypeVar("ClassT", bound=type)

_ARGUMENTS = {*NAMES, "cluster", "preview", "sweep", "sweep_file", "max_parallel"}
_SHORT = {"u": "update"}
_TWICE = re.compile(r"\b(\w+): \1 ")


def argument_names(text: str) -> str:
    """Return a message with ``max_time=`` for ``--max-time``, if the API has such an argument."""

    def argument(flag: str, tail: str) -> str | None:
        name = flag.replace("-", "_")
        name = _SHORT.get(name, name)
        if name not in _ARGUMENTS:
            return None
        return f"{name}:" if tail == ":" else f"{name}="

    return _TWICE.sub(r"\1 ", replace_flags(text, argument))


@contextlib.contextmanager
def python_names() -> Iterator[None]:
    """Change the message of an error that is raised inside."""
    try:
        yield
    except PaiError as err:
        if err.args:
            err.args = (argument_names(str(err.args[0])), *err.args[1:])
        raise


def with_python_names(cls: ClassT) -> ClassT:
    """Change the messages of errors that the public methods and properties of a class raise."""
    for name, member in list(vars(cls).items()):
        if name.startswith("_"):
            continue
        if inspect.isfunction(member):
            _ARGUMENTS.update(inspect.signature(member).parameters)
            setattr(cls, name, _wrapped(member))
        elif isinstance(member, property) and member.fget:
            setattr(cls, name, property(_wrapped(member.fget)))
    return cls


def _wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            with python_names():
                return await function(*args, **kwargs)

        return awaited

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        with python_names():
            found = function(*args, **kwargs)
        if inspect.isasyncgen(found):
            return _async_items(found)
        return _items(found) if inspect.isgenerator(found) else found

    return called


def _items(found: Iterator[Any]) -> Iterator[Any]:
    with python_names():
        yield from found


async def _async_items(found: AsyncGenerator[Any, Any]) -> AsyncIterator[Any]:
    with python_names():
        async with contextlib.aclosing(found) as items:
            async for item in items:
                yield item
