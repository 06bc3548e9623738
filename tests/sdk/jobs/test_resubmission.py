"""Preparing a document to run again: its paths and its GPUs."""

import dataclasses

import pytest

from openpai_tasks import protocol
from openpai_tasks.errors import ConfigError
from openpai_tasks.protocol import JobRequest
from openpai_tasks.protocol.document import job_storage
from openpai_tasks.sdk.jobs import provenance, resubmission
from openpai_tasks.sdk.jobs.provenance import Stamp
from openpai_tasks.sdk.jobs.records import Record
from openpai_tasks.sdk.jobs.resubmission import set_gpus

WORKSPACE = "my $team/`x`"


MOUNT = job_storage.MountedFolder("old", f"/mnt/old/{WORKSPACE}")
OTHER = job_storage.MountedFolder("new", "/mnt/new")
HDFS = job_storage.HdfsFolder(("http://pai/webhdfs/api/v1/ann",), "ann")
SHA256 = "5" * 64


def made(home, name):
    """The document that `job.sub` would make there."""
    spec = JobRequest(
        "cat /mnt/old/data",
        name=name,
        image="python:3",
        storage=getattr(home, "storage", None),
        archive=SHA256,
        home=home,
        environment={"A": "/mnt/old"},
        extras={"mine": 1},
    )
    stamp = Stamp(storage=getattr(home, "storage", "hdfs"), source_folder=f"jobs/{name}/source")
    return provenance.put_stamp(protocol.build_document(spec), stamp)


@pytest.mark.parametrize("there", [MOUNT, OTHER, HDFS], ids=["same", "mount", "hdfs"])
@pytest.mark.parametrize("here", [MOUNT, HDFS], ids=["from-mount", "from-hdfs"])
def test_relocated_document_equals_one_made_there(here, there):
    before, after = made(here, "one"), made(there, "two")
    found = resubmission.relocate({**before, "name": "two"}, there, SHA256, provenance.read_stamp(after))
    assert found == after


def test_relocation_keeps_other_mounts_and_commands():
    document = made(MOUNT, "one")
    document["extras"]["storages"].append({"name": "data"})
    found = resubmission.relocate(document, OTHER, SHA256, provenance.read_stamp(made(OTHER, "one")))
    assert found["extras"]["storages"] == [{"name": "new"}, {"name": "data"}]
    assert found["taskRoles"] == document["taskRoles"]


def roles(**gpus):
    return {"taskRoles": {name: {"resourcePerInstance": {"gpu": gpu}} for name, gpu in gpus.items()}}


def test_gpu_count_applies_to_the_only_role_or_to_roles_set_gpus():
    assert set_gpus(roles(main=0), 4) == roles(main=4)
    assert set_gpus(roles(ps=0, worker=1), 4) == roles(ps=0, worker=4)
    assert set_gpus(roles(main=1), None) == roles(main=1)


def test_error_for_gpus_that_cannot_be_set_says_what_to_change():
    with pytest.raises(ConfigError, match=r"-u taskRoles\.a\.resourcePerInstance\.gpu=2"):
        set_gpus(roles(a=0, b=0), 2)
    hived = {"hivedScheduler": {"taskRoles": {"main": {"skuType": "V100", "skuNumber": 1}}}}
    with pytest.raises(ConfigError, match="skuNumber"):
        set_gpus({**roles(main=1), "extras": hived}, 2)


def test_hints_do_not_suggest_what_a_record_of_the_folder_says(tmp_path):
    fields = dict.fromkeys(("user", "uri", "command", "source_hash", "cloned_from", "document"), "")
    lists = {"sources": (), "secrets": (), "files": {"a.py": "1"}, "settings": {}}
    record = Record(
        "train", cluster="lab;id", submitted=0, commit="x;sh a.sh", dirty=False, **fields, **lists
    )
    assert "git checkout" not in resubmission._describe_changes(record, {})
    commit = "0123456789abcdef"
    assert f"`git checkout {commit[:12]}`" in resubmission._describe_changes(
        dataclasses.replace(record, commit=commit), {}
    )
    file = tmp_path / ".openpai" / "jobs" / "train" / "record.json"
    file.parent.mkdir(parents=True)
    file.write_text(record.text)
    assert "add `-a 'lab;id'`" in resubmission._unrecorded("train", tmp_path)
