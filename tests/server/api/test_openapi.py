"""The server's OpenAPI description: complete, valid, served, and built only on request."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml
from jsonschema import Draft202012Validator

from openpai_tasks.loopback.web import ANY
from openpai_tasks.server.api.formats.profiles import PROFILES
from openpai_tasks.server.api.openapi.build import METHODS, describe, template
from openpai_tasks.server.api.table import rows
from tests.server import conformity
from tests.server.conftest import Api

SWAGGER = """
openapi: 3.0.1
paths:
  /api/v2/info:
    get: {{responses: {{"200": {{content: {{application/json: {{schema: {schema}}}}}}}}}}}
"""
COMPARE = Path(__file__).parents[2] / "compare_openapi.py"


def test_description_is_public_under_both_prefixes(guest: Api) -> None:
    for path in ("/api/openapi.json", "/rest-server/api/openapi.json"):
        assert guest.get(path).json() == describe("union")


@pytest.mark.parametrize("profile", PROFILES)
def test_every_route_is_described(profile: str) -> None:
    described = {
        (method.upper(), template(path))
        for path, operations in describe(profile)["paths"].items()
        for method in operations
    }
    routes = {
        (method, template(row.path))
        for row in rows(profile)
        for method in (METHODS if row.method == ANY else [row.method])
    }
    assert described == routes


@pytest.mark.parametrize("profile", PROFILES)
def test_schemas_are_valid_and_references_resolve(profile: str) -> None:
    document = describe(profile)
    schemas = document["components"]["schemas"]
    for schema in schemas.values():
        _check(json.dumps(schema))
    for operations in document["paths"].values():
        for operation in operations.values():
            for response in operation["responses"].values():
                for content in response["content"].values():
                    _check(json.dumps(content["schema"]))
    named = {one.rpartition("/")[2] for one in _references(document)}
    assert named <= schemas.keys()
    calls = [one["operationId"] for paths in document["paths"].values() for one in paths.values()]
    assert len(calls) == len(set(calls))


def test_refusals_of_slow_large_and_excess_calls_are_described() -> None:
    paths = describe("union")["paths"]
    api_errors = {"408", "413", "429", "503"}
    assert api_errors & paths["/api/v1/token"]["post"]["responses"].keys() == api_errors
    assert api_errors & paths["/api/v2/jobs"]["get"]["responses"].keys() == api_errors - {"503"}


@functools.cache  # thousands of responses have few different schemas
def _check(schema: str) -> None:
    Draft202012Validator.check_schema(json.loads(schema))


def _references(value: Any) -> set[str]:
    if isinstance(value, list):
        return {one for below in value for one in _references(below)}
    if not isinstance(value, dict):
        return set()
    own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
    return own | {one for below in value.values() for one in _references(below)}


def test_server_starts_without_building_the_description() -> None:
    code = "import sys, openpai_tasks.server.api.app; print([m for m in sys.modules if '.openapi' in m])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


def test_undescribed_field_status_or_code_is_detected(guest: Api) -> None:
    def changed(path: str, status: int = 0, **fields: object) -> requests.Response:
        answer = guest.get(path)
        answer.status_code = status or answer.status_code
        answer._content = json.dumps(answer.json() | fields).encode()
        return answer

    conformity.check("union", changed("/api/v2/info"))
    conformity.check("union", changed("/api/v2/users"))
    wrong = [
        changed("/api/v2/info", surprise=1),
        changed("/api/v2/info", name=1),
        changed("/api/v2/info", status=500),
        changed("/api/v2/users", code="SurpriseError"),
        changed("/api/v2/nowhere", code="SurpriseError"),
    ]
    for answer in wrong:
        with pytest.raises(AssertionError):
            conformity.check("union", answer)


def test_each_deviation_from_a_swagger_file_is_listed_with_its_reason(tmp_path: Path) -> None:
    properties = {name: {"type": "string"} for name in ("name", "version", "launcherType", "authnMethod")}
    ran = compare(tmp_path, {"type": "object", "properties": properties})
    assert "REAL        POST /api/v2/info: only here\n              answers every method\n" in ran.stdout
    assert "DELIBERATE  GET /api/v2/info 200 $.engine: only here\n" in ran.stdout
    assert ran.stdout.count("/api/v2/info 200") == 1
    ran = compare(tmp_path, {"type": "object", "properties": {**properties, "colour": {"type": "string"}}})
    assert "UNEXPLAINED GET /api/v2/info 200 $.colour: not here\n" in ran.stdout
    assert ran.returncode == 1
    ran = compare(tmp_path, {"type": "object", "properties": {**properties, "name": {"type": "integer"}}})
    assert "GET /api/v2/info 200 $.name: integer there, string here\n" in ran.stdout


def compare(folder: Path, schema: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    file = folder / "swagger.yaml"
    file.write_text(SWAGGER.format(schema=json.dumps(schema)))
    assert yaml.safe_load(file.read_text())
    return subprocess.run([sys.executable, str(COMPARE), str(file)], capture_output=True, text=True)
