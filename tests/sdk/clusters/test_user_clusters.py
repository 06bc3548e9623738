"""The datacenters of ~/.paddle/config beside the clusters in clusters.yaml."""

import dataclasses
import os

import pytest

from openpai_tasks.backends.paddlecloud import config_file as paddle_config
from openpai_tasks.errors import ConfigError
from openpai_tasks.sdk.clusters.user_clusters import UserClusters
from openpai_tasks.settings import credentials
from openpai_tasks.settings.credentials import Credentials
from openpai_tasks.settings.registry import OPTIONS, Cluster, registry_path

CONFIG = "dc1: {username: ann, password: 0123, endpoint: 'http://dc1.example.com'}\n"
LAB = Cluster("lab", "http://lab.example.com", "bob")


@pytest.fixture(autouse=True)
def config(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("OPENPAI_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
    paddle_config.path().parent.mkdir()
    paddle_config.path().write_text(CONFIG)
    return paddle_config.path()


@pytest.fixture
def book():
    found = UserClusters(registry_path())
    found.put(LAB)
    return UserClusters(registry_path())


def test_datacenters_are_listed_beside_the_users_clusters(book):
    assert [(one.alias, one.kind) for one in book.clusters()] == [("lab", "openpai"), ("dc1", "paddlecloud")]
    found = book.get("dc1")
    assert (found.rest, found.user, found.is_own) == ("http://dc1.example.com", "ann", True)
    assert book.get("lab").uri == LAB.uri


def test_a_datacenter_is_also_found_by_its_name(book, config):
    options = {OPTIONS: {"datacenter": "dc7"}}
    book.put(Cluster("mine", "http://dc7.example.com", "ann", "paddlecloud", "v1", prefix="", extra=options))
    assert book.get("dc7").alias == "mine" and book.get("dc1").alias == "dc1"
    config.write_text(CONFIG.replace("dc1:", "dc7:"))
    with pytest.raises(ConfigError, match="no cluster named 'dc9'"):
        book.get("dc9")
    assert book.get("dc7").uri == "http://dc1.example.com"  # an alias comes before a name


def test_password_comes_from_its_file_and_only_the_token_is_stored(book):
    cluster = book.get("dc1")
    assert book.credentials("dc1") == Credentials(password="0123")
    kept = book.storable(cluster, Credentials("0123", "t0ken"))
    credentials.save(cluster.destination, kept)
    assert book.credentials("dc1") == Credentials("0123", "t0ken")
    assert "0123" not in credentials.path().read_text()
    assert book.storable(LAB, Credentials("pw", "t0ken")) == Credentials("pw", "t0ken")


def test_token_of_another_user_or_endpoint_is_not_used(book, config):
    credentials.save(book.get("dc1").destination, Credentials(token="t0ken"))
    for before, after in (("ann", "eve"), ("dc1.example", "dc9.example")):
        config.write_text(CONFIG.replace(before, after))
        assert UserClusters(registry_path()).credentials("dc1") == Credentials(password="0123")


def test_own_cluster_has_its_alias_before_a_datacenter(book):
    book.put(Cluster("dc1", "http://other.example.com", "bob"))
    found = UserClusters(registry_path())
    assert found.get("dc1").user == "bob"
    assert found.get("dc1-paddle").user == "ann"


def test_file_is_never_changed(book, config):
    before = config.read_bytes(), os.stat(config).st_mtime_ns
    with pytest.raises(ConfigError, match=r"cluster\.add dc1 http://dc1\.example\.com --type paddlecloud"):
        book.change("dc1", lambda now: dataclasses.replace(now, storage="pfs"))
    with pytest.raises(ConfigError, match="remove it there"):
        book.remove("dc1")
    learned = book.change("dc1", lambda now: dataclasses.replace(now, virtual_clusters=("ann",)))
    assert learned.virtual_clusters == ("ann",)
    assert (config.read_bytes(), os.stat(config).st_mtime_ns) == before
    assert "dc1" not in book.text()


def test_a_broken_file_stops_no_other_cluster(book, config):
    config.write_text("datacenters: [")
    found = UserClusters(registry_path())
    assert [one.alias for one in found.clusters()] == ["lab"] and found.get("lab").uri == LAB.uri
    with pytest.raises(ConfigError, match=r"no cluster named 'dc1'.*config is not valid YAML"):
        found.get("dc1")


def test_clusters_of_a_project_stay_alone(tmp_path):
    assert UserClusters(tmp_path / ".openpai" / "clusters.yaml").clusters() == ()
