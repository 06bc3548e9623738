"""Explicit types of YAML values: ``!!str 5``, ``!!set {a, b}``; unknown tags are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from openpai_tasks.protocol.yaml import values

PREFIX = "tag:yaml.org,2002:"
MERGE = PREFIX + "merge"


class InvalidTag(Exception):
    """Raised when the tag is unknown or does not match the value."""


def scalar(tag: str, text: str, is_plain: bool) -> Any:
    """Convert a string to the type of its tag; an empty value can be an empty list or mapping."""
    if tag == "!":
        return text or (None if is_plain else "")
    name = tag.removeprefix(PREFIX) if tag.startswith(PREFIX) else ""
    if is_plain and not text and name in _EMPTY:
        return _EMPTY[name]()
    if name not in _SCALARS:
        raise InvalidTag(f"unknown tag {tag}")
    value = _SCALARS[name](text)
    if not values.is_resolved(value) or (is_plain and not text and name == "binary"):
        raise InvalidTag(f"the value is not a valid {name}")
    return value


def collection(tag: str, value: Any) -> Any:
    """Convert a list or mapping to the type of its tag."""
    if tag == "!":
        return value
    kinds = _SEQUENCES if isinstance(value, list) else _MAPPINGS
    kind = kinds.get(tag.removeprefix(PREFIX)) if tag.startswith(PREFIX) else None
    if kind is None:
        raise InvalidTag(f"unknown tag {tag}")
    return kind(value)


def _ordered(items: list[Any]) -> list[Any]:
    """Check an ``!!omap``: a list of one-key mappings without duplicate keys."""
    keys = [next(iter(item)) for item in items if isinstance(item, dict) and len(item) == 1]
    if not len(keys) == len(items) == len(set(keys)):
        raise InvalidTag("the list is not a valid omap")
    return items


def _pairs(items: list[Any]) -> list[Any]:
    """Convert ``!!pairs`` to a list of two-item lists; keys may repeat."""
    if not all(isinstance(item, dict) and len(item) == 1 for item in items):
        raise InvalidTag("the list is not valid pairs")
    return [list(*item.items()) for item in items]


def _set(mapping: dict[str, Any]) -> dict[str, Any]:
    """Check a ``!!set``: a mapping whose values are all null."""
    if any(value is not None for value in mapping.values()):
        raise InvalidTag("the mapping is not a valid set")
    return mapping


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
_SEQUENCES: dict[str, Callable[[Any], Any]] = {"seq": lambda items: items, "omap": _ordered, "pairs": _pairs}
_MAPPINGS: dict[str, Callable[[Any], Any]] = {"map": lambda mapping: mapping, "set": _set}
_EMPTY: dict[str, Callable[[], Any]] = {
    **dict.fromkeys(("seq", "omap", "pairs"), list),
    **dict.fromkeys(("map", "set"), dict),
    "merge": lambda: None,
}
