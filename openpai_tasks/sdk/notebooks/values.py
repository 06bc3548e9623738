"""Parameter values as typed on the command line: YAML without its pitfalls."""

from __future__ import annotations

import numbers
import re
from collections.abc import Mapping
from typing import Any

from openpai_tasks.errors import ConfigError
from openpai_tasks.protocol.yaml import limited

_NULL = re.compile(r"null|Null|NULL|~|None")
_BOOL = re.compile(r"true|True|TRUE|false|False|FALSE")
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_FLOAT = re.compile(
    r"[-+]?(?:(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+|\.(?:inf|Inf|INF))|\.(?:nan|NaN|NAN)"
)
_KINDS = (("null", _NULL), ("bool", _BOOL), ("int", _INT), ("float", _FLOAT))


class _Loader(limited.Loader):
    """YAML loader in which `1e-3` is a number, and `yes`, `012` and `2024-01-31` are strings."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - declared so by PyYAML


for _kind, _pattern in _KINDS:
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_kind}", re.compile(f"(?:{_pattern.pattern})$"), None)


def parse_value(text: str, where: str) -> Any:
    """Parse a number, boolean, null, list or mapping; return any other text unchanged."""
    word = text.strip()
    is_scalar = any(pattern.fullmatch(word) for _, pattern in _KINDS)
    if not is_scalar and word[:1] not in ("[", "{", '"', "'"):
        return text
    try:
        value = limited.load(word, _Loader)
    except limited.InvalidYaml as err:
        raise ConfigError(
            f"{where}: {text!r} is not valid YAML ({err.problem}); quote text that begins with a bracket"
        ) from err
    return plain_value(value, where)


def plain_value(value: Any, where: str) -> Any:
    """Convert a value to plain JSON types, or raise."""
    try:
        return _plain(value, where)
    except RecursionError:
        raise ConfigError(f"{where}: the value contains itself or is nested too deeply") from None


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
    kinds = "numbers, booleans, None, strings, and lists and mappings of these"
    raise ConfigError(f"{where}: cannot send a value of type {type(value).__name__}; allowed are {kinds}")


def _name(name: Any, where: str) -> str:
    """Check a mapping's key, which must be a string in JSON."""
    if isinstance(name, str):
        return _text(str(name), where)
    raise ConfigError(f"{where}: keys of a mapping must be strings, got {name!r}; put it in quotes")


def _text(text: str, where: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{where}: {text!r} is not valid Unicode") from None
    return text
