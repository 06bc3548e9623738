"""Tokens of Jupyter servers, which are sent to the address that the cluster reports."""

import dataclasses

import pytest

from openpai_tasks.backends.openpai import Client
from openpai_tasks.errors import ConfigError
from openpai_tasks.protocol.models import job_from_summary
from openpai_tasks.sdk.notebooks import sessions
from openpai_tasks.sdk.ssh import job_files
from openpai_tasks.settings.credentials import Credentials
from openpai_tasks.settings.registry import Cluster


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENPAI_HOME", str(tmp_path))


def test_project_cluster_does_not_get_the_token_of_the_users_job():
    lab = Cluster("lab", "https://lab", "alice", generation="1.8")
    named_alike = dataclasses.replace(lab, uri="https://evil", is_own=False)
    job = job_from_summary({"name": "nb", "username": "alice", "state": "RUNNING"})
    own, other = (Client(cluster, Credentials()) for cluster in (lab, named_alike))
    sessions.save_session(own, job, sessions.SavedSession("jupyter-token"))
    assert sessions.token_of(own, job) == "jupyter-token"
    with pytest.raises(ConfigError, match="not stored on this machine"):
        sessions.token_of(other, job)


def test_host_keys_and_job_keys_of_project_clusters_are_stored_separately():
    lab = Cluster("lab", "https://lab", "alice", is_own=False)
    assert job_files.known_hosts(lab.unique_name) != job_files.known_hosts("lab")
    assert job_files.job_key_path(lab.unique_name, "alice~x") != job_files.job_key_path("lab", "alice~x")
    assert lab.unique_name != dataclasses.replace(lab, uri="https://evil").unique_name
