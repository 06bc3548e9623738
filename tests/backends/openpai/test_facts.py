"""What is kept about a cluster for some minutes, over real HTTP."""

import dataclasses
import time

import pytest

from openpai_tasks.backends.http import facts
from openpai_tasks.backends.openpai import Client
from openpai_tasks.errors import NotFound
from openpai_tasks.sdk.files import storages
from openpai_tasks.settings.credentials import Credentials
from openpai_tasks.settings.registry import Cluster
from tests.scripted import Reply, Scripted

API = "/rest-server/api/v2"
NFS = {"type": "nfs", "data": {"server": "nas", "path": "/team"}}
BLOB = {"type": "azureBlob", "data": {"containerName": "c", "accountName": "a", "accountKey": "s3cret"}}


@pytest.fixture
def server(monkeypatch, tmp_path):
    monkeypatch.setenv("OPENPAI_HOME", str(tmp_path / "home"))
    server = Scripted({})
    grant(server, team=NFS, blob=BLOB)
    yield server
    server.close()


def grant(server, **granted):
    rows = [{"name": name, "share": True} for name in granted]
    server.answers = {f"GET {API}/storages": {"storages": rows}}
    server.answers |= {f"GET {API}/storages/{name}": {"name": name, **one} for name, one in granted.items()}


def connect(server, user="ann", **options):
    """Connect as a new command does."""
    cluster = Cluster("lab", server.uri, user, generation="1.8")
    return Client(dataclasses.replace(cluster, **options), Credentials(token="t0ken"), timeout=30)


def count(server, ask):
    server.seen.clear()
    ask()
    return len(server.seen)


def test_storages_are_asked_for_once_by_account_and_address(server):
    first = connect(server).storages()
    assert connect(server).storages() == first and len(server.seen) == 1
    assert connect(server).storage("team") == connect(server).storage("team") and len(server.seen) == 2
    for other in (
        {"user": "bob"},
        {"generation": "0.18"},
        {"uri": server.uri.replace("127.0.0.1", "localhost")},
    ):
        assert count(server, lambda other=other: connect(server, **other).storages()) == 1, other


def test_account_keys_are_never_kept(server, tmp_path):
    found = [connect(server).storage("blob") for _ in range(2)]
    assert found[0].data["accountKey"] == "s3cret" and len(server.seen) == 2
    connect(server).storages()
    kept = [path for path in (tmp_path / "home").rglob("*") if path.is_file()]
    assert kept and not [path for path in kept if b"s3cret" in path.read_bytes()]
    assert {path.stat().st_mode & 0o777 for path in kept} == {0o600}


def test_facts_are_too_old_after_some_minutes(server, monkeypatch):
    now = time.time()
    monkeypatch.setattr(facts.time, "time", lambda: now)
    connect(server).storages()
    for later, asked in ((facts.KEPT_SECONDS - 5, 0), (-60, 1), (facts.KEPT_SECONDS + 5, 1)):
        monkeypatch.setattr(facts.time, "time", lambda later=later: now + later)
        assert count(server, lambda: connect(server).storages()) == asked, later


@pytest.mark.parametrize("text", ["", "[1]", '{"storages": {"time": 9e99}}', '{"storages": {"value": [3]}}'])
def test_a_damaged_file_counts_as_missing(server, tmp_path, text):
    first = connect(server).storages()
    (path,) = (tmp_path / "home" / "cache" / "facts").iterdir()
    path.write_text(text)
    assert connect(server).storages() == first and len(server.seen) == 2


def test_storage_that_is_new_is_found_and_one_that_is_gone_is_not_listed(server):
    connect(server).storages()
    grant(server, new=NFS)
    assert storages.detail_of(connect(server), "new").name == "new"
    with pytest.raises(NotFound, match=r"no storage named 'other' on 'lab' \(known: new\)"):
        storages.detail_of(connect(server), "other")


def test_refused_storage_drops_what_was_kept(server):
    connect(server).storages()
    server.answers[f"GET {API}/storages/blob"] = Reply({"code": "NoStorageError", "message": "gone"}, 404)
    with pytest.raises(NotFound, match="gone"):
        storages.detail_of(connect(server), "blob")
    grant(server, new=NFS)
    with pytest.raises(NotFound, match=r"known: new"):
        storages.detail_of(connect(server), "blob")
