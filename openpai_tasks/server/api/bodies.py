"""Request bodies: JSON, forms with nested brackets, and plain text."""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn
from urllib.parse import parse_qsl

from openpai_tasks.errors import ApiError

LIMIT = 100 * 1024  # bytes, as on the real server
FIELDS_LIMIT = 2000
DEPTH_LIMIT = 8
MOST_DIGITS = 9  # of the number of an item in a list
DEEPEST = 200  # levels; a stored value must also be readable inside larger answers


def parse(content_type: str, raw: bytes) -> Any:
    """Parse the body: text for ``text/*``, else a dictionary or list, which may be empty."""
    kind = content_type.partition(";")[0].strip().lower()
    if not raw:
        return "" if kind.startswith("text/") else {}
    if kind.startswith("text/"):
        return _decode(raw)
    if kind == "application/json" or kind.endswith("+json"):
        return _json(_decode(raw))
    if kind == "application/x-www-form-urlencoded":
        return _form(_decode(raw))
    return {}


def _decode(raw: bytes) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as err:
        raise ApiError(f"the body is not UTF-8 text (byte {err.start})", 400) from err


def _json(text: str) -> Any:
    try:
        value = read_json(text)
        if "\\u" in text:  # it can encode half a surrogate pair, which cannot be stored or sent
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as err:
        raise ApiError(f"the body is not JSON: {err}", 400) from err
    if not isinstance(value, dict | list):
        raise ApiError("the body is not a JSON object or array", 400)
    return value


def _form(text: str) -> Any:
    """Parse a form: ``a[0][b]=1`` becomes ``{"a": [{"b": "1"}]}``."""
    try:
        fields = parse_qsl(text, keep_blank_values=True, max_num_fields=FIELDS_LIMIT)
    except ValueError as err:
        raise ApiError("too many form fields", 413) from err
    tree: dict[str, Any] = {}
    for name, value in fields:
        _insert(tree, _path_of(name), value)
    return _lists(tree)


def _path_of(name: str) -> list[str]:
    head, bracket, rest = name.partition("[")
    if not bracket or not head:
        return [name]
    return [head, *re.findall(r"\[([^\[\]]*)\]", bracket + rest)][:DEPTH_LIMIT]


def _insert(tree: dict[str, Any], steps: list[str], value: str) -> None:
    *path, last = steps
    for step in path:
        below = tree.setdefault(step or str(len(tree)), {})
        if not isinstance(below, dict):
            return
        tree = below
    tree[last or str(len(tree))] = value


def _lists(value: Any) -> Any:
    """Convert dictionaries with the keys 0, 1, 2, … to lists."""
    if not isinstance(value, dict):
        return value
    items = {key: _lists(below) for key, below in value.items()}
    if items and all(key.isdecimal() and len(key) <= MOST_DIGITS for key in items):
        return [items[key] for key in sorted(items, key=int)]
    return items


def read_json(text: str) -> Any:
    """Parse JSON like Node; ValueError for anything else, such as Python's NaN and Infinity."""
    value = json.loads(text, parse_constant=_refuse_constant, parse_float=_number)
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


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a number of JSON")


def _number(text: str) -> float | None:
    """Return the number, or None (null) if it is too large, like JavaScript."""
    value = float(text)
    return value if math.isfinite(value) else None
