"""Split the line of a magic into words, with shell quoting, and ``{name}`` for values of the notebook.

IPython's own expansion would also replace ``$name``, which belongs to the job's shell, and would leave the
whole line as it is if one name is unknown.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from string import Formatter
from typing import Any

from openpai_tasks import exits
from openpai_tasks.magics.commands import Failed

_FIELD = re.compile(r"(?<!\$)\{(\{)?([A-Za-z_]\w*(?:\.\w+|\[[^\[\]{}]*\])*)(?(1)\})\}")


def split_line(line: str, namespace: Mapping[str, Any]) -> list[str]:
    """Return the words, with the values of ``{name}``, ``{rows[0][name]}`` and so on filled in."""
    try:
        found = shlex.split(line)
    except ValueError as err:
        raise Failed(f"cannot parse the line: {str(err).lower()}", exits.BAD_INPUT) from None
    return [word for given in found for word in _filled(given, namespace)]


def _filled(word: str, namespace: Mapping[str, Any]) -> Iterator[str]:
    """Fill in values; a list that is a whole word becomes a word per item, and ``{{name}}`` is ``{name}``."""
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
    """Return the value of a field in the notebook's namespace; None if there is none."""
    try:
        return Formatter().get_field(field, (), namespace)[0]
    except (LookupError, AttributeError, TypeError, ValueError):
        return None
