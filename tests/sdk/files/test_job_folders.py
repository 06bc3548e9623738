"""Where the files of jobs go and how a job reaches them, by the cluster's storages and the user's choice."""

import functools
from pathlib import Path

import pytest

from openpai_tasks.backends.openpai import Client
from openpai_tasks.errors import ApiError, ConfigError, NotFound, PathError
from openpai_tasks.protocol import JobRequest
from openpai_tasks.protocol.document.job_storage import HdfsFolder, MountedFolder
from openpai_tasks.sdk.files import job_folders
from openpai_tasks.sdk.jobs.submission import prepare
from openpai_tasks.settings.credentials import Credentials
from openpai_tasks.settings.registry import Cluster
from openpai_tasks.storage.local.store import LocalStore
from tests.scripted import Reply, Scripted

API = "/rest-server/api/v2"
NFS = {"name": "nfs", "share": True, "type": "nfs", "data": {"server": "10.0.0.1", "path": "/share"}}
HOME = {"name": "home", "share": False, "type": "nfs", "data": {"server": "10.0.0.1", "path": "/home"}}
BLOB = {
    "name": "blob",
    "share": True,
    "type": "azureBlob",
    "data": {"containerName": "c", "accountName": "a", "accountKey": "hunter2="},
}
HDFS = {"name": "mine", "type": "hdfs", "address": "nn1:50070,nn2:50070", "path": "/data", "user": "ann x"}
S3 = {"name": "bucket", "type": "s3", "path": "bucket"}


@pytest.fixture
def client():
    """Make a user of a cluster that grants these storages, the first of them by default."""
    servers = []

    def connect(*details, generation="1.8", **chosen):
        summaries = [{"name": one["name"], "share": one["share"]} for one in details]
        answers = {f"GET {API}/storages": lambda asked: {"storages": summaries[: 1 if asked.query else None]}}
        answers |= {f"GET {API}/storages/{one['name']}": Reply(one) for one in details}
        servers.append(Scripted(answers))
        cluster = Cluster("lab", servers[-1].uri, user="ann", generation=generation, **chosen)
        return Client(cluster, Credentials(token="t0ken"))

    yield connect
    for server in servers:
        server.close()


def test_default_is_the_users_own_folder_on_the_default_storage(client):
    shared, own = job_folders.home(client(NFS, HOME)), job_folders.home(client(HOME, NFS))
    assert (shared.storage, shared.path, shared.seen) == ("nfs", "/ann", MountedFolder("nfs", "/mnt/nfs/ann"))
    assert (own.storage, own.path, own.seen) == ("home", "/", MountedFolder("home", "/mnt/home/"))
    named = job_folders.home(client(NFS), "my team/x")
    assert (named.path, named.workspace) == ("/ann/my team/x", "ann/my team/x")


def test_selected_storage_and_workspace_override_the_default(client):
    found = job_folders.home(client(NFS, HOME, storage="home", workspace="/exp"))
    assert (found.storage, found.path) == ("home", "/exp")
    assert job_folders.home(client(NFS, HOME, storage="home", workspace="/exp"), "other").path == "/other"


def test_read_only_storage_is_skipped(client):
    assert job_folders.home(client({**NFS, "readOnly": True})) is None
    with pytest.raises(ConfigError, match="grants no storage"):
        job_folders.require_home(client())


def test_a_job_without_a_folder_for_its_output_is_reported():
    problem = Reply({"code": "UnknownError", "message": "Kubernetes is down"}, 500)
    server, said = Scripted({f"GET {API}/storages": problem}), []
    try:
        cluster = Cluster("lab", server.uri, user="ann", generation="1.8")
        user = Client(cluster, Credentials(token="t0ken"), say=said.append)
        assert prepare(user, JobRequest(command="true", image="x"), Path()).home is None
        assert len(said) == 1 and "no folder for its output" in said[0] and "Kubernetes is down" in said[0]
        with pytest.raises(ApiError, match="Kubernetes is down"):
            prepare(user, JobRequest(command="true", image="x", outputs=("x",)), Path())
        assert {one.method for one in server.seen} == {"GET"}
    finally:
        server.close()


def test_calls_that_no_thread_can_start_ahead_are_made_as_usual(client, monkeypatch):
    def fail(thread):
        raise RuntimeError("can't start new thread")

    user = client(NFS)
    monkeypatch.setattr("threading.Thread.start", fail)
    with user.ahead(functools.partial(user.storages, default=True), functools.partial(user.job, "ann~x")):
        monkeypatch.undo()
        assert [one.name for one in user.storages(default=True)] == ["nfs"]


def test_oldest_clusters_use_the_hdfs_behind_their_gateway(client):
    user = client(generation="0.14")
    found = job_folders.home(user)
    assert found.path == "/ann"
    assert found.seen == HdfsFolder((f"{user.cluster.uri}/webhdfs/api/v1/ann",), "ann")


def test_user_defined_hdfs_is_reached_at_each_of_its_name_nodes(client):
    found = job_folders.home(client(NFS, own_storages=(HDFS,), storage="mine", workspace="/a b/ü"))
    urls = tuple(f"http://nn{number}:50070/webhdfs/v1/data/a%20b/%C3%BC" for number in (1, 2))
    assert found.seen == HdfsFolder(urls, "ann%20x")


def test_storage_that_the_cluster_cannot_mount_is_not_used_for_jobs(client):
    found = job_folders.home(client(NFS, own_storages=(S3,), storage="bucket"))
    assert found.storage == "nfs"
    why = "the selected storage 'bucket' is not used for jobs, as the cluster cannot mount it"
    assert found.note == f"{why}; their files go to storage 'nfs'"
    with pytest.raises(ConfigError, match=why):
        job_folders.require_home(client(own_storages=(S3,), storage="bucket"))


def test_selected_read_only_storage_is_not_used_for_jobs_and_a_note_says_so(client):
    found = job_folders.home(client(NFS, {**HOME, "readOnly": True}, storage="home"))
    assert found.storage == "nfs" and "'home' is not used for jobs, as you may only read it" in found.note
    assert (
        job_folders.home(client(NFS, HOME, storage="home")).note == job_folders.home(client(NFS)).note == ""
    )


def test_locally_mounted_share_is_written_to_directly(client, tmp_path):
    found = job_folders.home(client(NFS), mounts=(("10.0.0.1:/share", str(tmp_path)),))
    assert isinstance(found.store, LocalStore)
    found.files.store.make_folder(found.files.jobs)
    assert (tmp_path / "ann" / "jobs").is_dir()


@pytest.mark.parametrize("detail", [BLOB, HOME], ids=["blob", "nfs"])
def test_a_storages_key_is_never_in_the_document(client, tmp_path, detail):
    text = prepare(client(detail), JobRequest("true", name="n", image="i"), tmp_path).text
    assert f"/mnt/{detail['name']}/" in text and "hunter2" not in text and "10.0.0.1" not in text


def test_user_defined_hdfs_of_a_job_is_used_as_the_user_it_was_added_with(client):
    user = client(NFS, own_storages=(HDFS,), storage="mine", workspace="/exp")
    first, again = job_folders.home(user), job_folders.at(user, "mine", "exp", "ann")
    assert (again.path, again.place.user, again.seen) == ("/exp", "ann x", first.seen)


def test_files_of_a_job_are_found_by_its_storage_and_workspace(client):
    user = client(NFS, HOME)
    found = job_folders.at(user, "home", "team", "bob")
    assert (found.path, found.place.user) == ("/team", "bob")
    with pytest.raises(NotFound, match="'lost'"):
        job_folders.at(user, "lost", "", "ann")
    with pytest.raises(PathError, match="workspace"):
        job_folders.at(user, "home", "../bob", "ann")
