"""Programs for the old SDK: the Python examples of its documentation, with only the import changed."""

from pathlib import Path

import pytest
import yaml

from openpai_tasks import Cluster, ClusterList, Job
from openpai_tasks.errors import ConfigError
from tests.api.test_jobs import DOCUMENT, output_of
from tests.notebook_files import cell, write

SMALL = {"cpu": 1, "memoryMB": 512, "gpu": 0}


@pytest.fixture
def cluster_cfg(project, cluster):
    """The record of a cluster, as programs gave it to the old SDK."""
    found = cluster.ok("cluster.credentials", "-o", "json").json()
    yield {
        "cluster_alias": "lab",
        "pai_uri": found["uri"],
        "user": found["user"],
        "password": found["password"],
        "token": None,
    }
    if "lab" in ClusterList().load().aliases:
        ClusterList().load().delete("lab").save()


def test_adding_and_deleting_a_cluster(cluster_cfg):
    ClusterList().load().add(cluster_cfg).save()
    clusters = ClusterList().load()
    assert clusters.aliases == ["local", "lab"]
    assert clusters.select("lab").user == cluster_cfg["user"]
    cluster_alias = "lab"
    ClusterList().load().delete(cluster_alias).save()
    assert ClusterList().load().aliases == ["local"]


def test_available_resources_of_a_list_of_records(cluster_cfg):
    Path("clusters.yaml").write_text(yaml.safe_dump([cluster_cfg]))
    cfg = yaml.safe_load(Path("clusters.yaml").read_text())
    rows = ClusterList(cfg).available_resources()
    assert {row.cluster for row in rows} == {"lab"} and not any(row.problem for row in rows)


def test_querying_and_submitting_with_a_client(cluster_cfg):
    clusters = ClusterList().load().add(cluster_cfg)
    client = clusters.get_client("lab")
    job_config = {**DOCUMENT, "name": "old-rest"}
    client.rest_api_submit(job_config).wait()
    (found,) = client.jobs("old-rest")
    assert found.state == "SUCCEEDED"


def test_accessing_the_storage(cluster_cfg):
    Path("local.txt").write_text("text")
    cluster = Cluster().load(**cluster_cfg)
    cluster.storage.upload("local.txt", "/old/remote.txt")
    cluster.storage.download("/old/remote.txt", "back.txt")
    assert Path("back.txt").read_text() == "text"


def test_a_job_of_one_line(project):
    Path("hello.py").write_text("print('hello')")
    job = Job("old-line")
    job.one_liner(
        commands="python3 hello.py",
        image="python:3",
        cluster={"cluster_alias": "local", "virtual_cluster": "default", "workspace": None},
        resources=SMALL,
        sources=["hello.py"],
        pip_installs=[],
    )
    job.submit("local")
    assert output_of(job) == ["hello"]
    assert job.get_status().state == "SUCCEEDED"
    assert job.get_config()["defaults"]["virtualCluster"] == "default"


def test_a_job_by_position(project):
    """One_liner(commands, image, cluster, resources), submit(alias, virtual cluster)."""
    job = Job("old-position").one_liner("echo 1", "python:3", {"cluster_alias": "local"}, SMALL)
    job.submit("local", "default")
    assert job.wait(timeout=200).state == "SUCCEEDED"


def test_a_job_from_a_file(project):
    Path("job.yaml").write_text(yaml.safe_dump(DOCUMENT))
    job = Job("old-file").load("job.yaml").submit("local")
    assert job.name == "old-file" and output_of(job) == ["old unknown"]


def test_a_silent_notebook(project):
    write(project / "calculates.ipynb", cell("n = 1", "parameters"), "print('the result is', n * 7)")
    job = Job("old-silent").from_notebook("calculates.ipynb", mode="silent", resources=SMALL).param("n", 6)
    job.validate().submit("local").result()
    pages = {Path(file.path).suffix: Path(file.path) for file in job.fetch()}
    assert "the result is 42" in pages[".ipynb"].read_text()
    assert pages[".html"].parent == project


def test_a_mode_must_exist(project):
    with pytest.raises(ConfigError, match="mode must be one of interactive, silent, script"):
        Job("mode").from_notebook("works.ipynb", mode="loud")
    with pytest.raises(ConfigError, match="the mode 'silent' needs a notebook"):
        Job("mode").from_notebook(mode="silent")
