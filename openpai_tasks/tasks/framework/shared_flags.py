"""Tasks whose flags come from a table or from another task; Invoke reads them from the signature."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
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


def with_options(options: Mapping[str, Any]) -> Callable[[Body], Body]:
    """Give a body ``(c, ..., **options)`` flags with these defaults."""

    def decorate(body: Body) -> Body:
        def build() -> inspect.Signature:
            own = [
                item for item in inspect.signature(body).parameters.values() if item.kind != item.VAR_KEYWORD
            ]
            more = [
                inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
                for name, default in options.items()
            ]
            return inspect.Signature([*own, *more])

        @with_signature(build)
        @functools.wraps(body)
        def wrapper(*words: Any, **given: Any) -> Any:
            return body(*words, **given)

        return wrapper

    return decorate


def same_flags_as(
    other: Any, word: str = "", more: Mapping[str, Any] | None = None, **fixed: Any
) -> Callable[[Body], Body]:
    """Give a body ``(c, word, flags)`` the flags of the task ``other``, without those that are fixed.

    ``flags`` holds their values by name. ``word`` names a positional that the other task does not have, and
    ``more`` are flags with their defaults that it does not have either.
    """

    @functools.cache
    def build() -> inspect.Signature:
        context, *known = signature(other.body).parameters.values()
        first = (
            [inspect.Parameter(word, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None)] if word else []
        )
        last = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
            for name, default in (more or {}).items()
        ]
        kept = [item for item in known if item.name not in fixed]
        return inspect.Signature([context, *first, *kept, *last])

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
