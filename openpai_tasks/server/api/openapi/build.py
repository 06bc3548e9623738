"""Build the description from the route table and the operations of the handlers."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any

from openpai_tasks.loopback.web import ANY
from openpai_tasks.protocol.routes import PREFIX
from openpai_tasks.server.api.limits.rates import WORDS
from openpai_tasks.server.api.openapi import authn, cluster, job_calls, jobs, users
from openpai_tasks.server.api.openapi.shapes import (
    HTML,
    NO_CODE,
    TEXT,
    WHOLE,
    Answer,
    BodyShape,
    Content,
    Operation,
    Operations,
    Schema,
    record,
)
from openpai_tasks.server.api.pools import OF_HANDLERS
from openpai_tasks.server.api.shapes.profiles import PROFILES, Profile
from openpai_tasks.server.api.table import Route, RouteAccess, is_api, rows

JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
METHODS = ("GET", "PUT", "POST", "DELETE", "PATCH")
LIMITED = ("X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "Retry-After")
HOLES = {
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
            "schemas": _schemas(profile),
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
                "application": {"type": "http", "scheme": "basic"},
            },
        },
    }


def template(path: str) -> str:
    """Return the path with unnamed parameters, which is equal for routes that match the same requests."""
    return re.sub(r"{\w+}", "{}", path).lower()


def _schemas(profile: Profile) -> dict[str, Schema]:
    parts = (authn, users, cluster, jobs, job_calls)
    return {name: schema for part in parts for name, schema in part.schemas(profile).items()}


def _paths(profile: Profile) -> dict[str, Any]:
    operations: Operations = {}
    for part in (authn, users, cluster, job_calls):
        operations |= part.operations(profile)
    paths: dict[str, Any] = {}
    names: dict[str, str] = {}  # the first path of each template
    for row in rows(profile.name):
        path = names.setdefault(template(row.path), row.path)
        for method in METHODS if row.method == ANY else (row.method,):
            described = _operation(profile, row, path, method, operations[row.handler])
            paths.setdefault(path, {}).setdefault(method.lower(), described)  # the first row answers
    return paths


def _operation(profile: Profile, row: Route, path: str, method: str, one: Operation) -> dict[str, Any]:
    is_open = row.access is RouteAccess.OPEN
    found = {
        "operationId": f"{method.lower()}{re.sub(r'[^A-Za-z0-9]+', '_', path)}".rstrip("_"),
        "summary": one.summary,
        "description": f"For {row.access.value}.",
        "tags": [row.handler.__module__.rpartition(".")[2]],
        "parameters": [*_holes(path), *_query(one.query)],
        "responses": dict(sorted(_responses(profile, row, one))),
        "security": [] if is_open else [{"token": []}, {"application": []}],
    }
    if one.body is not None:
        found["requestBody"] = {"content": _content(one.body), "required": True}
    return found | ({"deprecated": True} if one.deprecated else {})


def _holes(path: str) -> Iterator[dict[str, Any]]:
    for name in re.findall(r"{(\w+)}", path):
        words = {"description": HOLES[name]} if name in HOLES else {}
        yield {"name": name, "in": "path", "required": True, "schema": {**TEXT, "minLength": 1}, **words}


def _query(parameters: Mapping[str, Schema]) -> Iterator[dict[str, Any]]:
    for name, schema in parameters.items():
        yield {"name": name, "in": "query", "schema": schema}


def _content(body: BodyShape) -> dict[str, Any]:
    content: dict[str, Any] = {body.text: {"schema": TEXT}} if body.text else {}
    if body.schema is not None:
        content |= {JSON: {"schema": body.schema}, FORM: {"schema": body.schema}}
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
        yield "429", {"description": WORDS, "headers": headers, "content": {HTML: {"schema": TEXT}}}


def _answer(answer: Answer) -> dict[str, Any]:
    if isinstance(answer, tuple):
        return {kind: schema for part in answer for kind, schema in _answer(part).items()}
    if isinstance(answer, Content):
        return {answer.type: {"schema": TEXT}}
    return {JSON: {"schema": answer}}


def _errors(profile: Profile, row: Route, one: Operation) -> dict[int, set[str]]:
    """Return the error codes of each status, with those that any call can get before its handler."""
    errors: dict[int, set[str]] = {
        400: {NO_CODE, "InvalidParametersError"},  # a body or a query that cannot be parsed
        403: {"ForbiddenUserError"},  # a host or an origin other than this machine
        408: {NO_CODE},  # a body that takes too long to arrive
        413: {NO_CODE},  # a body that is too large
    }
    if row.handler in OF_HANDLERS:
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
