"""clusters.yaml: old formats load, secrets move out of it, concurrent writers lose nothing."""

import dataclasses
import stat
import subprocess
import sys

import pytest
import yaml

from openpai_tasks.errors import ConfigError
from openpai_tasks.settings import credentials
from openpai_tasks.settings.credentials import Destination
from openpai_tasks.settings.registry import Cluster, Registry, registry_path, storage_destination

OLD_0_14 = """
- cluster_alias: yarn
  pai_uri: http://10.0.0.1/
  user: alice
  password: "0123"
  default_storage_alias: hdfs
  storages:
  - {storage_alias: hdfs, protocol: webHDFS, web_hdfs_uri: 'http://10.0.0.1:50070', user: alice}
"""
OLD_0_15 = """
- cluster_alias: mid
  pai_uri: http://10.0.0.2
  user: alice
  password: pa55word
  token: null
  pylon_enabled: true
  aad_enabled: false
  storages: {builtin: {protocol: hdfs, ports: {webhdfs: 80, native: 9000}}}
  virtual_clusters: default, vc1
"""
OLD_0_18 = """
- cluster_alias: aad
  info: {name: PAI RESTful API, version: v0.18.0, launcherType: k8s, authnMethod: OIDC}
  pai_uri: https://pai.example.com
  password: null
  storages:
  - {protocol: hdfs, storage_alias: hdfs-0, webhdfs: 'https://pai.example.com/webhdfs'}
  token: aaa.bbb.ccc
  user: alice
  virtual_clusters: [default]
"""
OLD_EDU = """
- cluster_alias: edu
  pai_uri: 10.0.0.3
  user: alice
  type: pai
  workspace: /alice/w
  storages:
  - {name: config~0, mountPoint: /data, type: nfs, data: {address: 10.0.0.9, rootPath: /share}}
"""


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENPAI_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
    return tmp_path / "home"


@pytest.fixture
def registry(own_home):
    return Registry(registry_path())


def write(registry, text):
    registry.path.parent.mkdir(parents=True, exist_ok=True)
    registry.path.write_text(text)


def test_files_of_every_old_client_are_read(registry):
    write(registry, OLD_0_14 + OLD_0_15 + OLD_0_18 + OLD_EDU)
    yarn, mid, aad, edu = registry.clusters()
    assert (yarn.uri, yarn.user, yarn.storages[0]["storage_alias"]) == ("http://10.0.0.1", "alice", "hdfs")
    assert mid.virtual_clusters == ("default", "vc1") and mid.storages[0]["storage_alias"] == "builtin"
    assert aad.info["authnMethod"] == "OIDC"
    assert (edu.uri, edu.kind, edu.workspace) == ("http://10.0.0.3", "openpai", "/alice/w")


def test_plain_secrets_of_an_old_file_work_before_anything_is_written(registry):
    write(registry, OLD_0_14 + OLD_0_18)
    assert registry.credentials("yarn").password == "0123"
    assert registry.credentials("aad").token == "aaa.bbb.ccc"
    assert "0123" in registry.path.read_text()


def test_the_first_write_moves_plain_secrets_out_and_keeps_the_rest(registry):
    write(registry, OLD_0_14 + OLD_0_15 + OLD_0_18 + OLD_EDU)
    registry.put(Cluster("new", "https://new"))
    text = registry.path.read_text()
    for secret in ("0123", "pa55word", "aaa.bbb.ccc", "password", "token"):
        assert secret not in text
    assert registry.credentials("yarn").password == "0123"
    assert registry.credentials("mid").password == "pa55word"
    assert registry.credentials("aad").token == "aaa.bbb.ccc"
    by_alias = {record["cluster_alias"]: record for record in yaml.safe_load(text)}
    assert by_alias["yarn"]["default_storage_alias"] == "hdfs"
    assert by_alias["mid"]["pylon_enabled"] is True and by_alias["mid"]["aad_enabled"] is False
    assert list(by_alias) == ["yarn", "mid", "aad", "edu", "new"]


def test_saved_cluster_is_read_back_unchanged(registry):
    cluster = Cluster(
        alias="lab",
        uri="https://lab",
        user="alice",
        generation="1.8",
        info={"version": "v1.8.1"},
        virtual_clusters=("default",),
        storages=({"name": "nfs"},),
        workspace="/w",
        storage="nfs",
        verify="/etc/ca.pem",
        prefix="",
        extra={"note": "mine"},
    )
    registry.put(cluster)
    assert registry.get("lab") == cluster
    assert stat.S_IMODE(registry.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(registry.path.parent.stat().st_mode) == 0o700


def test_error_for_an_unknown_alias_names_the_known_ones(registry):
    registry.put(Cluster("lab", "https://lab"))
    with pytest.raises(ConfigError, match=r"^no cluster named 'prod' \(known: lab, local\)$"):
        registry.get("prod")


def test_local_always_exists_and_cannot_be_replaced_or_deleted(registry):
    assert registry.get("local").alias == "local"
    with pytest.raises(ConfigError, match="embedded"):
        registry.put(Cluster("local", "https://lab"))
    with pytest.raises(ConfigError, match="embedded"):
        registry.remove("local")


def test_an_old_cluster_named_local_is_still_reachable(registry):
    write(registry, OLD_0_14.replace("yarn", "local"))
    assert registry.get("local-cluster").uri == "http://10.0.0.1"
    assert registry.credentials("local-cluster").password == "0123"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("- cluster_alias: [hunter2", r"not valid YAML \(line 1"),
        ("cluster_alias: lab", "must be a list"),
        ("- lab", "entry 1 has no"),
        ("- cluster_alias: lab\n", "entry 1 has no"),
        ("- !!python/object/apply:os.getcwd []", "not valid YAML"),
        ("- {cluster_alias: a, pai_uri: x}\n- {cluster_alias: a, pai_uri: y}", "two clusters named 'a'"),
    ],
)
def test_malformed_file_is_a_one_line_error_and_is_not_overwritten(registry, text, reason):
    write(registry, text)
    with pytest.raises(ConfigError, match=reason) as raised:
        registry.put(Cluster("new", "https://new"))
    assert "\n" not in str(raised.value) and "hunter2" not in str(raised.value)
    assert registry.path.read_text() == text


def test_removing_a_cluster_removes_its_secrets(registry):
    write(registry, OLD_0_14)
    registry.remove("yarn")
    assert registry.clusters() == ()
    assert not credentials.load(Cluster("yarn", "http://10.0.0.1", "alice").destination)
    assert "0123" not in credentials.path().read_text()


def test_a_changed_address_does_not_inherit_the_old_secrets(registry):
    write(registry, OLD_0_14)
    registry.change("yarn", lambda cluster: dataclasses.replace(cluster, uri="http://elsewhere"))
    assert not registry.credentials("yarn")


# What credentials are sent to


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("prefix", "@127.0.0.1:18082", "invalid prefix '@127.0.0.1:18082'"),
        ("prefix", "/..", "invalid prefix"),
        ("prefix", "/x\n", "invalid prefix"),
        ("pai_uri", "https://lab\\@evil", "invalid pai_uri: it contains a space, a backslash"),
        ("pai_uri", "https://alice:hunter2@lab", "invalid pai_uri: it must not contain a user or password"),
        ("pai_uri", "https://lab?x=", "invalid pai_uri 'https://lab?x=': it must not contain"),
        ("pai_uri", "ftp://lab", "invalid pai_uri 'ftp://lab'"),
        ("cluster_alias", "../x", "invalid alias"),
        ("cluster_alias", ".gateways", "invalid alias"),
        ("ca", "a\0b", "invalid ca 'a\\x00b'"),
    ],
)
def test_record_that_could_redirect_requests_or_files_is_a_one_line_error(registry, field, value, words):
    write(registry, yaml.safe_dump([{"cluster_alias": "lab", "pai_uri": "https://lab", field: value}]))
    with pytest.raises(ConfigError) as raised:
        registry.clusters()
    text = str(raised.value)
    assert words in text and str(registry.path) in text and "\n" not in text and "hunter2" not in text
    assert field == "cluster_alias" or "'lab'" in text


def test_destination_covers_the_address_the_user_and_the_ca(tmp_path):
    ca = tmp_path / "ca.pem"
    ca.write_text("one")
    lab = Cluster("lab", "https://Lab:443/", "alice", prefix="")
    assert lab.destination == Destination("lab", "https://lab", "alice")
    lab = Cluster("lab", "https://lab", "alice", verify=str(ca))
    before = lab.destination
    assert before.address == "https://lab/rest-server" and before.ca.startswith("sha256:")
    ca.write_text("two")
    assert lab.destination.ca != before.ca
    ca.unlink()
    assert lab.destination.ca == "unreadable"


def test_old_credentials_are_used_for_the_users_own_clusters_file_only(registry, tmp_path):
    project = Registry(tmp_path / "project" / ".openpai" / "clusters.yaml")
    for book in (registry, project):
        write(book, "- {cluster_alias: lab, pai_uri: 'https://lab', user: alice}\n")
    credentials.path().write_text(
        "- {cluster_alias: lab, pai_uri: 'https://lab', user: alice, password: old}\n"
    )
    assert not project.credentials("lab")
    assert registry.credentials("lab").password == "old"
    assert project.credentials("lab").password == "old"  # the entry now names this destination


def test_relative_ca_path_starts_at_the_folder_of_the_clusters_file(registry, own_home):
    write(registry, "- {cluster_alias: lab, pai_uri: 'https://lab', ca: our/ca.pem}\n")
    assert registry.get("lab").verify == str(own_home / "our" / "ca.pem")


def test_project_cluster_has_another_unique_name_than_the_users_cluster(registry, tmp_path):
    project = Registry(tmp_path / "project" / ".openpai" / "clusters.yaml")
    for book in (registry, project):
        write(book, "- {cluster_alias: lab, pai_uri: 'https://lab', user: alice}\n")
    assert registry.get("lab").unique_name == "lab"
    assert project.get("lab").unique_name.startswith("lab+")


S3 = {"name": "s", "type": "s3", "address": "https://s3", "path": "bucket/x", "user": "KEY"}


@pytest.mark.parametrize(
    "change",
    [
        {"type": "samba"},
        {"address": "https://evil"},
        {"path": "other"},
        {"user": "OTHER"},
        {"name": "t"},
        {"options": {"port": "1445"}},
        {"options": {"domain": "EVIL"}},
        {"options": {"ca": "/x"}},
    ],
)
def test_storage_secret_is_bound_to_every_field_of_its_destination(change):
    lab = Cluster("lab", "https://lab", "alice")
    meant, other = storage_destination(lab, S3), storage_destination(lab, {**S3, **change})
    credentials.save(meant, credentials.Credentials("secret"))
    assert credentials.load(storage_destination(lab, {**S3, "read_only": True})).password == "secret"
    assert not credentials.load(other)


def test_storage_secret_saved_by_an_older_version_still_works(own_home):
    old = "- {cluster_alias: lab/s, pai_uri: 's3:https://s3', user: KEY, password: secret}\n"
    own_home.mkdir()
    credentials.path().write_text(old)
    lab = Cluster("lab", "https://lab", "alice")
    assert not credentials.load(storage_destination(dataclasses.replace(lab, is_own=False), S3))
    assert credentials.load(storage_destination(lab, S3)).password == "secret"


ADD_MANY = """
import sys
from openpai_tasks.settings import credentials
from openpai_tasks.settings.registry import Cluster, Registry, registry_path
for number in range(20):
    alias = f"{sys.argv[1]}-{number}"
    Registry(registry_path()).put(Cluster(alias, "https://lab"))
    login = Cluster(alias, "https://lab", "alice").destination
    credentials.save(login, credentials.Credentials("password of " + alias))
"""


def test_concurrent_writers_in_several_processes_lose_nothing(registry):
    names = ("a", "b", "c")
    writers = [subprocess.Popen([sys.executable, "-c", ADD_MANY, name]) for name in names]
    assert [writer.wait(250) for writer in writers] == [0, 0, 0]
    expected = {f"{name}-{number}" for name in names for number in range(20)}
    assert {cluster.alias for cluster in registry.clusters()} == expected
    for alias in expected:
        assert (
            credentials.load(Cluster(alias, "https://lab", "alice").destination).password
            == f"password of {alias}"
        )


def test_clusters_file_can_be_in_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert registry_path(True) == tmp_path / ".openpai" / "clusters.yaml"
