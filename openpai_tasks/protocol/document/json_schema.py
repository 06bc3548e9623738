"""The rules of schema.py as JSON Schema (draft 7, which editors know best), with words for editors.

It says no more and no less than the rules of the table. What needs a look at the whole document, such
as names of prerequisites that must be there, only `job.validate` can check.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from openpai_tasks.protocol.document.descriptions import HINTS, Hint
from openpai_tasks.protocol.document.rules import (
    Anything,
    Fields,
    Items,
    Named,
    Never,
    NumberOrText,
    OneOf,
    Rule,
    Text,
    Variants,
    Whole,
)
from openpai_tasks.protocol.document.schema import JOB

DRAFT = "http://json-schema.org/draft-07/schema#"

Schema = dict[str, Any]

STARTER: Schema = {
    "protocolVersion": 2,
    "name": "${1:my-job}",
    "type": "job",
    "prerequisites": [{"name": "image", "type": "dockerimage", "uri": "${2:python:3.11}"}],
    "taskRoles": {
        "${3:main}": {
            "instances": 1,
            "dockerImage": "image",
            "resourcePerInstance": {"cpu": 1, "memoryMB": 4096, "gpu": 0},
            "commands": ["${4:python3 train.py}"],
        }
    },
}
"""What an editor offers in an empty file; the numbered places are to be filled in."""


def job_schema() -> Schema:
    """The JSON Schema of a v2 job document."""
    snippet = {"label": "job", "description": "a job with one task role", "body": STARTER}
    return {"$schema": DRAFT, "title": "OpenPAI job", **written(JOB, ()), "defaultSnippets": [snippet]}


def written(rule: Rule, path: tuple[str, ...]) -> Schema:
    """The rule for the part of a document at ``path``, as JSON Schema."""
    hint = HINTS.get(".".join(path))
    return {**(described(hint) if hint else {}), **_WRITERS[type(rule)](rule, path)}


def described(hint: Hint) -> Schema:
    """The words of an editor for a part."""
    words: Schema = {"description": hint.about}
    if hint.default is not None:
        words["default"] = hint.default
    if hint.examples:
        words["examples"] = list(hint.examples)
    return words


def whole_match(pattern: str) -> str:
    """A pattern that the whole text must match; JSON Schema looks for it anywhere."""
    return f"^{pattern}$"


def _text(rule: Text, path: tuple[str, ...]) -> Schema:
    limits: Schema = {"pattern": whole_match(rule.pattern)} if rule.pattern else {}
    return {"type": "string", **limits, **({"maxLength": rule.longest} if rule.longest else {})}


def _whole(rule: Whole, path: tuple[str, ...]) -> Schema:
    limit = {} if rule.least is None else {"minimum": rule.least}
    return {"type": ["integer", "null"] if rule.null else "integer", **limit}


def _items(rule: Items, path: tuple[str, ...]) -> Schema:
    least = {"minItems": rule.least} if rule.least else {}
    return {"type": "array", "items": written(rule.rule, (*path, "*")), **least}


def _fields(rule: Fields, path: tuple[str, ...]) -> Schema:
    known = {key: _property(value, (*path, key)) for key, value in rule.known.items()}
    schema: Schema = {"type": "object", "properties": {**known, **_suggestions(rule, path)}}
    if rule.required:
        schema["required"] = list(rule.required)
    return schema if rule.others else {**schema, "additionalProperties": False}


def _property(rule: Rule, path: tuple[str, ...]) -> Schema | bool:
    return False if isinstance(rule, Never) else written(rule, path)


def _suggestions(rule: Fields, path: tuple[str, ...]) -> Schema:
    """Keys that the platform knows where it allows any; nothing is demanded of their values."""
    if not rule.others:
        return {}
    prefix = ".".join((*path, ""))
    known = {key.removeprefix(prefix): hint for key, hint in HINTS.items() if key.startswith(prefix)}
    free = (key for key in known if key not in rule.known and not _is_below(key, rule))
    return {key: described(known[key]) for key in free}


def _is_below(key: str, rule: Fields) -> bool:
    return key.startswith("*") or key.split(".")[0] in rule.known


def _named(rule: Named, path: tuple[str, ...]) -> Schema:
    """Without a type: the server's own rule is silent about what is no mapping."""
    names = {whole_match(rule.pattern): written(rule.rule, (*path, "*"))}
    return {"patternProperties": names, "additionalProperties": False, "minProperties": 1}


def _variants(rule: Variants, path: tuple[str, ...]) -> Schema:
    choices = {"enum": list(rule.rules), **described(HINTS[".".join((*path, rule.key))])}
    return {
        "type": "object",
        "required": [rule.key],
        "properties": {rule.key: choices},
        "allOf": [
            {
                "if": {"required": [rule.key], "properties": {rule.key: {"const": name}}},
                "then": _fields(fields, path),
            }
            for name, fields in rule.rules.items()
        ],
    }


_WRITERS: dict[type, Callable[[Any, tuple[str, ...]], Schema]] = {
    Anything: lambda rule, path: {},
    Fields: _fields,
    Items: _items,
    Named: _named,
    NumberOrText: lambda rule, path: {"type": ["string", "number"]},
    OneOf: lambda rule, path: {"enum": list(rule.allowed)},
    Text: _text,
    Variants: _variants,
    Whole: _whole,
}
