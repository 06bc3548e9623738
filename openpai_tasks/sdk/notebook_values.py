"""The values of parameters as people type them: the rules of YAML, less its traps."""

from __future__ import annotations

import json
import re
from typing import Any

import yaml

from openpai_tasks.errors import ConfigError

_NULL = re.compile(r"null|Null|NULL|~|None")
_BOOL = re.compile(r"true|True|TRUE|false|False|FALSE")
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_FLOAT = re.compile(
    r"[-+]?(?:(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+|\.(?:inf|Inf|INF))|\.(?:nan|NaN|NAN)"
)
_KINDS = (("null", _NULL), ("bool", _BOOL), ("int", _INT), ("float", _FLOAT))


class _Loader(yaml.SafeLoader):
    """`1e-3` is a number; `yes`, `012` and `2024-01-31` are text: only what is plainly a number is one."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - of the library


for _kind, _pattern in _KINDS:
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_kind}", re.compile(f"(?:{_pattern.pattern})$"), None)


def read_value(text: str, where: str) -> Any:
    """A number, a truth, null, a list or a mapping where the text is one; else the text itself."""
    word = text.strip()
    is_scalar = any(pattern.fullmatch(word) for _, pattern in _KINDS)
    if not is_scalar and word[:1] not in ("[", "{", '"', "'"):
        return text
    try:
        value = yaml.load(word, Loader=_Loader)
        _check_keys(value)
        json.dumps(value)
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as err:
        raise ConfigError(
            f"{where}: {text!r} is not a value in YAML; put text that begins so in quotes"
        ) from err
    return value


def _check_keys(value: Any) -> None:
    """A job carries the values as JSON, where names are text."""
    if isinstance(value, dict):
        if not all(isinstance(name, str) for name in value):
            raise ValueError("names of a mapping are text")
        for item in value.values():
            _check_keys(item)
    elif isinstance(value, list):
        for item in value:
            _check_keys(item)
