"""The vocabulary of the description: JSON schemas and operations."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import field
from typing import Any

from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.server.api.context import Context
from openpai_tasks.server.api.request import Reply, Request

Schema = dict[str, Any]
Fields = dict[str, Schema]
Errors = dict[int, tuple[str, ...]]
"""The codes of each status; NO_CODE for an error without one."""

TEXT: Schema = {"type": "string"}
WHOLE: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
FLAG: Schema = {"type": "boolean"}
NULL: Schema = {"type": "null"}
OBJECT: Schema = {"type": "object"}  # with any content
TIME: Schema = {"type": "integer", "description": "milliseconds since the epoch"}
HTML = "text/html"
PLAIN = "text/plain"
YAML = "text/yaml"
NO_CODE = ""
INVALID, FORBIDDEN, NO_JOB = "InvalidParametersError", "ForbiddenUserError", "NoJobError"


def maybe(schema: Schema) -> Schema:
    """Return a schema for the value or null."""
    if "type" not in schema or "enum" in schema:
        return {"anyOf": [schema, NULL]}
    return {**schema, "type": [schema["type"], "null"]}


def one_of(*words: str) -> Schema:
    return {"type": "string", "enum": list(words)}


def listed(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def by_name(values: Schema) -> Schema:
    """Return a schema for an object with any keys."""
    return {"type": "object", "additionalProperties": values}


def each(schema: Schema, names: str) -> Fields:
    """Return several fields with the same schema."""
    return dict.fromkeys(names.split(), schema)


def record(properties: Mapping[str, Schema], optional: Collection[str] = ()) -> Schema:
    """Return a schema for an object with exactly these properties."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
    }


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


MESSAGE = record({"message": TEXT})
STATUS_MESSAGE = record({"status": WHOLE, "message": TEXT})

Answer = Schema | str | tuple[Schema, str]
"""JSON, another media type, or either as the caller accepts it."""


@dataclass(frozen=True)
class Operation:
    """The request and the answers of a handler."""

    summary: str
    answers: Mapping[int, Answer]
    errors: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    query: Mapping[str, Schema] = field(default_factory=dict)
    body: Schema | None = None  # of a request in JSON or a form
    text: str = ""  # the media type of a request in text
    deprecated: bool = False


Operations = dict[Callable[[Context, Request], Reply], Operation]
