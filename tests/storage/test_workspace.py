"""Publishing a job's sources: complete or absent."""

import os

import pytest

from openpai_tasks.errors import ConfigError, Conflict, PathError
from openpai_tasks.storage.sources import collect
from openpai_tasks.storage.workspace import Storage, open_storage, publish, source_folder, withdraw


@pytest.fixture
def storage(tmp_path):
    return Storage("home", tmp_path / "store")


@pytest.fixture
def sources(tmp_path):
    project = tmp_path / "project"
    (project / "pkg").mkdir(parents=True)
    (project / "train.py").write_text("print('train')")
    (project / "pkg" / "run.sh").write_text("#!/bin/sh\n")
    os.chmod(project / "pkg" / "run.sh", 0o755)
    return collect(["train.py", "pkg"], project)


def test_everything_arrives_with_its_mode_under_the_jobs_folder(storage, sources):
    publish(storage, source_folder("lab/one", "j1"), sources)
    folder = storage.root / "lab/one/jobs/j1/source"
    assert (folder / "train.py").read_text() == "print('train')"
    assert os.access(folder / "pkg" / "run.sh", os.X_OK)
    assert [path.name for path in folder.parent.iterdir()] == ["source"]


def test_sources_of_another_job_are_never_replaced(storage, sources):
    publish(storage, "jobs/j1/source", sources)
    with pytest.raises(Conflict):
        publish(storage, "jobs/j1/source", sources[:1])
    assert (storage.root / "jobs/j1/source/pkg/run.sh").exists()


def test_a_file_that_vanishes_while_copying_leaves_nothing(storage, sources):
    sources[1].path.unlink()
    with pytest.raises(PathError, match="cannot copy"):
        publish(storage, "jobs/j1/source", sources)
    assert list((storage.root / "jobs/j1").iterdir()) == []


def test_what_was_published_can_be_withdrawn(storage, sources):
    publish(storage, "jobs/j1/source", sources)
    withdraw(storage, "jobs/j1/source")
    assert not (storage.root / "jobs/j1/source").exists()


def test_a_workspace_cannot_climb_out():
    with pytest.raises(PathError, match=r"'\.\.'"):
        source_folder("../other", "j1")


def test_a_user_gets_a_part_of_a_storage_that_is_not_shared(tmp_path):
    detail = {"name": "home", "type": "local", "share": False, "data": {"path": str(tmp_path)}}
    assert open_storage(detail, "ann").root == tmp_path / "ann"
    assert open_storage({**detail, "share": True}, "ann").root == tmp_path


def test_a_kind_of_storage_we_cannot_write_to_is_named():
    with pytest.raises(ConfigError, match="'nfs'"):
        open_storage({"name": "x", "type": "nfs", "data": {}}, "ann")
