"""Check that a response of the server matches the server's own description."""

from __future__ import annotations

import functools
from typing import Any
from urllib.parse import urlsplit

import requests
from jsonschema import Draft202012Validator

from openpai_tasks.loopback.web import Router, without_prefix
from openpai_tasks.protocol.routes import PREFIX
from openpai_tasks.server.api.openapi.build import describe, template
from openpai_tasks.server.api.table import Route, rows

PROFILES: dict[str, str] = {}
"""The profile of each server that was started, by its address."""

NO_ROUTE = {  # responses before routing, or without a route
    403: {"ForbiddenUserError"},
    404: {"NoApiError"},
    408: {None},
    413: {None},
}


def check(profile: str, answer: requests.Response) -> None:
    """Fail unless the description lists this status, type and body for the call."""
    method, url = str(answer.request.method), urlsplit(str(answer.request.url))
    if method == "OPTIONS":  # answered for browsers before routing
        return
    path = without_prefix(url.path, PREFIX)
    match = _router(profile).match(method, path)
    where = f"{method} {path} -> {answer.status_code} {answer.text[:300]!r}"
    if match is None:
        _check_without_route(answer, where)
        return
    response = _operation(profile, method, match.route.path)["responses"].get(str(answer.status_code))
    assert response, f"status not described: {where}"
    if method == "HEAD":
        return
    kind = answer.headers["content-type"].partition(";")[0]
    assert kind in response["content"], f"type {kind} not described: {where}"
    if kind == "application/json":
        validator = _validator(profile, method, match.route.path, str(answer.status_code))
        for problem in validator.iter_errors(answer.json()):
            raise AssertionError(f"{problem.json_path}: {problem.message} in {where}")


def _check_without_route(answer: requests.Response, where: str) -> None:
    if answer.status_code == 429:
        assert answer.headers["content-type"].startswith("text/html"), where
        return
    assert answer.status_code in NO_ROUTE, where
    body = answer.json()
    assert body.get("code") in NO_ROUTE[answer.status_code] and "message" in body, where


@functools.cache
def _router(profile: str) -> Router[Route]:
    return Router(rows(profile))


def _operation(profile: str, method: str, path: str) -> Any:
    return _operations(profile)[template(path)]["get" if method == "HEAD" else method.lower()]


@functools.cache
def _operations(profile: str) -> dict[str, Any]:
    return {template(path): operations for path, operations in describe(profile)["paths"].items()}


@functools.cache
def _validator(profile: str, method: str, path: str, status: str) -> Draft202012Validator:
    content = _operation(profile, method, path)["responses"][status]["content"]
    components = describe(profile)["components"]
    return Draft202012Validator({**content["application/json"]["schema"], "components": components})
