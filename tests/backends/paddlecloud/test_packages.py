"""A v2 document as a PaddleCloud submission: what is refused, and what is sent."""

import pytest
import yaml

from openpai_tasks.backends.paddlecloud import packages
from openpai_tasks.errors import Unsupported
from openpai_tasks.settings.config import Settings
from tests.server.conftest import JOB


def document(changes=None, name="first", **role):
    value = yaml.safe_load(JOB.format(name=name, command="'true'"))
    value["taskRoles"]["main"] |= role
    return yaml.safe_dump({**value, **(changes or {})})


def roles(**more):
    value = yaml.safe_load(document())
    return {name: {**value["taskRoles"]["main"], **change} for name, change in more.items()}


def images(*names):
    return [{"name": name, "type": "dockerimage", "uri": name} for name in names]


def resources(**change):
    return {"cpu": 1, "memoryMB": 64, "gpu": 0, **change}


TWO_IMAGES = {
    "taskRoles": roles(a={}, pserver={"dockerImage": "other"}),
    "prerequisites": images("image", "other"),
}


@pytest.mark.parametrize(
    "text, refusal",
    [
        (document(name="My_Job"), "cannot run a job named 'My_Job'"),
        (document(name="x" * 56), "cannot run a job named"),
        (document({"taskRoles": roles(a={}, b={})}), "trainers and parameter servers only"),
        (document({"taskRoles": roles(a={}, b={}, pserver={})}), "trainers and parameter servers only"),
        (document({"taskRoles": roles(pserver={})}), "trainers and parameter servers only"),
        (document(TWO_IMAGES), "the same image"),
        (document({"defaults": {"virtualCluster": "lab"}}), "no virtual cluster 'lab'"),
        (document({"jobRetryCount": 1}), "does not retry jobs"),
        (document(taskRetryCount=1), "does not retry jobs"),
        (document({"extras": {"hivedScheduler": {"jobPriorityClass": "prod"}}}), "has no priorities"),
        (document({"extras": {"storages": [{"name": "nfs"}]}}), "mounts only the storage 'pfs', not 'nfs'"),
        (document({"extras": {packages.PLUGINS: [{"plugin": "ssh"}]}}), "no ssh into containers"),
        (document(resourcePerInstance=resources(ports={"http": 1})), "reserves no ports (role 'main')"),
        (document(extraContainerOptions={"shmMB": 64}), "shared memory"),
        (document(completion={"minSucceededInstances": 1}, instances=2), "leave out the completion"),
        (
            document({"taskRoles": roles(a={}, pserver={"resourcePerInstance": resources(gpu=1)})}),
            "no GPUs",
        ),
    ],
)
def test_what_the_cluster_cannot_do_is_refused_in_one_line(text, refusal):
    with pytest.raises(Unsupported) as refused:
        packages.check(text, "cluster 'dc1' (PaddleCloud)", "ann")
    line = str(refused.value)
    assert line.startswith("cluster 'dc1' (PaddleCloud) ") and refusal in line and "\n" not in line
    assert refused.value.exit_code == 120


def test_storage_and_namespace_of_the_user_are_accepted():
    text = document({"extras": {"storages": [{"name": "pfs"}]}, "defaults": {"virtualCluster": "ann"}})
    assert packages.check(text, "", "ann").name == "first"


def test_trainers_and_pservers_become_a_request_and_scripts():
    pserver = {"instances": 3, "commands": ["serve"], "resourcePerInstance": resources(cpu=2, memoryMB=512)}
    text = document({"taskRoles": roles(work={"instances": 2}, pserver=pserver)})
    made = packages.package(packages.check(text, "", "ann"), "ann", "m1")
    request = made.request
    assert (request.parallelism, request.cpu, request.memory, request.gpu) == (2, 1, "64Mi", 0)
    assert (request.pservers, request.pscpu, request.psmemory) == (3, 2, "512Mi")
    assert (request.entry, request.image) == ("sh .pai-job/m1/start", "busybox")
    assert made.files[".pai-job/m1/trainer"] == "true\n" and made.files[".pai-job/m1/pserver"] == "serve\n"
    assert "m1" not in made.files["pserver.sh"]  # the same for all submissions of a name


def test_a_single_role_has_no_pservers_and_the_default_image_is_the_clusters():
    text = document({"prerequisites": images("image")}).replace("uri: image", f"uri: {Settings().image}")
    made = packages.package(packages.check(text, "", "ann"), "ann", "m1")
    assert (made.request.pservers, made.request.image) == (0, "")
    assert "pserver.sh" not in made.files


def test_secrets_are_in_the_script_only():
    text = document({"secrets": {"KEY": "s3cret"}}, commands=["echo '<% $secrets.KEY %>'"])
    made = packages.package(packages.check(text, "", "ann"), "ann", "m1")
    assert "s3cret" in made.files[".pai-job/m1/trainer"]
    assert "s3cret" not in made.masked + made.files[".pai-job/m1/start"] + repr(made.request)
