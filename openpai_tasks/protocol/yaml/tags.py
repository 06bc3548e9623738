"""The explicit types a YAML value may be given: ``!!str 5``, ``!!set {a, b}``; all others are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from openpai_tasks.protocol.yaml import values

PREFIX = "tag:yaml.org,2002:"
MERGE = PREFIX + "merge"


class Unfit(Exception):
    """The type is unknown, or the value is not of it."""


def scalar(tag: str, text: str, is_plain: bool) -> Any:
    """A text as the type it is marked with; nothing at all can be an empty list or mapping."""
    if tag == "!":
        return text or (None if is_plain else "")
    name = tag.removeprefix(PREFIX) if tag.startswith(PREFIX) else ""
    if is_plain and not text and name in _EMPTY:
        return _EMPTY[name]()
    if name not in _SCALARS:
        raise Unfit(f"unknown tag {tag}")
    value = _SCALARS[name](text)
    if not values.resolved(value) or (is_plain and not text and name == "binary"):
        raise Unfit(f"this value is no {name}")
    return value


def collection(tag: str, value: Any) -> Any:
    """A list or mapping as the type it is marked with."""
    if tag == "!":
        return value
    kinds = _SEQUENCES if isinstance(value, list) else _MAPPINGS
    kind = kinds.get(tag.removeprefix(PREFIX)) if tag.startswith(PREFIX) else None
    if kind is None:
        raise Unfit(f"unknown tag {tag}")
    return kind(value)


def _same(value: Any) -> Any:
    return value


def _ordered(items: list[Any]) -> list[Any]:
    """``!!omap``: a list of one-key mappings, no key twice."""
    keys = [next(iter(item)) for item in items if isinstance(item, dict) and len(item) == 1]
    if not len(keys) == len(items) == len(set(keys)):
        raise Unfit("this list is no omap")
    return items


def _pairs(items: list[Any]) -> list[Any]:
    """``!!pairs``: the same as a list of two-item lists, keys may repeat."""
    if not all(isinstance(item, dict) and len(item) == 1 for item in items):
        raise Unfit("this list is no pairs")
    return [list(*item.items()) for item in items]


def _set(mapping: dict[str, Any]) -> dict[str, Any]:
    """``!!set``: a mapping whose values are all null."""
    if any(value is not None for value in mapping.values()):
        raise Unfit("this mapping is no set")
    return mapping


def _nothing() -> None:
    return None


_SCALARS: dict[str, Callable[[str], Any]] = {
    "str": str,
    "null": values.null,
    "bool": values.boolean,
    "int": values.whole,
    "float": values.real,
    "timestamp": values.timestamp,
    "binary": values.binary,
    "merge": str,
}
_SEQUENCES: dict[str, Callable[[Any], Any]] = {"seq": _same, "omap": _ordered, "pairs": _pairs}
_MAPPINGS: dict[str, Callable[[Any], Any]] = {"map": _same, "set": _set}
_EMPTY: dict[str, Callable[[], Any]] = {
    "seq": list,
    "omap": list,
    "pairs": list,
    "map": dict,
    "set": dict,
    "merge": _nothing,
}
