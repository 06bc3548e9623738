"""``-u path=value``: changes to a job document before it is sent.

``defaults.virtualCluster=lab`` and ``defaults:virtualCluster=lab`` are the same; with colons the names
between them may have dots. ``prerequisites[0].uri`` and ``prerequisites.0.uri`` go into a list, and the
number behind its last item adds one. A value is read as JSON where it is JSON, and is text otherwise.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterable
from typing import Any, NoReturn

from openpai_tasks.errors import ConfigError

_INDEX = re.compile(r"\[(-?\d+)\]")
_NUMBER = re.compile(r"-?\d+")


def apply(document: dict[str, Any], updates: Iterable[str]) -> dict[str, Any]:
    """The document with the changes, in their order; the one given stays as it is."""
    result = copy.deepcopy(document)
    for update in updates:
        path, is_one, value = update.partition("=")
        if not is_one:
            raise ConfigError(f"-u needs path=value, such as defaults.virtualCluster=lab; got {update!r}")
        _put(result, _parts(path), read_value(value), path)
    return result


def read_value(text: str) -> Any:
    """A number, a truth, null, a list or an object where the text is one in JSON; else the text."""
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return text


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is a word, not a number")


def _parts(path: str) -> list[str]:
    separator = ":" if ":" in path else "."
    parts = _INDEX.sub(rf"{separator}\1", path).split(separator)
    if not all(part.strip() for part in parts):
        raise ConfigError(f"-u {path}: a part of the path is empty")
    return parts


def _put(place: Any, parts: list[str], value: Any, path: str) -> None:
    """Walk to the last level, making those that are missing, and set the value there."""
    for number, part in enumerate(parts):
        key = _key(place, part, parts[:number], path)
        if number == len(parts) - 1:
            _set(place, key, value)
            return
        following = _get(place, key)
        if following is None:
            following = [] if _NUMBER.fullmatch(parts[number + 1]) else {}
            _set(place, key, following)
        place = following


def _key(place: Any, part: str, above: list[str], path: str) -> str | int:
    """The part as a key of this level; an error if the level has no such place."""
    where = ".".join(above) or "the document"
    if isinstance(place, dict):
        return part
    if not isinstance(place, list):
        raise ConfigError(f"-u {path}: {where} is {place!r}, so there is no {part!r} in it")
    if not _NUMBER.fullmatch(part):
        raise ConfigError(f"-u {path}: {where} is a list; give the number of an item instead of {part!r}")
    if not -len(place) <= int(part) <= len(place):
        raise ConfigError(f"-u {path}: {where} has {len(place)} items, so there is no {part}")
    return int(part)


def _get(place: Any, key: str | int) -> Any:
    if isinstance(place, dict):
        return place.get(str(key))
    return place[int(key)] if int(key) < len(place) else None


def _set(place: Any, key: str | int, value: Any) -> None:
    if isinstance(place, list) and key == len(place):
        place.append(value)
    else:
        place[key] = value
