"""Leftover files are removed only if they belong to the user's ended jobs, and failures are reported."""

import os
import time

import pytest

from openpai_tasks.backends.openpai import Client
from openpai_tasks.errors import Conflict, Denied, PathError
from openpai_tasks.protocol import JobRequest
from openpai_tasks.sdk.files import cleaning, job_folders
from openpai_tasks.sdk.jobs import submission
from openpai_tasks.settings.credentials import Credentials
from openpai_tasks.settings.registry import LOCAL, Cluster
from openpai_tasks.storage.local.store import LocalStore
from tests.scripted import Reply, Scripted

API = "/rest-server/api/v2"
NFS = {"name": "nfs", "share": True, "type": "nfs", "data": {"server": "10.0.0.1", "path": "/share"}}
DAY = 86400.0


@pytest.fixture
def client():
    """A user of a cluster that has no jobs."""
    server = Scripted(
        {
            f"GET {API}/storages": Reply({"storages": [{"name": "nfs", "share": True}]}),
            f"GET {API}/storages/nfs": Reply(NFS),
            f"GET {API}/jobs": Reply([]),
        }
    )
    yield Client(Cluster("lab", server.uri, user="ann", generation="1.8"), Credentials(token="t0ken"))
    server.close()


@pytest.fixture
def mounts(tmp_path):
    (tmp_path / "nfs").mkdir()
    return (("10.0.0.1:/share", str(tmp_path / "nfs")),)


@pytest.fixture
def home(client, mounts):
    return job_folders.require_home(client, "", mounts)


def leave(client, home, job):
    """Leave the files of a job that the cluster forgot two days ago."""
    submission.save_reference(client, home, job, None)
    home.store.make_folder(home.layout.output(job))
    home.store.write(home.layout.output(job) + "/x", [b"12345"], 5)
    then = time.time() - 2 * DAY
    for folder, _, files in os.walk(home.store.root + home.layout.job(job), topdown=False):
        for name in [*files, "."]:
            os.utime(os.path.join(folder, name), (then, then))


def planned(client, home):
    return cleaning.plan_cleanup(cleaning.find_leftovers(client, home), DAY)


class Stuck(LocalStore):
    """A storage that refuses to remove the output of one job."""

    def remove(self, path, recursive=False):
        if path.endswith("/stuck/output"):
            raise Denied(f"{path}: permission denied", 403)
        super().remove(path, recursive)


def test_files_that_could_not_be_removed_are_reported_and_removed_later(client, home):
    leave(client, home, "stuck")
    leave(client, home, "loose")
    free, home.__dict__["store"] = home.store, Stuck(home.store.root)
    cleaned = cleaning.clean_up(client, home, planned(client, home))
    assert cleaned.jobs == ("loose",) and [one.name for one in cleaned.kept] == ["stuck"]
    with pytest.raises(PathError, match=r"1 could not be removed: stuck .*permission denied") as raised:
        cleaning.check_cleaned(cleaned)
    assert raised.value.exit_code == 123
    home.__dict__["store"] = free
    cleaning.check_cleaned(cleaning.clean_up(client, home, planned(client, home)))
    assert home.files.job_folders() == []


def test_a_job_that_was_submitted_again_in_between_keeps_its_files(client, home):
    leave(client, home, "again")
    found = planned(client, home)
    assert [job.name for job in found.jobs] == ["again"]
    submission.save_reference(client, home, "again", None)
    (kept,) = cleaning.clean_up(client, home, found).kept
    assert (kept.name, kept.reason) == ("again", "it was submitted again")
    assert home.store.stat(home.layout.output("again") + "/x")


def test_folder_whose_references_are_lost_in_between_is_kept(client, home):
    leave(client, home, "lost")
    found = planned(client, home)
    home.store.remove(home.layout.source("lost"), recursive=True)
    (kept,) = cleaning.clean_up(client, home, found).kept
    assert kept.reason == "its owner is unknown" and home.store.stat(home.layout.output("lost") + "/x")
    home.store.remove(home.layout.job("lost"), recursive=True)
    assert cleaning.clean_up(client, home, found).kept == ()


def test_embedded_clusters_of_two_homes_have_different_marks(tmp_path, monkeypatch):
    marks = set()
    for name in ("one", "two", "one"):
        monkeypatch.setenv("OPENPAI_HOME", str(tmp_path / name))
        marks.add(job_folders.cluster_mark(Cluster(LOCAL, f"http://127.0.0.1:{len(marks)}")))
    assert len(marks) == 2 and not any(str(tmp_path) in mark for mark in marks)


def prepared(client, mounts, here):
    return submission.prepare(client, JobRequest("true", name="n", image="i"), here, mounts)


def test_job_without_sources_writes_a_reference_and_removes_it_if_refused(client, mounts, tmp_path):
    made = prepared(client, mounts, tmp_path)
    with submission.upload_files(client, made):
        (reference,) = made.home.files.references_of("n")
    assert (reference.user, reference.cluster, reference.archive) == ("ann", client.cluster.uri, "")
    with pytest.raises(submission.NotSubmitted), submission.upload_files(client, made):
        raise submission.NotSubmitted("no answer")
    assert made.home.files.job_folders() == []


def test_storage_that_only_jobs_can_reach_does_not_stop_a_job_without_sources(client, tmp_path):
    made = prepared(client, (), tmp_path)
    assert made.home.is_within_reach is False
    ran = []
    with submission.upload_files(client, made):
        ran.append(made.name)
    assert ran == ["n"]


def test_a_job_without_sources_does_not_write_into_another_users_folder(client, mounts, tmp_path):
    made = prepared(client, mounts, tmp_path)
    with submission.upload_files(client, made):
        pass
    other = Client(Cluster("lab", "http://other", user="ann", generation="1.8"), Credentials(token="t0ken"))
    with pytest.raises(Conflict, match="choose another job name"), submission.upload_files(other, made):
        pytest.fail("it would have been handed in")
