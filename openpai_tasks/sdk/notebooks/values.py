"""The values of parameters as people type them: the rules of YAML, less its traps."""

from __future__ import annotations

import numbers
import re
from collections.abc import Mapping
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
        value = yaml.load(word, Loader=_Loader)  # noqa: S506 - made from SafeLoader
    except (yaml.YAMLError, ValueError, RecursionError) as err:
        raise ConfigError(
            f"{where}: {text!r} is not a value in YAML; put text that begins so in quotes"
        ) from err
    return plain_value(value, where)


def plain_value(value: Any, where: str) -> Any:
    """The value as a job can carry it: numbers, truths, null, text, and lists and mappings of these."""
    try:
        return _plain(value, where)
    except RecursionError:
        raise ConfigError(f"{where}: the value is in itself, or too deep") from None


def _plain(value: Any, where: str) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(str(value), where)
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    if isinstance(value, (list, tuple)):
        return [_plain(item, where) for item in value]
    if isinstance(value, Mapping):
        return {_name(name, where): _plain(item, where) for name, item in value.items()}
    kinds = "numbers, True, False, None, text, and lists and mappings of these"
    raise ConfigError(f"{where}: a value of type {type(value).__name__} cannot be sent: {kinds} can")


def _name(name: Any, where: str) -> str:
    """A job carries the values as JSON, where names are text."""
    if isinstance(name, str):
        return _text(str(name), where)
    raise ConfigError(f"{where}: the names in a mapping must be text, got {name!r}: put it in quotes")


def _text(text: str, where: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{where}: the text has letters that are none in Unicode: {text!r}") from None
    return text
