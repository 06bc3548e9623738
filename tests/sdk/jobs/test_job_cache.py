"""The cache of what was read from jobs: private, bounded, and harmless if it is damaged."""

import os
import stat
import subprocess
import sys

import pytest

from openpai_tasks.sdk.jobs import job_cache
from tests.hostile import client_of

VERSIONS = {"alice~a": "1", "alice~b": "2"}
VALUES = {"alice~a": {"loss": 0.5}, "alice~b": {"text": "\u00e9\u2028", "list": [1, None]}}


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENPAI_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def client():
    return client_of("http://lab")


def load(client, versions=VERSIONS):
    return job_cache.load(client, "result", versions)


def save(client, values=VALUES, versions=VERSIONS):
    job_cache.save(client, "result", versions, values)


def test_values_are_kept_until_the_version_changes(client):
    assert load(client) == {}
    save(client)
    assert load(client) == VALUES
    assert load(client, {"alice~a": "1", "alice~b": "3"}) == {"alice~a": {"loss": 0.5}}
    assert job_cache.load(client, "sweep", VERSIONS) == {}
    assert load(client_of("http://other")) == {}
    save(client, {"alice~a": {"loss": 7}}, {"alice~a": "9"})
    assert load(client) == {"alice~b": VALUES["alice~b"]}
    assert load(client, {"alice~a": "9"}) == {"alice~a": {"loss": 7}}


def test_only_the_user_can_read_it(client, home):
    save(client)
    assert stat.S_IMODE((home / "cache" / "jobs.db").stat().st_mode) == 0o600
    assert stat.S_IMODE((home / "cache").stat().st_mode) == 0o700


@pytest.mark.parametrize("damage", [b"no database at all " * 50, b"", None])
def test_a_damaged_file_is_ignored_and_replaced(client, home, damage):
    path = home / "cache" / "jobs.db"
    save(client)
    path.write_bytes(path.read_bytes()[:5000] if damage is None else damage)
    assert load(client) == {}
    save(client)
    save(client)  # the first may only have found the damage
    assert load(client) == VALUES


def test_what_is_not_json_counts_as_missing(client, home):
    import sqlite3

    save(client)
    with sqlite3.connect(home / "cache" / "jobs.db") as database:
        database.execute("UPDATE kept SET value = '{\"loss\": ' WHERE job = 'alice~a'")
    assert load(client) == {"alice~b": VALUES["alice~b"]}
    save(client)
    assert load(client) == VALUES


def test_large_values_are_not_kept_and_old_ones_make_room(client, monkeypatch):
    monkeypatch.setattr(job_cache, "LARGEST", 100)
    monkeypatch.setattr(job_cache, "MOST_ROWS", 10)
    save(client, {"alice~a": "x" * 100})
    assert load(client) == {}
    names = [f"alice~{number}" for number in range(30)]
    for name in names:
        save(client, {name: 1}, {name: "1"})
    kept = load(client, dict.fromkeys(names, "1"))
    assert 5 <= len(kept) <= 11 and names[-1] in kept and names[0] not in kept


def test_a_link_in_its_place_is_not_followed(client, home, tmp_path):
    (home / "cache").mkdir(parents=True)
    (tmp_path / "other").write_bytes(b"precious")
    (home / "cache" / "jobs.db").symlink_to(tmp_path / "other")
    save(client)
    assert load(client) == {} and (tmp_path / "other").read_bytes() == b"precious"


WRITER = """
import sys
from openpai_tasks.sdk.jobs import job_cache
from tests.hostile import client_of
job_cache.WAIT_SECONDS = 60  # on a slow disk, the other process may write for long
for number in range(50):
    key = f"{sys.argv[1]}~{number}"
    job_cache.save(client_of("http://lab"), "result", {key: "1"}, {key: number})
"""


def test_processes_can_write_at_the_same_time(client):
    path = os.pathsep.join(filter(None, ["", os.environ.get("PYTHONPATH", "")]))
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, user], env={**os.environ, "PYTHONPATH": path or "."})
        for user in ("a", "b")
    ]
    assert [writer.wait() for writer in writers] == [0, 0]
    keys = [f"{user}~{number}" for user in ("a", "b") for number in range(50)]
    assert load(client, dict.fromkeys(keys, "1")).keys() == set(keys)
