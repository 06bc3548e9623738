"""What will not be as a job asks for is said when it is submitted, once."""

import sys

import pytest
import yaml

from openpai_tasks.server.storages import is_named

IMAGE = "the image python:3.12 is not used: jobs run as processes of this machine\n"
MOUNT = (
    "the storage home is not at /mnt/home here: write ${PAI_MOUNT_ROOT-}/mnt/home, which works everywhere\n"
)


def test_an_image_that_is_not_used_is_said_once_for_a_sweep_and_shown_as_an_event(cluster):
    ran = cluster.ok("job.sub", "echo {x}", "--sweep", "x=1,2", "-j", "image", "-i", "python:3.12")
    assert ran.err.count(f"warning: {IMAGE}") == ran.err.count("warning") == 1
    events = cluster.ok("job.status", "image-x-1", "-o", "json").json()["events"]
    assert [event["type"] for event in events if event["message"] == IMAGE.strip()] == ["Warning"]


def test_a_sweep_of_more_jobs_than_the_cluster_keeps_is_warned_about(shell):
    shell.environment["INVOKE_OPENPAI_LOCAL_KEEP"] = "90d,2"
    ran = shell.ok("job.sub", "echo {x}", "--sweep", "x=1,2,3", "--preview")
    kept = "warning: the cluster keeps 2 finished jobs (local.keep)"
    assert f"{kept}: 1 of this sweep will be removed, with their results" in ran.err


def test_the_default_image_is_not_mentioned(cluster):
    ran = cluster.ok("job.sub", 'ls "${PAI_MOUNT_ROOT-}/mnt/home" "$PAI_MOUNT_ROOT/mnt/home"', "-j", "quiet")
    assert ran.err == ""


def test_the_python_api_logs_notices_as_warnings(cluster):
    program = "import openpai_tasks as pai; pai.submit('true', cluster='local', image='python:3.12')"
    assert cluster.run(sys.executable, "-c", program).err == IMAGE


@pytest.mark.parametrize(
    "command",
    ["cat /mnt/home/x", "echo 1 > /mnt/home/no/x", "python3 -c 'open(\"/mnt/home/x y\")'"],
    ids=["program", "shell", "python"],
)
def test_a_storage_is_looked_for_where_it_is_not_mounted(cluster, command):
    ran = cluster.inv("job.sub", command, "-j", "mount-$", "-f")
    assert f"warning: {MOUNT}" in ran.err
    name = cluster.ok("job.list", "--limit", "1", "-o", "json").json()[0]["name"]
    found = cluster.ok("job.why", name).out
    assert "- the storage is not at /mnt/home here\n" in found
    assert "- write ${PAI_MOUNT_ROOT-}/mnt/home; in Python, os.environ.get('PAI_MOUNT_ROOT', '')" in found


def test_the_mount_paths_of_a_job_file_are_known(cluster):
    role = {
        "dockerImage": "image",
        "resourcePerInstance": {"cpu": 1, "memoryMB": 64, "gpu": 0},
        "commands": ["cat /pfs/dc/home/ann/x"],
    }
    document = {
        **{"protocolVersion": 2, "name": "pfs", "type": "job", "taskRoles": {"main": role}},
        "prerequisites": [{"name": "image", "type": "dockerimage", "uri": "python:3.12"}],
        "extras": {"storages": [{"name": "home", "mountPath": "/pfs/dc/home/ann"}]},
    }
    (cluster.project / "pfs.yaml").write_text(yaml.safe_dump(document))
    ran = cluster.inv("job.submit", "pfs.yaml", "-f")
    assert f"warning: {IMAGE}" in ran.err and "write ${PAI_MOUNT_ROOT-}/pfs/dc/home/ann, which" in ran.err
    assert "- write ${PAI_MOUNT_ROOT-}/pfs/dc/home/ann;" in cluster.ok("job.why", "pfs").out


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("ls /mnt/home", True),
        ('cp a "/mnt/home/b c"', True),
        ("export DATA=/mnt/home/data", True),
        ('cp "${PAI_MOUNT_ROOT-}/mnt/home/a" /mnt/home/b', True),
        ('ls "$PAI_MOUNT_ROOT"/mnt/home', False),
        ('python3 -c \'open(os.environ.get("PAI_MOUNT_ROOT", "") + "/mnt/home/x")\'', False),
        ('D=/mnt/home; case "$D" in /mnt/*) D="${PAI_MOUNT_ROOT-}$D";; esac', False),
        ("ls /mnt/homes /data/mnt/home $X/mnt/home.old ~/mnt/home", False),
    ],
)
def test_a_command_that_names_a_mount_path_without_its_root_is_recognised(command, expected):
    assert is_named("/mnt/home", command) is expected
