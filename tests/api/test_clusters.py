"""Clusters from Python: known ones, others by their address, their storages, and the list of them."""

from pathlib import Path

import fsspec
import pytest
import yaml

from openpai_tasks import Cluster, ClusterList, Job, OpenPAIClient, PaiExecutor, submit
from openpai_tasks.backends.base import ClusterStorage
from openpai_tasks.errors import ConfigError, Denied, NotFound, PathError, ProtocolError, Unreachable
from openpai_tasks.sdk.files.storages import _is_mounted
from tests.api.test_jobs import DOCUMENT, V1, output_of
from tests.sdk.pai_server import PASSWORD, USER, PaiServer

NOWHERE = "http://127.0.0.1:9"


@pytest.fixture
def login(project, cluster):
    """Address, user and password of the embedded cluster, as another client would use them."""
    found = cluster.ok("cluster.credentials", "-o", "json").json()
    return {"pai_uri": found["uri"], "user": found["user"], "password": found["password"]}


@pytest.fixture
def server():
    """A server that answers like OpenPAI 1.8."""
    server = PaiServer()
    yield server
    server.close()


# One cluster


def test_a_cluster_lists_its_jobs(project):
    cluster = Cluster("local")
    good, bad = cluster.submit("true", job_name="listed-good"), cluster.submit("false", job_name="listed-bad")
    good.wait(), bad.wait()
    assert [job.name for job in cluster.jobs("listed-*")] == ["listed-bad", "listed-good"]
    assert [job.name for job in cluster.jobs("listed-*", state="failed")] == ["listed-bad"]
    assert [job.state for job in cluster.jobs("listed-good")] == ["SUCCEEDED"]
    assert len(cluster.jobs(limit=1)) == len(cluster.jobs("listed-*", limit=1)) == 1
    assert cluster.jobs(user="nobody") == []
    (failed,) = cluster.jobs("listed-*", state="failed")
    assert cluster.job(failed).name == "listed-bad" and "exit code 1" in cluster.job(failed).why().why
    with pytest.raises(NotFound):
        cluster.jobs("never-submitted")


def test_a_cluster_describes_itself(project, cluster):
    local = Cluster("local")
    assert (local.alias, local.user) == ("local", local.info.user)
    assert local.pai_uri.startswith("http://127.0.0.1:") and local.info.uri == local.pai_uri
    assert list(local.virtual_clusters()) == ["default"] == list(local.info.virtual_clusters)
    assert [row.virtual_cluster for row in local.available_resources()] == ["default"]


def test_a_cluster_stops_jobs_by_pattern(project):
    cluster = Cluster("local")
    for number in range(2):
        cluster.submit("sleep 60", job_name=f"forgotten-{number}")
    assert {job.name for job in cluster.stop("forgotten-*")} == {"forgotten-0", "forgotten-1"}


@pytest.mark.parametrize("form", [dict, yaml.safe_dump])
def test_a_document_is_submitted_as_it_is(project, form):
    document = {**DOCUMENT, "name": f"document-{form.__name__}"}
    job = Cluster().rest_api_submit(form(document))
    assert output_of(job) == ["old unknown"] and job.name == document["name"]


def test_a_document_of_version_1_is_submitted(project):
    assert output_of(Cluster().rest_api_submit({**V1, "jobName": "submitted-v1"})) == ["v1"]


def test_an_invalid_document_is_refused_before_it_is_sent(project):
    with pytest.raises(ProtocolError):
        Cluster().rest_api_submit({**DOCUMENT, "taskRoles": {}})


def test_an_unknown_alias_is_an_error(project):
    with pytest.raises(ConfigError, match="no cluster named 'lab'"):
        submit("true", cluster="lab")


# Storages


def test_files_go_up_and_down(project):
    storage = Cluster("local").storage
    Path("data").mkdir()
    Path("data", "a.txt").write_text("A")
    assert storage.upload("data", "/sent").files == 1
    assert storage.upload("data", "/sent").skipped == 1
    assert [file.name for file in storage.list("sent")] == ["a.txt"]
    storage.download("sent/a.txt", "back.txt")
    assert Path("back.txt").read_text() == "A"
    with pytest.raises(PathError, match="not empty"):
        storage.delete("sent")
    storage.delete("sent", recursive=True)
    with pytest.raises(NotFound):
        storage.list("sent")


def test_a_storage_has_a_name(project):
    assert Cluster("local").get_storage("home").list() is not None
    with pytest.raises(NotFound, match="no storage named 'lost'"):
        Cluster("local").get_storage("lost").list()


# Names


def test_cluster_and_cluster_alias_are_the_same_argument_everywhere(login):
    clusters = ClusterList().load().add(cluster="lab", **login)
    assert clusters.select(cluster="lab").user == clusters.get_client(cluster_alias="lab").user
    assert clusters.update(cluster="lab").aliases == ["local", "lab"]
    assert Cluster(cluster_alias="lab").alias == Cluster().load(cluster="lab").alias == "lab"
    assert OpenPAIClient.from_alias(cluster="lab").alias == "lab"
    job = submit("true", cluster_alias="lab", name="named-$")
    assert job.name.startswith("named-") and job.backend.cluster.alias == "lab"
    handles = [Job(job.name, cluster_alias="lab"), Job().load(name=job.name, cluster="lab")]
    assert [handle.wait().state for handle in handles] == ["SUCCEEDED"] * 2
    assert job.resubmit(name="again-$").name.startswith("again-")
    drafted = Job("drafted-$").one_liner("true", cluster_alias="lab").submit(cluster_alias="lab")
    assert drafted.backend.cluster.alias == Cluster("lab").submit("true", name="x-$").backend.cluster.alias
    with PaiExecutor(cluster_alias="lab", cpu=1) as executor:
        future = executor.submit(abs, -1)
        assert future.result() == 1 and f"call=1 job='{future.job}'" in repr(future)
        assert "cluster='lab'" in repr(executor)
    fs = fsspec.filesystem("pai", cluster_alias="lab")
    assert fs.ls("pai://lab/home") is not None
    with pytest.raises(ValueError, match="pai://local/home is not on the cluster 'lab'"):
        fs.ls("pai://local/home")
    for wrong in (Job, Cluster, PaiExecutor, clusters.delete, Job("x").one_liner("true").submit):
        with pytest.raises(ConfigError, match="cluster='a' and cluster_alias='b' contradict each other"):
            wrong(cluster="a", cluster_alias="b")
    with pytest.raises(ConfigError, match="which cluster"):
        clusters.delete()
    assert clusters.delete(cluster_alias="lab").aliases == ["local"]


def test_representations_say_what_is_known_and_ask_nobody(login):
    secret = login["password"]
    clusters = ClusterList([{"cluster_alias": "<b>", **login, "pai_uri": f"http://ann:{secret}@x.example"}])
    job, cluster = Job("<i>", cluster="lab"), OpenPAIClient(**login)
    assert repr(clusters) == "ClusterList(['<b>'])"
    assert "&lt;b&gt;" in clusters._repr_html_() and "http://x.example" in clusters._repr_html_()
    assert repr(job) == "Job('<i>', cluster='lab')" and "&lt;i&gt;" in job._repr_html_()
    assert repr(Job("new").one_liner("true")) == "Job('new', state='not submitted')"
    assert repr(Cluster("lab")) == "Cluster('lab')" and repr(Cluster()) == "Cluster()"
    unreachable = OpenPAIClient(NOWHERE, "ann", secret)
    assert repr(unreachable) == f"OpenPAIClient('{NOWHERE}', user='ann')"
    assert repr(unreachable.job("x")) == f"Job('x', cluster='{NOWHERE}')" and unreachable._repr_html_()
    assert login["user"] in repr(cluster)
    done = cluster.submit("true", name="shown")
    done.wait()
    assert repr(done) == "Job('shown', cluster='127.0.0.1', state='SUCCEEDED')"
    assert "SUCCEEDED" in done._repr_html_() and login["pai_uri"] in cluster._repr_html_()
    shown = [one._repr_html_() + repr(one) for one in (clusters, job, cluster, done)]
    assert not any(secret in text or "<b>" in text.replace(repr(clusters), "") for text in shown)


# By address


def test_a_client_of_an_address_needs_no_list(login):
    client = OpenPAIClient(**login)
    Path("hello.py").write_text("print('hello')")
    job = client.submit("python3 hello.py", sources="hello.py")
    assert output_of(job) == ["hello"] and client.alias == "127.0.0.1"
    client.storage.upload("hello.py", "by-address/")
    assert [file.name for file in client.storage.list("by-address")] == ["hello.py"]
    assert client.info.user == login["user"]
    assert ClusterList().aliases == ["local"]
    assert login["password"] not in repr(client) + repr(vars(client))


def test_a_wrong_password_is_an_error(login):
    with pytest.raises(Denied):
        OpenPAIClient(**{**login, "password": "wrong-password"}).jobs()


def test_a_client_without_credentials_is_an_error(login):
    with pytest.raises(ConfigError, match="no password or token"):
        OpenPAIClient(login["pai_uri"], login["user"]).jobs()


def test_a_server_that_does_not_answer_is_an_error(project):
    with pytest.raises(Unreachable):
        OpenPAIClient(NOWHERE, "ann", token="x").jobs()


def test_a_job_submits_another_with_its_environment(login, cluster, monkeypatch):
    """As a program in the job: address and token come from the environment, the user from the job."""
    lines = ["from openpai_tasks import OpenPAIClient", "client = OpenPAIClient.from_env()"]
    lines += ["print(client.submit('echo inner', cpu=1).wait().state)"]
    lines += [
        "_ = client.storage.upload('inner.py', 'of-a-job/')",
        "print(client.storage.list('of-a-job')[0].name)",
    ]
    Path("inner.py").write_text("\n".join(lines))
    token = cluster.ok("cluster.credentials", "-o", "json").json()["token"]
    monkeypatch.setenv("PATH", cluster.environment["PATH"])  # whose python3 has the package
    job = submit(
        "OPENPAI_HOME=$PWD/home python3 inner.py",
        sources="inner.py",
        cpu=1,
        env={"OPENPAI_URI": login["pai_uri"]},
        secret={"OPENPAI_TOKEN": token},
    )
    out = output_of(job)
    assert out == ["SUCCEEDED", "inner.py"], out[-3:]


def test_a_server_cannot_name_any_folder_as_a_storage(project, monkeypatch):
    """Only one that the job has mounted."""
    (project / "mnt" / "home").mkdir(parents=True)
    folders = {"home": project / "mnt/home", "..": project, "../..": project.parent, "other": project}
    claims = [ClusterStorage(name, folder=str(folder)) for name, folder in folders.items()]
    assert not any(_is_mounted(claim, "ann") for claim in claims)
    monkeypatch.setenv("PAI_MOUNT_ROOT", str(project))
    assert [claim.name for claim in claims if _is_mounted(claim, "ann")] == ["home"]


def test_an_environment_without_a_cluster_is_an_error(project):
    with pytest.raises(ConfigError, match="OPENPAI_URI"):
        OpenPAIClient.from_env()


# The list


def test_clusters_are_added_updated_and_deleted(alone, server):
    record = {"cluster_alias": "lab", "pai_uri": server.uri, "user": USER, "password": PASSWORD}
    clusters = ClusterList().load().add(record).save()
    assert clusters.aliases == ["local", "lab"]
    assert PASSWORD not in Path("home", "clusters.yaml").read_text()
    assert clusters.get_client("lab").user == USER
    assert clusters.update("lab", password=PASSWORD).update_all().aliases == ["local", "lab"]
    assert ClusterList().load().delete("lab").save().aliases == ["local"]


def test_a_failed_login_adds_nothing(alone, server):
    with pytest.raises(Denied):
        ClusterList().add(cluster_alias="lab", pai_uri=server.uri, user=USER, password="wrong-password")
    with pytest.raises(ConfigError, match="needs 'pai_uri'"):
        ClusterList().add(cluster_alias="lab")
    assert ClusterList().aliases == ["local"]


def test_a_file_of_the_old_client_is_taken_over(alone, server):
    """Its password is moved to the safe place for passwords."""
    old = [{"cluster_alias": "old", "pai_uri": server.uri, "user": USER, "password": PASSWORD}]
    Path("old.yaml").write_text(yaml.safe_dump(old))
    clusters = ClusterList().load("old.yaml")
    assert clusters.select("old").user == USER
    assert not Path("home", "clusters.yaml").exists()
    clusters.save()
    assert ClusterList().load().aliases == ["local", "old"]
    assert PASSWORD not in Path("home", "clusters.yaml").read_text()


def test_an_unknown_cluster_is_an_error_and_not_none(alone):
    for ask in (ClusterList().select, ClusterList().get_client, ClusterList().delete, ClusterList().update):
        with pytest.raises(ConfigError, match="no cluster named 'lost'"):
            ask("lost")
    with pytest.raises(PathError, match=r"lost\.yaml"):
        ClusterList().load("lost.yaml")


def test_a_list_shows_the_resources_of_all_clusters(project, cluster):
    assert [row.cluster for row in ClusterList().load().available_resources()] == ["local"]
