"""The line of a magic to words: the shell's rules of quoting, and ``{name}`` for what the notebook knows.

IPython's own way would put values in for ``$name`` too, which belongs to the shell of the job, and leave
the whole line alone as soon as one name is unknown.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from string import Formatter
from typing import Any

from openpai_tasks.magics.commands import Failed

_FIELD = re.compile(r"(?<!\$)\{(\{)?([A-Za-z_]\w*(?:\.\w+|\[[^\[\]{}]*\])*)(?(1)\})\}")
UNREADABLE = 120


def words(line: str, namespace: Mapping[str, Any]) -> list[str]:
    """The words, with the values of ``{name}``, ``{rows[0][name]}`` and the like in them."""
    try:
        found = shlex.split(line)
    except ValueError as err:
        raise Failed(f"cannot read the line: {str(err).lower()}", UNREADABLE) from None
    return [word for given in found for word in _filled(given, namespace)]


def _filled(word: str, namespace: Mapping[str, Any]) -> Iterator[str]:
    """A list that is a word by itself is as many words as it has items; ``{{name}}`` is ``{name}``."""
    alone = _FIELD.fullmatch(word)
    value = None if alone is None or alone[1] else _value(alone[2], namespace)
    if isinstance(value, (list, tuple)):
        yield from map(str, value)
    else:
        yield _FIELD.sub(lambda match: _text(match, namespace), word)


def _text(match: re.Match[str], namespace: Mapping[str, Any]) -> str:
    if match[1]:
        return match[0][1:-1]
    value = _value(match[2], namespace)
    return match[0] if value is None else str(value)


def _value(field: str, namespace: Mapping[str, Any]) -> Any:
    """What the notebook knows by that name; nothing where it knows none."""
    try:
        return Formatter().get_field(field, (), namespace)[0]
    except (LookupError, AttributeError, TypeError, ValueError):
        return None
