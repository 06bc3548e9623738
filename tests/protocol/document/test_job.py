from __future__ import annotations

import pytest

from openpai_tasks.errors import ProtocolError
from openpai_tasks.protocol import StorageMount, dump, validate
from openpai_tasks.protocol.yaml.reader import read

TEXT = """\
# a job
protocolVersion: 2
name: train
type: job
prerequisites:
- {name: img, type: dockerimage, uri: "repo/img:1", auth: {username: u, password: "<% $secrets.pw %>"}}
parameters: {lr: 0.1}
secrets:
  pw: "hunter2 & <co>"
  # pw: hunter1
taskRoles:
  worker:
    instances: 2
    completion: {minFailedInstances: 0, minSucceededInstances: null}
    dockerImage: img
    extraContainerOptions: {shmMB: 64, infiniband: true}
    resourcePerInstance: {cpu: 2, memoryMB: 1024, gpu: 1, ports: {http: 2, rpc: 3, none: 0}}
    commands: ["run <% $parameters.lr %> <% $secrets.pw %>"]
  ps:
    completion: {minFailedInstances: -1, minSucceededInstances: -1}
    taskRetryCount: 4
    dockerImage: img
    resourcePerInstance: {cpu: 1, memoryMB: 10, gpu: 0}
    commands: [serve]
"""


def test_validated_document_exposes_roles_resources_and_defaults():
    job = validate(TEXT)
    worker, ps = job.roles
    assert (job.name, job.virtual_cluster, job.retries, job.gang, job.priority) == (
        "train",
        "default",
        0,
        True,
        None,
    )
    assert (worker.name, worker.instances, worker.image) == ("worker", 2, "repo/img:1")
    assert (worker.cpu, worker.gpu, worker.memory_mb, worker.shm_mb) == (2, 1, 1024, 64)
    assert worker.ports == {"http": 2, "rpc": 3}
    assert (worker.min_failed, worker.min_succeeded, worker.retries, worker.infiniband) == (1, 2, 0, True)
    assert (ps.instances, ps.min_failed, ps.min_succeeded, ps.retries, ps.shm_mb) == (1, -1, -1, 4, None)
    assert job.parameters == {"lr": 0.1}
    assert job.storages is None
    assert job.data["jobRetryCount"] == 0
    assert job.data["taskRoles"]["ps"]["instances"] == 1


def test_defaults_retries_and_extras_are_parsed():
    extras = (
        "defaults: {virtualCluster: lab}\njobRetryCount: 3\n"
        "extras: {gangAllocation: false, hivedScheduler: {jobPriorityClass: prod},"
        " storages: [{name: home}, {name: data, mountPath: /data}]}\n"
    )
    job = validate(TEXT + extras)
    assert (job.virtual_cluster, job.retries, job.gang, job.priority) == ("lab", 3, False, "prod")
    assert job.storages == (StorageMount("home", "/mnt/home"), StorageMount("data", "/data"))


def test_storages_of_the_older_storage_plugin_are_parsed():
    plugin = "extras: {com.microsoft.pai.runtimeplugin: [{plugin: teamwise_storage%s}]}\n"
    named = plugin % ", parameters: {storageConfigNames: [home]}"
    assert validate(TEXT + named).storages == (StorageMount("home", "/mnt/home"),)
    assert validate(TEXT + plugin % "").storages == ()


def test_secrets_are_rendered_in_commands_but_not_in_entrypoints():
    job = validate(TEXT)
    assert job.entrypoints()["worker"] == "run 0.1 <% $secrets.pw %>"
    assert job.commands("worker") == "run 0.1 hunter2 &amp; &lt;co&gt;"  # as the real runtime does


def test_secrets_appear_neither_in_repr_nor_in_masked_text():
    job = validate(TEXT)
    assert "hunter" not in repr(job)
    assert "hunter" not in job.masked()
    assert job.secrets == {"pw": "hunter2 & <co>"}


def test_masking_keeps_the_rest_of_the_text():
    masked = validate(TEXT).masked()
    assert masked.startswith("# a job\n")
    assert 'parameters: {lr: 0.1}\nsecrets: "******"\ntaskRoles:\n' in masked


def compact(text: str) -> str:
    return str(read(text).value).replace("'", '"').replace("None", "null").replace("True", "true")


@pytest.mark.parametrize(
    "text",
    [
        compact(TEXT),
        compact(TEXT).replace('"secrets"', '\n"secrets"').replace('"taskRoles"', '\n"taskRoles"'),
        TEXT.replace("secrets:\n", '"secrets":\n'),
        TEXT.replace("secrets:\n", "secrets : # here\n"),
        TEXT.replace("secrets:\n", "secrets: &all\n"),
        TEXT.replace("\n", "\r\n"),
        "---\n" + TEXT,
        dump({**read(TEXT).value, "secrets": {"pw": "hunter2 & <co>"}}),
    ],
    ids=["one line", "flow over lines", "quoted key", "comment", "anchor", "crlf", "marker", "dumped"],
)
def test_secrets_are_masked_in_every_style(text):
    job = validate(text)
    assert job.secrets == {"pw": "hunter2 & <co>"}
    masked = job.masked()
    assert "hunter" not in masked
    assert read(masked).value == {**read(text).value, "secrets": "******"}
    assert [line for line in masked.splitlines() if line.startswith('secrets: "******"')]


def test_secrets_used_by_an_alias_do_not_break_the_masked_text():
    text = TEXT.replace("secrets:\n", "secrets: &all\n") + "extras: {copy: *all}\n"
    assert read(validate(text).masked()).value["secrets"] == "******"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("instances: 2", "instances: 0", "taskRoles.worker.instances: must be >= 1, got 0 (line 13)"),
        (
            "instances: 2",
            "instances: two",
            "taskRoles.worker.instances: must be an integer, got 'two' (line 13)",
        ),
        (
            "instances: 2",
            "instance: 2",
            "taskRoles.worker.instance: unknown key, did you mean 'instances'? (line 13)",
        ),
        ("    commands: [serve]\n", "", "taskRoles.ps.commands: is required but missing (line 19)"),
        ("type: job", "kind: job", "kind: unknown key (line 4) (+1 more)"),
        ("[serve]", "[]", "taskRoles.ps.commands: must have at least 1 item (line 24)"),
        ("[serve]", "[1]", "taskRoles.ps.commands[0]: must be a string, got a number (line 24)"),
        ("  ps:", "  p s:", "taskRoles['p s']: the name must match [a-zA-Z_][a-zA-Z0-9_]* (line 19)"),
        (
            "img\n    ext",
            "imag\n    ext",
            "taskRoles.worker.dockerImage: no dockerimage prerequisite named 'imag'",
        ),
        ("[serve]", "['<% x']", "taskRoles.ps.commands: template tag is not closed"),
        ("name: train", "name: train\nname: other", "duplicate key 'name' (line 4)"),
    ],
)
def test_validation_error_names_the_path_and_line(old, new, message):
    assert old in TEXT
    with pytest.raises(ProtocolError) as caught:
        validate(TEXT.replace(old, new, 1))
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_error_object_lists_all_problems():
    with pytest.raises(ProtocolError) as caught:
        validate(TEXT.replace("gpu: 1", "gpu: x").replace("cpu: 1", "cpu: y"))
    assert str(caught.value).endswith("(+1 more)")
    assert [problem.path for problem in caught.value.problems] == [
        "taskRoles.worker.resourcePerInstance.gpu",
        "taskRoles.ps.resourcePerInstance.cpu",
    ]


@pytest.mark.parametrize("password", ["1234567", "<% hunter2", "[hunter2]"])
def test_error_messages_never_contain_a_password(password):
    with pytest.raises(ProtocolError) as caught:
        validate(TEXT.replace('"<% $secrets.pw %>"', password))
    assert "hunter2" not in str(caught.value)
    assert "1234567" not in str(caught.value)


@pytest.mark.parametrize(
    ("roles", "valid"),
    [
        ("[]", True),
        ("5", True),
        ("''", True),
        ("{}", False),
        ("null", False),
        ("abc", False),
        ("[abc]", False),
    ],
)
def test_task_roles_that_are_not_a_mapping_are_handled_like_on_the_real_server(roles, valid):
    text = f"protocolVersion: 2\nname: a\ntype: job\ntaskRoles: {roles}\n"
    if valid:
        assert validate(text).roles == ()
        assert validate(text).entrypoints() == {}
    else:
        with pytest.raises(ProtocolError, match="taskRoles"):
            validate(text)


def test_task_roles_given_as_a_list_are_named_by_index():
    text = TEXT.split("taskRoles:")[0] + "taskRoles: [{dockerImage: img, commands: [a, b]}]\n"
    job = validate(text)
    assert job.entrypoints() == {"0": "a\nb"}
    assert job.roles[0].image == "repo/img:1"


def test_infinite_gpu_count_becomes_a_large_integer():
    role = validate(TEXT.replace("gpu: 1", "gpu: .inf").replace("cpu: 2", "cpu: 2.0")).roles[0]
    assert role.gpu == 2**53
    assert (role.cpu, type(role.cpu)) == (2, int)
