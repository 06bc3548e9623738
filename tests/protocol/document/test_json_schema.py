"""The JSON Schema agrees with the validation rules and with the verdicts of the real server."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema

from openpai_tasks.errors import ProtocolError
from openpai_tasks.protocol import validate
from openpai_tasks.protocol.document.json_schema import HINTS, STARTER, job_schema
from openpai_tasks.protocol.document.rules import Report
from openpai_tasks.protocol.document.schema import JOB
from openpai_tasks.protocol.yaml.reader import read

VECTORS = Path(__file__).parents[2] / "data" / "job-protocol-v2.jsonl"
CHECKER = jsonschema.Draft7Validator(job_schema())
JOB_TEXT = """\
protocolVersion: 2
name: mnist
type: job
prerequisites:
- {name: img, type: dockerimage, uri: "python:3"}
taskRoles:
  worker:
    dockerImage: img
    resourcePerInstance: {cpu: 1, memoryMB: 1024, gpu: 0}
    commands: [echo]
"""


def is_about_shape(reason: str) -> bool:
    """The real server's JSON-Schema checker answers with a list; its other refusals are plain text."""
    return reason.startswith('[{"keyword"')


def verdicts(text: str) -> tuple[bool, bool]:
    """Return whether the schema and the rules accept the shape of a document."""
    source = read(text)
    report = Report(source)
    JOB(source.value, (), report)
    return CHECKER.is_valid(source.value), not report.problems


def test_schema_agrees_with_the_real_server_on_the_shape_of_documents():
    found, expected = {}, {}
    vectors = [json.loads(line) for line in VECTORS.read_text(encoding="utf-8").splitlines()]
    for vector in vectors:
        is_accepted = vector["valid"] or not is_about_shape(vector["reason"])
        try:
            found[vector["id"]] = verdicts(vector["document"])
            expected[vector["id"]] = is_accepted, is_accepted
        except ProtocolError:  # not YAML at all
            found[vector["id"]], expected[vector["id"]] = "invalid", "valid" if vector["valid"] else "invalid"
    assert len(found) == len(vectors) >= 181 and found == expected


CHANGES = [
    ("", ""),
    ("    dockerImage: img\n", "    dockerImage: img\n    instances: 0\n"),
    ("    dockerImage: img\n", "    dockerImage: img\n    instances: 1.5\n"),
    ("    dockerImage: img\n", "    dockerImage: img\n    instances: 2.0\n"),
    ("    dockerImage: img\n", ""),
    ("    dockerImage: img\n", "    dockerImage: img\n    dockerimage: img\n"),
    ("    dockerImage: img\n", "    dockerImage: img\n    extraContainerOptions: {shmMB: 1, any: 2}\n"),
    ("    commands", "    extraContainerOptions: {additionalProperties: 1}\n    commands"),
    ("    dockerImage: img\n", "    dockerImage: img\n    completion: {minFailedInstances: null}\n"),
    ("    dockerImage: img\n", "    dockerImage: img\n    completion: {minFailedInstances: -1}\n"),
    ("  worker:", "  0worker:"),
    ("name: mnist", "name: a b"),
    ("name: mnist", f"name: {'x' * 256}"),
    ("name: mnist", f"name: {'x' * 255}"),
    ("dockerimage", "image"),
    ("type: dockerimage, ", ""),
    ("type: dockerimage, ", "type: data, "),
    ("type: dockerimage, ", "type: script, anything: 1, "),
    ("type: dockerimage, ", "type: dockerimage, anything: 1, "),
    ("type: dockerimage, ", "type: dockerimage, auth: {username: 3}, "),
    ("[echo]", "[]"),
    ("[echo]", "[1]"),
    ("[echo]", "echo"),
    ("protocolVersion: 2", "protocolVersion: '2'"),
    ("protocolVersion: 2", "protocolVersion: 1"),
    ("type: job", "type: job\nversion: 1.5"),
    ("type: job", "type: job\nversion: true"),
    ("type: job", "type: job\nextras: {storages: 3, anything: [1]}"),
    ("type: job", "type: job\nextras: []"),
    ("type: job", "type: job\njobRetryCount: -1"),
    ("type: job", "type: job\ndeployments: [{name: a, taskRoles: {worker: {preCommands: [a]}}}]"),
    ("type: job", "type: job\ndeployments: [{name: a, taskRoles: {worker: {commands: [a]}}}]"),
    ("type: job", "type: job\ndeployments: [{name: a}]"),
    ("gpu: 0}", "gpu: 0, ports: {}}"),
    ("gpu: 0}", "gpu: 0, ports: {a b: 1}}"),
    ("gpu: 0}", "gpu: 0, ports: {web: 1}}"),
    ("gpu: 0}", "gpu: 0, ports: [1]}"),
]
"""Texts of the job above, and what to put in their place."""


def test_the_schema_agrees_with_the_rules():
    found = {change: verdicts(JOB_TEXT.replace(*change, 1)) for change in CHANGES}
    assert [change for change, (schema, rules) in found.items() if schema is not rules] == []
    assert {rules for _, rules in found.values()} == {True, False}


def test_schema_is_valid_json_schema_draft_7():
    jsonschema.Draft7Validator.check_schema(job_schema())
    assert job_schema()["$schema"] == "http://json-schema.org/draft-07/schema#"


def test_schema_is_plain_json():
    assert json.loads(json.dumps(job_schema())) == job_schema()


def described(schema: Any, path: tuple[str, ...] = ()) -> dict[str, Any]:
    """Map the path of each part of the schema to its description."""
    found = {".".join(path): schema.get("description")}
    for key, part in schema.get("properties", {}).items():
        found |= described(part, (*path, key)) if part is not False else {}
    inner = [*schema.get("patternProperties", {}).values(), *filter(None, [schema.get("items")])]
    for part in inner:
        found |= described(part, (*path, "*"))
    for case in schema.get("allOf", []):
        found |= {key: words for key, words in described(case["then"], path).items() if key != ".".join(path)}
    return found


def test_every_part_of_the_schema_is_described_and_every_description_is_used():
    words = described(job_schema())
    assert [path for path, about in words.items() if not about] == []
    assert set(HINTS) == set(words)


def test_starter_with_its_placeholders_filled_is_a_valid_job():
    text = re.sub(r"\$\{\d:([^}]*)\}", r"\1", json.dumps(STARTER))
    assert validate(text).name == "my-job"
