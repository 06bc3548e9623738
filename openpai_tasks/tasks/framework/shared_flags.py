"""Tasks whose flags come from a table or from another task; Invoke reads them from the signature."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

Body = Callable[..., Any]


def with_signature(build: Callable[[], inspect.Signature]) -> Callable[[Body], Body]:
    """Give a body a signature that is built on first use, as most starts use one task of many."""

    def decorate(body: Body) -> Body:
        body.build_signature = build  # type: ignore[attr-defined]
        return body

    return decorate


def signature(body: Body) -> inspect.Signature:
    """Return the signature of a task's body, and keep one that is built here."""
    build = getattr(body, "build_signature", None)
    if build is not None and not hasattr(body, "__signature__"):
        body.__signature__ = build()  # type: ignore[attr-defined]
    return inspect.signature(body)


def same_flags_as(other: Any, **fixed: Any) -> Callable[[Body], Body]:
    """Give a body ``(c, word, flags)`` the flags of the task ``other``, without those that are fixed.

    ``flags`` holds their values by name.
    """

    @functools.cache
    def build() -> inspect.Signature:
        known = signature(other.body).parameters.values()
        return inspect.Signature([item for item in known if item.name not in fixed])

    def decorate(body: Body) -> Body:
        @with_signature(build)
        @functools.wraps(body)
        def wrapper(*words: Any, **flags: Any) -> Any:
            bound = build().bind(*words, **flags)
            c, word, *_ = bound.arguments.values()
            rest = dict(list(bound.arguments.items())[2:])
            return body(c, word, {**rest, **fixed})

        return wrapper

    return decorate
