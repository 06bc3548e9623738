"""Documents that are read back into requests."""

import dataclasses

import pytest

from openpai_tasks.protocol import JobRequest, RoleRequest, build_document
from openpai_tasks.protocol.document.job_storage import HdfsFolder, MountedFolder
from openpai_tasks.protocol.document.reading import read_request

FULL = JobRequest(
    command="python train.py --lr '0.1' --tag '<%'\nls",
    name="a",
    image="python:3",
    cpu=3,
    gpu=2,
    memory_mb=512,
    shm_mb=64,
    instances=2,
    role="worker",
    ports={"web": 2, "ui": 8080},
    virtual_cluster="lab",
    retries=4,
    max_seconds=60,
    pip_installs=("numpy", "torch>=2"),
    environment={"LR": "0.1", "TEXT": "it's\ntwo <% lines", "EMPTY": ""},
    outputs=("model/*.pt",),
    extras={"hivedScheduler": {"jobPriorityClass": "prod"}},
)
HOMES = [None, MountedFolder("home", "/mnt/home"), HdfsFolder(("http://h/webhdfs/v1/x",), "u")]


@pytest.mark.parametrize("home", HOMES)
@pytest.mark.parametrize(
    "request_", [FULL, JobRequest(command="true", name="a", image="i", memory_mb=64, is_memory_asked=False)]
)
def test_a_document_is_read_back_into_the_request_that_it_was_built_from(home, request_):
    document = build_document(dataclasses.replace(request_, home=home, archive="ab" * 32 if home else ""))
    found, left = read_request(document)
    assert left == []
    again = build_document(dataclasses.replace(found, name="a", home=home, archive="ab" * 32 if home else ""))
    if home or not request_.outputs:
        assert again == document


def test_secrets_are_read_by_their_names():
    made = build_document(JobRequest(command="true", name="a", image="i", secrets={"A": "plain", "B": "p&q"}))
    found, left = read_request({**made, "secrets": "******"})
    assert list(found.secrets) == ["A", "B"] and left == []


@pytest.mark.parametrize(
    "change, part",
    [
        ({"parameters": {"lr": 1}}, "parameters"),
        ({"contributor": "me"}, "contributor"),
        ({"deployments": [{"name": "d", "taskRoles": {"main": {"postCommands": ["date"]}}}]}, "deployments"),
        (
            {
                "prerequisites": [
                    {"name": "image", "type": "dockerimage", "uri": "i", "auth": {"username": "u"}}
                ]
            },
            "prerequisites",
        ),
    ],
)
def test_parts_that_a_request_cannot_express_are_named(change, part):
    made = build_document(JobRequest(command="true", name="a", image="i"))
    assert read_request({**made, **change})[1] == [part]


def test_templates_in_commands_and_completion_policies_are_named():
    made = build_document(JobRequest(command="true", name="a", image="i"))
    role = {
        **made["taskRoles"]["main"],
        "commands": ["echo <% $parameters.x %>"],
        "completion": {"minFailedInstances": 2},
    }
    left = read_request({**made, "taskRoles": {"main": role}})[1]
    assert sorted(left) == ["taskRoles.main.commands", "taskRoles.main.completion"]


def test_several_roles_cannot_be_expressed():
    roles = (RoleRequest("a", "true"), RoleRequest("b", "true"))
    assert read_request(build_document(JobRequest(name="a", image="i", roles=roles)))[1] == [
        "several task roles"
    ]
