"""A workspace on every kind of store: archives are sent once, jobs refer to them, nothing is left behind."""

import hashlib
import io
import json
import threading
from dataclasses import asdict

import pytest

from openpai_tasks.errors import ConfigError, Conflict, PathError
from openpai_tasks.storage.copying.walk import walk
from openpai_tasks.storage.job_files.archive import Archive, pack
from openpai_tasks.storage.job_files.sources import collect
from openpai_tasks.storage.job_files.workspace import Reference, Workspace, WorkspaceLayout, clean_path
from openpai_tasks.storage.store import join, parent


@pytest.fixture
def workspace(there):
    return Workspace(join(there.path, "lab one"), there.store)


def archive(folder, text="one"):
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text(text)
    return pack(collect(["."], folder).files)


@pytest.fixture
def made(tmp_path):
    return archive(tmp_path / "project")


def reference(job, cluster="http://lab", user="ann"):
    return Reference(job, user, cluster, "sources/x.tar.gz", 1, 1, 0)


def write(workspace, path, text=b"x"):
    workspace.store.make_folder(parent(path))
    workspace.store.write(path, [text], len(text))


def names(workspace, there):
    return sorted(found.name for found in walk(there) if not found.entry.is_folder)


def test_archive_is_sent_once_and_can_be_read_back(workspace, made, there):
    workspace.refer(reference("j1"), made.sha256)
    assert workspace.send(made) is True
    before = workspace.store.stat(workspace.archive(made.sha256))
    workspace.refer(reference("j2"), made.sha256)
    assert workspace.send(made) is False
    assert workspace.store.stat(workspace.archive(made.sha256)) == before
    assert workspace.read(made.sha256).files == made.files
    assert workspace.references() == {made.sha256: {"j1", "j2"}}
    assert workspace.references_of("j1") == (reference("j1"),)
    assert names(workspace, there) == [
        f"lab one/jobs/j1/source/{made.sha256}.json",
        f"lab one/jobs/j2/source/{made.sha256}.json",
        f"lab one/sources/{made.sha256}.tar.gz",
    ]


@pytest.mark.parametrize("change", ["shorter", "other"])
def test_archive_that_was_damaged_in_the_store_is_sent_again(workspace, made, change):
    workspace.send(made)
    content = b"".join(made.pieces())
    wrong = content[:-1] if change == "shorter" else bytes(len(content))
    workspace.store.write(workspace.archive(made.sha256), [wrong], len(wrong))
    assert workspace.send(made) is True
    assert workspace.read(made.sha256).sha256 == made.sha256


@pytest.mark.parametrize("is_damaged", [True, False])
def test_large_archive_is_compared_by_content_if_the_store_has_no_digests(here, is_damaged):
    content = bytes(5 << 20)
    large = Archive(hashlib.sha256(content).hexdigest(), len(content), (), io.BytesIO(content))
    workspace = Workspace(here.path, here.store)
    write(workspace, workspace.archive(large.sha256), content[:-1] + (b"x" if is_damaged else b"\0"))
    assert workspace.send(large) is is_damaged
    assert (
        hashlib.sha256(b"".join(workspace.store.read(workspace.archive(large.sha256)))).hexdigest()
        == large.sha256
    )


def test_job_without_sources_has_a_reference_without_an_archive(workspace, there):
    workspace.refer(reference("j1"))
    assert workspace.references_of("j1") == (reference("j1"),) and workspace.references() == {}
    workspace.withdraw("j1", None, was_sent=False)
    assert names(workspace, there) == [] and workspace.references_of("j1") == ()


@pytest.mark.parametrize(
    "text",
    [
        b"{}",
        b"[]",
        b"no json",
        b"\xff",
        json.dumps(asdict(reference("another"))).encode(),
        json.dumps({**asdict(reference("j1")), "user": None}).encode(),
        json.dumps({**asdict(reference("j1")), "submitted": "today"}).encode(),
    ],
)
def test_invalid_reference_file_is_ignored(here, text):
    workspace = Workspace(here.path, here.store)
    write(workspace, join(workspace.source("j1"), "none.json"), text)
    assert workspace.references_of("j1") == ()


def test_removing_a_job_removes_only_its_own_files(workspace, there):
    for job in ("j1", "j2"):
        workspace.refer(reference(job))
        write(workspace, join(workspace.output(job), "a/b"))
        write(workspace, workspace.deadline(job))
    write(workspace, join(workspace.job("j2"), "thesis.txt"))
    workspace.remove_job("j1")
    workspace.remove_job("j2")
    workspace.remove_job("never")
    assert names(workspace, there) == ["lab one/jobs/j2/thesis.txt"]
    assert [entry.name for entry in workspace.job_folders()] == ["j2"]


def test_withdrawing_a_refused_job_removes_its_archive(workspace, made, there):
    workspace.refer(reference("j1"), made.sha256)
    workspace.withdraw("j1", made, was_sent=workspace.send(made))
    assert names(workspace, there) == []


def test_archive_used_by_another_job_is_not_removed(workspace, made, there):
    for job in ("j1", "j2"):
        workspace.refer(reference(job), made.sha256)
    workspace.withdraw("j1", made, was_sent=workspace.send(made))
    assert workspace.references() == {made.sha256: {"j2"}}
    assert workspace.read(made.sha256).sha256 == made.sha256


def test_withdrawing_a_job_keeps_the_output_of_an_earlier_job(workspace, made):
    workspace.store.make_folder(workspace.output("j1"))
    workspace.refer(reference("j1"), made.sha256)
    workspace.withdraw("j1", made, was_sent=workspace.send(made))
    assert workspace.store.stat(workspace.output("j1")) is not None
    assert workspace.store.stat(workspace.source("j1")) is None


def test_job_name_used_by_another_cluster_or_user_conflicts(workspace, made):
    workspace.refer(reference("j1"), made.sha256)
    with pytest.raises(Conflict, match="http://lab"):
        workspace.refer(reference("j1", "http://other"), made.sha256)
    with pytest.raises(Conflict, match="'ann'"):
        workspace.refer(reference("j1", user="bob"))
    workspace.refer(reference("j1"), made.sha256)  # an interrupted submission is repeated


def test_unused_archive_is_discarded(workspace, made):
    workspace.send(made)
    assert workspace.discard([made.sha256]) == {made.sha256}
    assert workspace.archive_files() == {} and list(workspace.store.list(workspace.archives)) == []


class Slow(Workspace):
    """A workspace in which another job is submitted while an archive is set aside."""

    def references(self):
        self.meanwhile()
        return super().references()


def test_archive_that_is_referenced_while_it_is_discarded_is_restored(workspace, made):
    workspace.send(made)
    slow = Slow(workspace.path, workspace.store)
    object.__setattr__(slow, "meanwhile", lambda: workspace.refer(reference("new"), made.sha256))
    assert slow.discard([made.sha256]) == set()
    assert workspace.read(made.sha256).sha256 == made.sha256


def test_second_submitter_uploads_the_archive_again_while_it_is_set_aside(workspace, made):
    workspace.send(made)
    slow = Slow(workspace.path, workspace.store)
    sent = []

    def meanwhile():
        workspace.refer(reference("new"), made.sha256)
        sent.append(workspace.send(made))

    object.__setattr__(slow, "meanwhile", meanwhile)
    assert slow.discard([made.sha256]) == set() and sent == [True]
    assert workspace.read(made.sha256).sha256 == made.sha256
    assert list(workspace.archive_files()) == [made.sha256]


@pytest.mark.parametrize("is_used", [True, False])
def test_archive_left_aside_by_a_killed_call_is_restored_or_removed(workspace, made, is_used):
    workspace.send(made)
    if is_used:
        workspace.refer(reference("j1"), made.sha256)
    workspace.store.rename(workspace.archive(made.sha256), workspace._aside(made.sha256))
    assert workspace.discard() == set()
    assert list(workspace.archive_files()) == ([made.sha256] if is_used else [])
    assert len(list(workspace.store.list(workspace.archives))) == is_used


def test_concurrent_uploads_of_the_same_archive_leave_one_file(workspace, tmp_path, there):
    archives = [archive(tmp_path / f"p{number}") for number in range(4)]
    threads = [threading.Thread(target=workspace.send, args=(one,)) for one in archives]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert names(workspace, there) == [f"lab one/sources/{archives[0].sha256}.tar.gz"]
    assert workspace.read(archives[0].sha256).files == archives[0].files


@pytest.mark.parametrize("workspace", ["../other", "a/../../b", "a/./b", "a\0b", "<% x %>"])
def test_workspace_path_that_escapes_is_refused(workspace):
    with pytest.raises(PathError, match="workspace"):
        clean_path(workspace)


@pytest.mark.parametrize("job", ["", ".", "..", "a/b"])
def test_invalid_job_name_is_refused(job):
    with pytest.raises(ConfigError):
        WorkspaceLayout("/").job(job)
