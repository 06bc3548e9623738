"""Fields of answers: each reader gives the type that it is named by, whatever a server has put there."""

from __future__ import annotations

import math
from typing import Any

UNFIT = (
    *(LookupError, TypeError, ValueError, AttributeError, ArithmeticError),
    *(AssertionError, SyntaxError, RuntimeError),  # of libraries; the last one is also of what is too deep
)
"""What code raises that takes an answer for what it is not."""
LARGEST = 1 << 53  # what every JSON reader can tell from its neighbours
LAST_MOMENT = 253_402_300_799_000  # ms: the end of the year 9999, behind which no calendar goes


def text(value: Any) -> str:
    """A text, or a number as one; nothing for anything else."""
    if isinstance(value, str):
        return value
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return str(value) if is_number and number(value) is not None else ""


def number(value: Any) -> int | float | None:
    """A number that can be counted with; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if -LARGEST <= value <= LARGEST and math.isfinite(value) else None


def whole(value: Any) -> int | None:
    """A whole number, also one written as a text."""
    if isinstance(value, str) and len(value) < 17 and value.removeprefix("-").isdecimal():
        return int(value)
    found = number(value)
    return int(found) if found is not None and found == int(found) else None


def count(value: Any) -> int:
    """How many there are; 0 where that is not said."""
    return max(0, whole(value) or 0)


def moment(value: Any) -> int | None:
    """A time in milliseconds since 1970."""
    found = number(value)
    return int(found) if found is not None and 0 <= found <= LAST_MOMENT else None


def mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def rows(value: Any) -> list[dict[str, Any]]:
    """The objects of a list."""
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def texts(value: Any) -> tuple[str, ...]:
    """The texts of a list."""
    return tuple(text(one) for one in value if one == "" or text(one)) if isinstance(value, list) else ()
