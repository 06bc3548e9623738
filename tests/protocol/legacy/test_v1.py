from __future__ import annotations

import copy

import pytest

from openpai_tasks.errors import ProtocolError
from openpai_tasks.protocol import dump, read, to_v2, validate, validate_v1

JOB = {
    "jobName": "old-job",
    "image": "repo/img",
    "dataDir": "hdfs://nn/data",
    "outputDir": "$PAI_DEFAULT_FS_URI/out",
    "codeDir": "",
    "virtualCluster": "lab",
    "retryCount": 2,
    "jobEnvs": {"DEBUG": True, "NAME": "it's"},
    "extras": {"a.b": 1},
    "taskRoles": [
        {
            "name": "worker",
            "taskNumber": "2",
            "memoryMB": 1024,
            "portList": [{"label": "web", "portNumber": 3}],
            "command": "run <% 1",
        },
    ],
}


def changed(**changes):
    return {**copy.deepcopy(JOB), **changes}


def role(**changes):
    return changed(taskRoles=[{**JOB["taskRoles"][0], **changes}])


def test_validation_does_not_modify_the_given_document():
    given = copy.deepcopy(JOB)
    validate_v1(given)
    assert given == JOB


def test_numeric_text_is_accepted_like_on_the_real_server():
    numbers = {"2": 2, " 2 ": 2, "2.0": 2, 2.0: 2, "1e3": 1000, "+5": 5, "5.": 5, "0x10": 0, -7: -7}
    found = {given: validate_v1(role(gpuNumber=given))["taskRoles"][0]["gpuNumber"] for given in numbers}
    assert found == numbers and {type(number) for number in found.values()} == {int}


def test_other_values_are_not_accepted_as_numbers():
    for given in ("", "two", "2a", "1_0", "NaN", "Infinity", "1e400", "1.5", 2**53, None, True, [1]):
        with pytest.raises(ProtocolError, match=r"taskRoles\[0\].gpuNumber: must be"):
            validate_v1(role(gpuNumber=given))


def test_documents_that_the_real_server_refuses_are_refused():
    refused = [
        (changed(taskRole=[]), "taskRole: unknown key, did you mean 'taskRoles'?"),
        (changed(extras={"a b": 1}), "extras['a b']: unknown key"),
        (changed(retryCount=-3), "retryCount: must be >= -2, got -3"),
        (role(shmMB=2000), r"taskRoles[0].shmMB: must be <= memoryMB (1024), got 2000"),
        (role(name="a-b"), "taskRoles[0].name: must match [A-Za-z0-9._~]+, got 'a-b'"),
        (changed(jobName="a\n"), "jobName: must match"),
        (changed(taskRoles="[]"), "taskRoles: must have at least 1 item"),
        ([], "must be an object"),
    ]
    for document, message in refused:
        with pytest.raises(ProtocolError) as caught:
            validate_v1(document)
        assert str(caught.value).startswith(message)


def test_lists_and_objects_may_come_as_json_text():
    document = changed(jobEnvs='{"A": 1}', taskRoles='[{"name": "a", "command": "c"}]')
    assert validate_v1(document)["jobEnvs"] == {"A": 1}
    assert validate_v1(document)["taskRoles"][0]["taskNumber"] == 1


def test_a_converted_job_is_a_valid_v2_document():
    job = validate(dump(to_v2(JOB)))
    (worker,) = job.roles
    assert (job.name, job.virtual_cluster, job.retries) == ("old-job", "lab", 2)
    assert (worker.instances, worker.image, worker.ports) == (2, "repo/img", {"web": 3})
    assert (worker.memory_mb, worker.shm_mb, worker.cpu) == (1024, 64, 1)
    assert job.extras == {"a.b": 1}
    assert job.entrypoints()["worker"].splitlines() == [
        'export PAI_DATA_DIR="hdfs://nn/data"',
        'export PAI_OUTPUT_DIR="$PAI_DEFAULT_FS_URI/out"',
        "export DEBUG=true",
        "export NAME='it'\"'\"'s'",
        "run <% 1",
    ]


def test_a_job_with_credentials_for_the_registry_is_not_converted():
    with pytest.raises(ProtocolError, match="authFile"):
        to_v2(changed(authFile="hdfs://nn/auth"))


def test_unlimited_retries_become_the_largest_retry_count():
    assert to_v2(changed(retryCount=-1))["jobRetryCount"] == 2**31 - 1


def test_all_problems_are_reported_at_once_with_their_lines():
    text = """{
  "jobName": "a b",
  "image": "python:3",
  "gpuTyp": "K80",
  "taskRoles": [
    {"name": "one", "command": "true"},
    {"name": "two", "command": "",
     "memoryMB": "lots", "shmMB": 9000000,
     "gpuNumber": 1.5}
  ]
}"""
    source = read(text)
    with pytest.raises(ProtocolError) as caught:
        validate_v1(source.value, source)
    assert [(problem.path, problem.line) for problem in caught.value.problems] == [
        ("gpuTyp", 4),
        ("jobName", 2),
        ("taskRoles[1].memoryMB", 8),
        ("taskRoles[1].gpuNumber", 9),
        ("taskRoles[1].command", 7),
    ]
    assert "did you mean 'gpuType'?" in caught.value.problems[0].rule
    assert str(caught.value).endswith("(line 4) (+4 more)")
