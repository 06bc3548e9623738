"""JSON as a browser or Node reads it, and so that what was taken can always be given back."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

DEEPEST = 200  # levels; a stored value must also be readable inside of larger answers


def read(text: str) -> Any:
    """The value; ValueError for what is not JSON, Python's own NaN and Infinity included."""
    value = json.loads(text, parse_constant=_refuse, parse_float=_number)
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > DEEPEST:
            raise ValueError(f"nested deeper than {DEEPEST} levels")
        level = [below for one in level for below in _below(one)]
    return value


def _below(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a number of JSON")


def _number(text: str) -> float | None:
    """A number too large for JSON's readers becomes null, as it does where JavaScript writes it again."""
    value = float(text)
    return value if math.isfinite(value) else None
