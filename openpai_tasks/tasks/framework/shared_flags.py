"""Tasks that take the same flags as another task."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any


def same_flags_as(other: Any, **fixed: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a body ``(c, word, flags)`` the signature of ``other``, without the parameters that are fixed.

    Invoke reads a task's flags from its signature; ``flags`` holds their values by name.
    """
    known = inspect.signature(other.body)
    kept = [item for item in known.parameters.values() if item.name not in fixed]

    def decorate(body: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(body)
        def wrapper(*words: Any, **flags: Any) -> Any:
            bound = inspect.Signature(kept).bind(*words, **flags)
            c, word, *_ = bound.arguments.values()
            rest = dict(list(bound.arguments.items())[2:])
            return body(c, word, {**rest, **fixed})

        wrapper.__signature__ = inspect.Signature(kept)  # type: ignore[attr-defined]
        return wrapper

    return decorate
