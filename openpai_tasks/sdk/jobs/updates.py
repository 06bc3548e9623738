"""Apply changes, ``--update path=value``, to a job document.

``defaults.virtualCluster=lab`` and ``defaults:virtualCluster=lab`` are the same; between colons, names may
contain dots. ``prerequisites[0].uri`` and ``prerequisites.0.uri`` index a list, and the index after its last
item appends. A value is JSON if it parses as such; one that begins with a bracket may also be YAML, as in
a job file. Any other value is text.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterable
from typing import Any, NoReturn, cast

from openpai_tasks import protocol
from openpai_tasks.errors import InvalidOption, ProtocolError
from openpai_tasks.sdk.amounts import read
from openpai_tasks.text.plurals import counted

_INDEX = re.compile(r"\[(-?\d+)\]")
_NUMBER = re.compile(r"-?\d+")


Update = tuple[str, Any]
"""A path in a document, and its new value."""


def apply_updates(document: dict[str, Any], updates: Iterable[Update | str]) -> dict[str, Any]:
    """Return a copy of the document with the changes applied in order."""
    result = copy.deepcopy(document)
    for update in updates:
        path, value = read("update", parse_update, update) if isinstance(update, str) else update
        _put(result, _parts(path), value, path)
    return result


def parse_update(text: str) -> Update:
    """Parse ``path=value``, or raise ValueError."""
    path, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"needs path=value, such as defaults.virtualCluster=lab; got {text!r}")
    try:
        return path, parse_value(value)
    except ProtocolError as err:
        reason = cast(protocol.Problem, err.problems[0]).rule
        raise ValueError(f"{path}: {reason}; put text that begins with a bracket in double quotes") from err


def parse_value(text: str) -> Any:
    """Parse JSON, or a list or mapping in YAML; return any other text unchanged."""
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return protocol.read(text).value if text.lstrip().startswith(("[", "{")) else text


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not valid JSON")


def _parts(path: str) -> list[str]:
    separator = ":" if ":" in path else "."
    parts = _INDEX.sub(rf"{separator}\1", path).split(separator)
    if not all(part.strip() for part in parts):
        raise InvalidOption("update", f"{path}: a part of the path is empty")
    return parts


def _put(level: Any, parts: list[str], value: Any, path: str) -> None:
    """Set the value at the path, creating missing levels."""
    for number, part in enumerate(parts):
        key = _key(level, part, parts[:number], path)
        if isinstance(level, list) and key == len(level):
            level.append(None)
        if number == len(parts) - 1:
            level[key] = value
        elif (level.get(key) if isinstance(level, dict) else level[key]) is None:
            level[key] = [] if _NUMBER.fullmatch(parts[number + 1]) else {}
        level = level[key]


def _key(level: Any, part: str, above: list[str], path: str) -> str | int:
    """Return the part as a key of this level, or raise if there can be no such key."""
    where = ".".join(above) or "the document"
    if isinstance(level, dict):
        return part
    if not isinstance(level, list):
        raise InvalidOption("update", f"{path}: {where} is {level!r}, which cannot contain {part!r}")
    if not _NUMBER.fullmatch(part):
        raise InvalidOption("update", f"{path}: {where} is a list; use an index instead of {part!r}")
    if not -len(level) <= int(part) <= len(level):
        has = f"{where} has {counted(len(level), 'item')}"
        raise InvalidOption("update", f"{path}: index {part} is out of range: {has}")
    return int(part)
