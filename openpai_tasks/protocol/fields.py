"""Read fields of answers as the type that each function is named after, whatever the server sent."""

from __future__ import annotations

import math
from typing import Any

MALFORMED = (
    *(LookupError, TypeError, ValueError, AttributeError, ArithmeticError),
    *(AssertionError, SyntaxError, RuntimeError),  # from libraries; RuntimeError also for deep nesting
)
"""Exceptions of code that reads a malformed answer."""
LARGEST = 1 << 53  # the largest integer that every JSON reader represents exactly
LAST_MOMENT = 253_402_300_799_000  # ms: the end of the year 9999, the last one that datetime supports


def text(value: Any) -> str:
    """Return a string, or a number as a string; "" for anything else."""
    if isinstance(value, str):
        return value
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return str(value) if is_number and number(value) is not None else ""


def number(value: Any) -> int | float | None:
    """Return a finite number; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if -LARGEST <= value <= LARGEST and math.isfinite(value) else None


def whole(value: Any) -> int | None:
    """Return an integer, also if written as a string; None for anything else."""
    if isinstance(value, str) and len(value) < 17 and value.removeprefix("-").isdecimal():
        return int(value)
    found = number(value)
    return int(found) if found is not None and found == int(found) else None


def count(value: Any) -> int:
    """Return a count; 0 if it is missing."""
    return max(0, whole(value) or 0)


def moment(value: Any) -> int | None:
    """Return a time in milliseconds since 1970; None for anything else."""
    found = number(value)
    return int(found) if found is not None and 0 <= found <= LAST_MOMENT else None


def mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def rows(value: Any) -> list[dict[str, Any]]:
    """Return the objects in a list."""
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def texts(value: Any) -> tuple[str, ...]:
    """Return the strings in a list."""
    return tuple(text(one) for one in value if one == "" or text(one)) if isinstance(value, list) else ()
