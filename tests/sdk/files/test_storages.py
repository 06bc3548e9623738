"""The storages that clusters report, and how they are opened."""

from __future__ import annotations

import pytest

from openpai_tasks.errors import ConfigError, NotFound
from openpai_tasks.sdk.clusters import known
from openpai_tasks.sdk.clusters.known import NewCluster
from openpai_tasks.sdk.files import storages
from openpai_tasks.settings.config import Settings
from openpai_tasks.settings.credentials import Credentials
from tests.needs import needs
from tests.sdk.pai_server import PASSWORD, USER, PaiServer

KEY = "account-key-nobody-shall-see"
STORAGES = {
    "team": {"type": "nfs", "data": {"server": "nas", "path": "/exports/team"}, "share": False},
    "blob": {"type": "azureBlob", "data": {"containerName": "c", "accountName": "a", "accountKey": KEY}},
    "docs": {
        "type": "samba",
        "data": {"address": "//nas/docs", "username": "u", "password": KEY},
        "readOnly": True,
    },
}


class StorageServer(PaiServer):
    """An OpenPAI with storages of several types."""

    def guarded_routes(self):
        routes = super().guarded_routes()
        if self.generation != "0.14":
            full = {name: {"name": name, "share": True, **detail} for name, detail in STORAGES.items()}
            short = [{"name": name, "share": one["share"], "volumeName": name} for name, one in full.items()]
            routes["GET", "/v2/storages"] = 200, {"storages": short}
            routes |= {("GET", f"/v2/storages/{name}"): (200, one) for name, one in full.items()}
        return routes


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENPAI_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def lab():
    """Add a cluster of a generation and return its storages; the servers end with the test."""
    servers = []

    def add(generation="1.8", **settings):
        server = StorageServer(generation)
        servers.append(server)
        new = NewCluster("lab", server.uri, USER, Credentials(PASSWORD), force=True)
        known.add(Settings(), new, True, lambda *args: "", lambda line: None)
        return storages.ClusterStorages(Settings(**settings))

    yield add
    for server in servers:
        server.close()


def test_storages_are_listed_without_their_keys(lab):
    rows = lab().rows("lab")
    assert [(row.name, row.type, row.server, row.permission) for row in rows] == [
        ("team", "nfs", "nas:/exports/team", "rw"),
        ("blob", "azureblob", "a/c", "rw"),
        ("docs", "samba", "//nas/docs", "ro"),
    ]
    assert KEY not in repr(rows) and KEY not in repr(lab().place("lab", "blob"))


def test_a_share_is_opened_where_it_is_mounted(lab, tmp_path):
    (tmp_path / "nas" / "team").mkdir(parents=True)
    mounts = (f"nas:/exports={tmp_path}/nas", f"lab/docs={tmp_path}/nas")
    book = lab(storage_mounts=mounts)
    place, store = book.opened("lab", "team")
    assert store.root == str(tmp_path / "nas" / "team" / USER) and place.user == USER
    assert book.opened("lab", "team")[1] is store
    assert book.opened("lab", "0")[0].name == "team"
    assert book.opened("lab", "docs")[0].read_only


@needs("adlfs")
def test_storage_without_its_container_is_an_error(lab):
    with pytest.raises(ConfigError, match="'blob' of 'lab' names no container"):
        lab().opened("lab", "blob")


def test_storage_that_cannot_be_opened_is_an_error(lab):
    book = lab()
    with pytest.raises(ConfigError, match=r"storage.mounts=lab/team=FOLDER"):
        book.opened("lab", "team")
    with pytest.raises(NotFound, match=r"no storage named 'none' on 'lab' \(known: team, blob, docs\)"):
        book.opened("lab", "none")


def test_oldest_cluster_has_its_hdfs_as_a_storage(lab):
    book = lab("0.14")
    assert book.storages("lab") == ("hdfs",)
    place, store = book.opened("lab", "hdfs")
    assert (place.kind, store.kind) == ("hdfs", "hdfs") and place.cluster_uri.startswith("http://127.0.0.1")
    assert [(row.name, row.type, row.default) for row in book.rows("lab")] == [("hdfs", "hdfs", True)]
