"""JSON Schemas for editors: of job files and of the settings in invoke.yaml."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from openpai_tasks.hooks import hook
from openpai_tasks.protocol.document.json_schema import DRAFT, Schema, job_schema
from openpai_tasks.settings import config, engines, value_types
from openpai_tasks.settings.config import Variable
from openpai_tasks.settings.layers import SECTION

__all__ = ["job_schema", "settings_schema"]

SEPARATORS = "[-_.]*"
TIME = r"^(?=.*[1-9])\s*([0-9]+[dD])?([0-9]+[hH])?([0-9]+[mM])?([0-9]+[sS]?)?\s*$"

_AGE = r"(?=[0-9dhmsDHMS]*[1-9])([0-9]+[dD])?([0-9]+[hH])?([0-9]+[mM])?([0-9]+[sS]?)?"
_LIMIT = rf"([aA][lL][lL]|[0-9]{{1,9}}([kKmMgGtT][bB])?|{_AGE})"
KEEP = rf"^[ ,]*{_LIMIT}([ ,]+{_LIMIT})*[ ,]*$"


def settings_schema() -> Schema:
    """Return the JSON Schema of an invoke.yaml, which checks only our section."""
    variables = config.all_variables()
    section = {
        "type": ["object", "null"],
        "description": "The settings of openpai-tasks.",
        "properties": {one.name: _setting(one) for one in variables} | _groups(variables),
        "patternProperties": {_spellings(one.name): _rule(one) for one in variables},
        "additionalProperties": False,
    }
    return {
        "$schema": DRAFT,
        "title": "Settings of Invoke and openpai-tasks",
        "type": ["object", "null"],
        "properties": {SECTION: section},
    }


def _setting(variable: Variable) -> Schema:
    default = list(variable.default) if isinstance(variable.default, tuple) else variable.default
    return {"description": f"{variable.about[:1].upper()}{variable.about[1:]}.", "default": default} | _rule(
        variable
    )


def _groups(variables: Iterable[Variable]) -> Schema:
    """Return rules for dotted names written as nested keys, such as ``engine`` below ``local``."""
    groups: Schema = {}
    for variable in variables:
        group, dot, key = variable.name.partition(".")
        if dot:
            empty = {"type": "object", "properties": {}, "additionalProperties": False}
            groups.setdefault(group, empty)["properties"][key] = _setting(variable)
    return groups


def _rule(variable: Variable) -> Schema:
    return _RULES[variable.kind](variable)


def _text(variable: Variable) -> Schema:
    if variable.form == config.KEEP:
        return {"type": ["string", "integer", "null"], "pattern": KEEP, "minimum": 0, "maximum": 999_999_999}
    if variable.form == config.TIME:
        return {"type": ["string", "integer", "null"], "pattern": TIME, "minimum": 1}
    if variable.form == config.ENGINE:
        return {"enum": [engines.AUTO, *engines.ENGINES, None]}
    if variable.form:
        return {"type": ["string", "null"], "pattern": engines.load_form(variable.form).PATTERN}
    if "true" in variable.among:
        return {"anyOf": [{"enum": list(variable.among)}, *_boolean(variable)["anyOf"]]}
    return {"enum": [*variable.among, None]} if variable.among else {"type": ["string", "null"]}


def _boolean(variable: Variable) -> Schema:
    """Accept booleans first, which editors suggest, and text in any case."""
    words = "|".join(_any_case(word) for word in (*value_types.TRUE, *value_types.FALSE))
    text = {"type": "string", "pattern": f"^({words})$"}
    return {"anyOf": [{"type": ["boolean", "null"]}, {"enum": [0, 1]}, text]}


def _number(variable: Variable) -> Schema:
    kind = "integer" if variable.kind is int else "number"
    pattern = r"^\s*[-+]?[0-9]+\s*$" if variable.kind is int else r"^\s*[-+]?[0-9.]+([eE][-+]?[0-9]+)?\s*$"
    least = {} if variable.least is None else {"minimum": variable.least}
    return {"type": [kind, "string", "null"], "pattern": pattern, **least}


def _texts(variable: Variable) -> Schema:
    if variable.form != config.HOOKS:
        return {"type": ["array", "string", "null"], "items": {"type": "string"}}
    address = {"type": "string", "pattern": f"^(({'|'.join(hook.SERVICES)}):)?(https?://|env:)"}
    text = {"type": "string"}
    keys = {"post": address, "command": text, "desktop": {"enum": [True]}, "secret": text}
    keys |= {"as": {"enum": list(hook.SERVICES)}, "when": {"type": ["array", "string"], "items": text}}
    ways = [{"required": [name]} for name in ("post", "command", "desktop")]
    mapping = {"type": "object", "properties": keys, "additionalProperties": False, "oneOf": ways}
    return {"anyOf": [address, {"type": "array", "items": {"anyOf": [address, mapping]}}, {"type": "null"}]}


_RULES: dict[type, Callable[[Variable], Schema]] = {
    str: _text,
    bool: _boolean,
    int: _number,
    float: _number,
    tuple: _texts,
}


def _spellings(name: str) -> str:
    """Return a pattern for a name in which dashes, underscores and case do not matter."""
    letters: Iterable[Any] = (char for char in name if char not in "-_.")
    return f"^{SEPARATORS}{SEPARATORS.join(map(_any_case, letters))}{SEPARATORS}$"


def _any_case(word: str) -> str:
    return "".join(f"[{char.lower()}{char.upper()}]" if char.isalpha() else char for char in word)
