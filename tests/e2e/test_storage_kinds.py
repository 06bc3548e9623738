"""A storage kind that another package adds, from the command line."""

from __future__ import annotations

import pytest

from tests.storage import third_party


@pytest.fixture
def extended(cluster, tmp_path):
    """The shared cluster, with the example package of the docs installed."""
    cluster.environment["PYTHONPATH"] = str(third_party.install(tmp_path))
    (cluster.project / "data").mkdir(exist_ok=True)
    (cluster.project / "data" / "a.txt").write_text("a\n")
    yield cluster
    cluster.pai("storage.forget", "box")
    del cluster.environment["PYTHONPATH"]


def test_third_party_storage_is_added_filled_and_read(extended, tmp_path):
    base = tmp_path / "box.db"
    row = extended.ok("storage.add", "box", "--type", "sqlite", "--path", str(base), "-o", "json").json()[0]
    assert (row["type"], row["server"], row["origin"]) == ("sqlite", str(base), "own")
    extended.ok("storage.copy", "data", "pai://local/box/")
    assert extended.ok("storage.cat", "pai://local/box/data/a.txt").out == "a\n"
    extended.ok("storage.copy", f"sqlite://{base}/data/a.txt", f"{tmp_path}/again.txt")
    assert (tmp_path / "again.txt").read_text() == "a\n"


def test_invalid_flags_of_a_third_party_storage_are_refused(extended):
    ran = extended.pai("storage.add", "box", "--type", "sqlite", "--path", "box.db")
    assert ran.code == 120 and "--path must be an absolute path of a database, got 'box.db'" in ran.err


def test_third_party_storage_is_among_the_known_types(extended):
    ran = extended.pai("storage.add", "box", "--type", "ftp")
    assert ran.code == 120 and "unknown storage type 'ftp' (known: hdfs, local," in ran.err
    assert "s3, sqlite)" in ran.err and "Traceback" not in ran.err


def test_broken_package_is_reported_in_one_line(extended, tmp_path):
    third_party.describe(tmp_path, "pai-broken", "broken = pai_broken:KIND")
    ran = extended.pai("storage.ls", "ftp://x/y")
    assert ran.code == 120 and len(ran.err.splitlines()) == 1
    assert "the storage kind 'broken' of the package pai-broken cannot be loaded" in ran.err
