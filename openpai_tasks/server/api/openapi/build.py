"""Build the description from the route table and the operations of the handlers."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any

from openpai_tasks.loopback.web import ANY
from openpai_tasks.protocol.routes import PREFIX
from openpai_tasks.server.api.formats.profiles import PROFILES, Profile
from openpai_tasks.server.api.openapi.operations import (
    FORBIDDEN,
    HTML,
    INVALID,
    NO_CODE,
    TEXT,
    WHOLE,
    Answer,
    Operation,
    Schema,
    operations,
    record,
    schemas,
)
from openpai_tasks.server.api.rates import MESSAGE
from openpai_tasks.server.api.table import Route, RouteAccess, is_api, rows

JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
METHODS = ("GET", "PUT", "POST", "DELETE", "PATCH")
LIMITED = ("X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "Retry-After")
PARAMETERS = {
    "job": "a job, as USER~NAME; only NAME at the paths that begin with a user",
    "attempt": "a number from 0",
    "index": "a number from 0",
    "task_attempt": "a number from 0",
}


@functools.cache
def describe(name: str) -> dict[str, Any]:
    """Return the description of a server with this profile."""
    profile = PROFILES[name]
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "PAI RESTful API of the embedded cluster of openpai-tasks",
            "version": profile.version,
            "description": f"Profile {name}.",
        },
        "servers": [{"url": "/"}, {"url": PREFIX}],
        "paths": _paths(profile),
        "components": {
            "schemas": schemas(profile),
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
                "application": {"type": "http", "scheme": "basic"},
            },
        },
    }


def template(path: str) -> str:
    """Return the path with unnamed parameters, which is equal for routes that match the same requests."""
    return re.sub(r"{\w+}", "{}", path).lower()


def _paths(profile: Profile) -> dict[str, Any]:
    of_handler = operations(profile)
    paths: dict[str, Any] = {}
    names: dict[str, str] = {}  # the first path of each template
    for row in rows(profile.name):
        path = names.setdefault(template(row.path), row.path)
        for method in METHODS if row.method == ANY else (row.method,):
            described = _operation(profile, row, path, method, of_handler[row.handler])
            paths.setdefault(path, {}).setdefault(method.lower(), described)  # the first row answers
    return paths


def _operation(profile: Profile, row: Route, path: str, method: str, one: Operation) -> dict[str, Any]:
    is_open = row.access is RouteAccess.OPEN
    query = [{"name": name, "in": "query", "schema": schema} for name, schema in one.query.items()]
    found = {
        "operationId": f"{method.lower()}{re.sub(r'[^A-Za-z0-9]+', '_', path)}".rstrip("_"),
        "summary": one.summary,
        "description": f"For {row.access.value}.",
        "tags": [row.handler.__module__.rpartition(".")[2]],
        "parameters": [*_path_parameters(path), *query],
        "responses": dict(sorted(_responses(profile, row, one))),
        "security": [] if is_open else [{"token": []}, {"application": []}],
    }
    if one.body is not None or one.text:
        found["requestBody"] = {"content": _content(one), "required": True}
    return found | ({"deprecated": True} if one.deprecated else {})


def _path_parameters(path: str) -> Iterator[dict[str, Any]]:
    for name in re.findall(r"{(\w+)}", path):
        words = {"description": PARAMETERS[name]} if name in PARAMETERS else {}
        yield {"name": name, "in": "path", "required": True, "schema": {**TEXT, "minLength": 1}, **words}


def _content(one: Operation) -> dict[str, Any]:
    content: dict[str, Any] = {one.text: {"schema": TEXT}} if one.text else {}
    if one.body is not None:
        content |= {JSON: {"schema": one.body}, FORM: {"schema": one.body}}
    return content


def _responses(profile: Profile, row: Route, one: Operation) -> Iterator[tuple[str, dict[str, Any]]]:
    errors = _errors(profile, row, one)
    for status in sorted({*one.answers, *errors}):
        content = _answer(one.answers[status]) if status in one.answers else {}
        if status in errors:
            content[JSON] = {"schema": _error(errors[status])}
        yield str(status), {"description": _words(errors.get(status, ())), "content": content}
    if is_api(row.path):
        headers = {name: {"schema": WHOLE} for name in LIMITED}
        yield "429", {"description": MESSAGE, "headers": headers, "content": {HTML: {"schema": TEXT}}}


def _answer(answer: Answer) -> dict[str, Any]:
    if isinstance(answer, tuple):
        return {kind: schema for part in answer for kind, schema in _answer(part).items()}
    if isinstance(answer, str):
        return {answer: {"schema": TEXT}}
    return {JSON: {"schema": answer}}


def _errors(profile: Profile, row: Route, one: Operation) -> dict[int, set[str]]:
    """Return the error codes of each status, with those that any call can get before its handler."""
    errors: dict[int, set[str]] = {
        400: {NO_CODE, INVALID},  # a body or a query that cannot be parsed
        403: {FORBIDDEN},  # a host or an origin other than this machine
        408: {NO_CODE},  # a body that takes too long to arrive
        413: {NO_CODE},  # a body that is too large
    }
    if row.pool:
        errors[503] = {NO_CODE}  # too many such calls at once
    if row.access is not RouteAccess.OPEN:
        errors[401] = {"UnauthorizedUserError"}
    for status, codes in one.errors.items():
        for code in codes:
            real_status, real_code = profile.errors.get(code, (status, code))
            errors.setdefault(real_status, set()).add(real_code)
    return errors


def _error(codes: set[str]) -> Schema:
    code = {"type": "string", "enum": sorted(codes - {NO_CODE})}
    properties: dict[str, Schema] = {"message": TEXT}
    if codes != {NO_CODE}:
        properties = {"code": code, **properties}
    return record(properties, optional=["code"] if NO_CODE in codes else [])


def _words(codes: set[str] | tuple[()]) -> str:
    return ", ".join(sorted(code or "without a code" for code in codes)) or "done"
