"""job.validate and job.schema: what users and editors learn about job files, without a cluster."""

from __future__ import annotations

import json

import jsonschema
import pytest
import yaml

from openpai_tasks import protocol
from openpai_tasks.errors import ConfigError
from openpai_tasks.sdk.jobs import documents
from openpai_tasks.sdk.templates.schemas import settings_schema
from openpai_tasks.settings import config

GOOD = protocol.dump(protocol.build_document(protocol.JobRequest("true", name="good", image="python:3")))
BROKEN = """\
protocolVersion: 2
name: a b
type: job
prerequisites:
- {name: image, type: dockerimage, uri: "python:3", auth: {password: "<% $secrets.x"}}
taskRoles:
  worker:
    instance: 1
    instances: 0
    dockerImage: imgae
    resourcePerInstance: {cpu: 1, memoryMB: 1024, gpu: 0}
    commands:
    - echo <% x
"""
OLD = '{\n\t"jobName": "old",\n\t"image": 3,\n\t"taskRoles": [\n\t\t{"name": "main"}\n\t]\n}\n'


def test_all_problems_are_reported_at_once_with_path_rule_and_line(shell):
    (shell.project / "job.yaml").write_text(BROKEN)
    ran = shell.inv("job.validate", "job.yaml", "-o", "json")
    assert ran.code == 120
    [verdict] = ran.json()
    assert (verdict["file"], verdict["valid"], verdict["version"]) == ("job.yaml", False, 2)
    assert [(problem["path"], problem["line"]) for problem in verdict["problems"]] == [
        ("name", 2),
        ("taskRoles.worker.instance", 8),
        ("taskRoles.worker.instances", 9),
        ("taskRoles.worker.dockerImage", 10),
        ("prerequisites[0].auth.password", 5),
        ("taskRoles.worker.commands", 12),
    ]
    rules = [problem["rule"] for problem in verdict["problems"]]
    assert rules[2] == "must be >= 1, got 0"
    assert "did you mean 'image'?" in rules[3]


def test_table_output_has_one_line_per_problem_with_file_and_line(shell):
    (shell.project / "job.yaml").write_text(BROKEN)
    ran = shell.inv("job.validate", "job.yaml")
    assert "job.yaml:9: taskRoles.worker.instances: must be >= 1, got 0" in ran.out.splitlines()
    assert len(ran.out.splitlines()) == 6
    assert ran.err == "error: 1 of 1 job files are not valid: 'job.yaml'\n"


def test_every_file_is_validated_even_if_one_cannot_be_read(shell):
    (shell.project / "good.yaml").write_text(GOOD)
    (shell.project / "old.json").write_text(OLD)
    (shell.project / "broken.yaml").write_text("a: [\n")
    ran = shell.inv("job.validate", "good.yaml", "nope.yaml", "old.json", "broken.yaml", "-o", "json")
    assert ran.code == 120
    good, missing, old, broken = ran.json()
    assert good == {"file": "good.yaml", "valid": True, "version": 2, "problems": []}
    assert missing["problems"][0]["rule"] == "cannot read it: No such file or directory"
    assert [(problem["path"], problem["line"]) for problem in old["problems"]] == [
        ("image", 3),
        ("taskRoles[0].command", 5),
    ]
    assert old["version"] == 1
    assert broken["problems"][0]["line"] == 2
    assert ran.err == "error: 3 of 4 job files are not valid: 'nope.yaml', 'old.json', 'broken.yaml'\n"


def test_exit_code_says_whether_a_file_is_only_missing(shell):
    (shell.project / "good.yaml").write_text(GOOD)
    ran = shell.inv("job.validate", "good.yaml", "nope.yaml")
    assert ran.code == 123
    assert ran.err == "error: 1 of 2 job files cannot be read: 'nope.yaml'\n"


def test_valid_files_are_reported_as_valid(shell):
    (shell.project / "good.yaml").write_text(GOOD)
    assert shell.ok("job.validate", "good.yaml", "good.yaml").out == "good.yaml: valid\n" * 2
    assert shell.ok("job.validate", "/dev/stdin", input=GOOD).out == "/dev/stdin: valid\n"


def test_printed_schema_validates_job_files(shell):
    schema = shell.ok("job.schema").json()
    document = yaml.safe_load(GOOD)
    jsonschema.validate(document, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**document, "taskRole": {}}, schema)


VALUES = [
    "x", "json", "", "2", " 7 ", "0", "-1", "0.5", "1e3", "yes", "OFF", "True", "1", "maybe",
    2, 0, -1, 1.5, 30.25, True, False, [], ["a"], [1], {"a": 1},
]  # fmt: skip


@pytest.mark.parametrize("name", config.VARIABLES)
def test_settings_schema_agrees_with_how_settings_are_read(name):
    checker = jsonschema.Draft7Validator(settings_schema())
    variable = config.VARIABLES[name]
    for value in VALUES:
        try:
            variable.read(value, "here")
            taken = True
        except ConfigError:
            taken = False
        if isinstance(value, str) and variable.least is not None and not taken:
            continue  # a schema cannot compare numbers that are written as text
        assert checker.is_valid({"openpai": {name: value}}) is taken, value


def test_settings_schema_accepts_every_spelling_and_nothing_else(shell):
    schema = shell.ok("job.schema", "--settings").json()
    jsonschema.Draft7Validator.check_schema(schema)
    checker = jsonschema.Draft7Validator(schema)
    good = {
        "memory_mb": 5,
        "Cluster-Alias": "lab",
        "local": {"enforce": True},
        "sources": "a,b",
        "image": None,
    }
    assert checker.is_valid({"openpai": good, "run": {"echo": True}})
    for wrong in ({"imgae": "x"}, {"memory_mb": "lots"}, {"local": {"enforced": True}}, {"output": "xml"}):
        assert not checker.is_valid({"openpai": wrong}), wrong
    described = schema["properties"]["openpai"]["properties"]
    assert set(config.VARIABLES) <= set(described)
    assert described["gpu"]["description"] == "GPUs per task." and described["gpu"]["default"] == 0
    json.dumps(schema)


COMMENTED = """\
// Made with an editor
{
  "jobName": "noted", // unique
  "image": "host//not-a-comment:1",
  "taskRoles": [
    // one role
    {"name": "main", "command": "echo \\"a // b\\" http://host/ // end"}
  ]
}
"""


def test_comments_of_json_are_left_out_but_not_in_strings(shell):
    (shell.project / "old.json").write_text(COMMENTED)
    assert shell.ok("job.validate", "old.json").out == "old.json: valid\n"
    document = yaml.safe_load(shell.ok("job.submit", "old.json", "--preview").out)
    assert document["name"] == "noted" and document["prerequisites"][0]["uri"] == "host//not-a-comment:1"
    assert document["taskRoles"]["main"]["commands"] == ['echo "a // b" http://host/ // end']
    (shell.project / "wrong.json").write_text(COMMENTED.replace('"image"', '"imaeg"'))
    assert "wrong.json:4: imaeg: unknown key" in shell.inv("job.validate", "wrong.json").out


def test_comments_of_json_are_left_out_in_version_2(shell):
    text = json.dumps(yaml.safe_load(GOOD), indent=1).replace("{", "{ // begin", 1)
    (shell.project / "new.json").write_text(text)
    assert shell.ok("job.validate", "new.json").out == "new.json: valid\n"


def test_slashes_of_yaml_are_no_comments():
    flow = "{protocolVersion: 2, name: a, uri: http://host/x}"
    assert documents.without_comments(flow) == flow
