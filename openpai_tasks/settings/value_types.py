"""The types of settings: their names in messages, and how to read their values."""

from __future__ import annotations

import functools
from typing import Any

from openpai_tasks.errors import ConfigError

Value = str | int | float | bool | tuple[str, ...]

TRUE = ("true", "yes", "on", "1")
FALSE = ("false", "no", "off", "0")
KINDS = {int: "a whole number", float: "a number", bool: "true or false", tuple: "a list", str: "text"}


def _truth(value: Any) -> bool | None:
    word = str(value).lower()
    return word in TRUE if word in TRUE + FALSE and isinstance(value, (bool, int, str)) else None


def _number(kind: type[int] | type[float], value: Any) -> int | float | None:
    if isinstance(value, bool) or not isinstance(value, (int, str, kind)):
        return None
    try:
        return kind(value)
    except ValueError:
        return None


def _words(value: Any) -> tuple[str, ...] | None:
    if isinstance(value, str):
        return tuple(word.strip() for word in value.split(",") if word.strip())
    if isinstance(value, (list, tuple)) and all(isinstance(word, str) for word in value):
        return value if isinstance(value, tuple) else tuple(value)
    return None


READERS: dict[type, Any] = {
    str: lambda value: value if isinstance(value, str) else None,
    bool: _truth,
    int: functools.partial(_number, int),
    float: functools.partial(_number, float),
    tuple: _words,
}


def one_of(**names: Any) -> Any:
    """Return the value of an argument that has several names; raise if they have different values."""
    given = {name: value for name, value in names.items() if value is not None and value != ""}
    values = list(given.values())
    if any(value != values[0] for value in values):
        shown = " and ".join(f"{name}={value!r}" for name, value in given.items())
        raise ConfigError(f"{shown} contradict each other: give one of them")
    return values[0] if values else None
