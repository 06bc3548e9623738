"""A task with the flags of another one."""

from __future__ import annotations

import functools
import inspect


def alike(other, **fixed):
    """For a body ``(c, word, flags)``: it takes what ``other`` takes, but for what is fixed.

    Invoke reads flags from a signature, so the other task's is lent to it; ``flags`` are the values by name.
    """
    known = inspect.signature(other.body)
    kept = [item for item in known.parameters.values() if item.name not in fixed]

    def decorate(body):
        @functools.wraps(body)
        def lent(*words, **flags):
            bound = inspect.Signature(kept).bind(*words, **flags)
            c, word, *_ = bound.arguments.values()
            rest = dict(list(bound.arguments.items())[2:])
            return body(c, word, {**rest, **fixed})

        lent.__signature__ = inspect.Signature(kept)  # type: ignore[attr-defined]
        return lent

    return decorate
