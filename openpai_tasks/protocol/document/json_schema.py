"""The rules of schema.py as JSON Schema (draft 7, which most editors support), with descriptions.

It is exactly as strict as the table. Rules about the whole document, such as names of prerequisites that must
exist, are only checked by `job.validate`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from openpai_tasks.protocol.document import rules
from openpai_tasks.protocol.document.descriptions import HINTS, Hint
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
"""The snippet that editors offer in an empty file, with numbered placeholders."""


def job_schema() -> Schema:
    """Return the JSON Schema of v2 job documents."""
    snippet = {"label": "job", "description": "a job with one task role", "body": STARTER}
    return {"$schema": DRAFT, "title": "OpenPAI job", **rule_schema(JOB, ()), "defaultSnippets": [snippet]}


def rule_schema(rule: rules.Rule, path: tuple[str, ...]) -> Schema:
    """Return the JSON Schema of the rule for the part of a document at ``path``."""
    hint = HINTS.get(".".join(path))
    return {**(describe_hint(hint) if hint else {}), **_WRITERS[type(rule)](rule, path)}


def describe_hint(hint: Hint) -> Schema:
    """Return the description, default and examples that editors show."""
    words: Schema = {"description": hint.about}
    if hint.default is not None:
        words["default"] = hint.default
    if hint.examples:
        words["examples"] = list(hint.examples)
    return words


def whole_match(pattern: str) -> str:
    """Anchor a pattern, as JSON Schema matches anywhere in a text."""
    return f"^{pattern}$"


def _text(rule: rules.Text, path: tuple[str, ...]) -> Schema:
    limits: Schema = {"pattern": whole_match(rule.pattern)} if rule.pattern else {}
    return {"type": "string", **limits, **({"maxLength": rule.longest} if rule.longest else {})}


def _integer(rule: rules.Integer, path: tuple[str, ...]) -> Schema:
    limit = {} if rule.least is None else {"minimum": rule.least}
    return {"type": ["integer", "null"] if rule.null else "integer", **limit}


def _items(rule: rules.Items, path: tuple[str, ...]) -> Schema:
    least = {"minItems": rule.least} if rule.least else {}
    return {"type": "array", "items": rule_schema(rule.rule, (*path, "*")), **least}


def _fields(rule: rules.Fields, path: tuple[str, ...]) -> Schema:
    known = {
        key: False if isinstance(value, rules.Forbidden) else rule_schema(value, (*path, key))
        for key, value in rule.known.items()
    }
    schema: Schema = {"type": "object", "properties": {**known, **_suggestions(rule, path)}}
    if rule.required:
        schema["required"] = list(rule.required)
    return schema if rule.others else {**schema, "additionalProperties": False}


def _suggestions(rule: rules.Fields, path: tuple[str, ...]) -> Schema:
    """Describe known keys where any key is allowed, without restricting their values."""
    if not rule.others:
        return {}
    prefix = ".".join((*path, ""))
    known = {key.removeprefix(prefix): hint for key, hint in HINTS.items() if key.startswith(prefix)}
    free = (key for key in known if not key.startswith("*") and key.split(".")[0] not in rule.known)
    return {key: describe_hint(known[key]) for key in free if key not in rule.known}


def _entries(rule: rules.Entries, path: tuple[str, ...]) -> Schema:
    """Set no type: the server's rule does not apply to values other than mappings."""
    names = {whole_match(rule.pattern): rule_schema(rule.rule, (*path, "*"))}
    return {"patternProperties": names, "additionalProperties": False, "minProperties": 1}


def _variants(rule: rules.Variants, path: tuple[str, ...]) -> Schema:
    choices = {"enum": list(rule.rules), **describe_hint(HINTS[".".join((*path, rule.key))])}
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
    rules.Anything: lambda rule, path: {},
    rules.Entries: _entries,
    rules.Fields: _fields,
    rules.Items: _items,
    rules.NumberOrText: lambda rule, path: {"type": ["string", "number"]},
    rules.OneOf: lambda rule, path: {"enum": list(rule.allowed)},
    rules.Text: _text,
    rules.Variants: _variants,
    rules.Integer: _integer,
}
