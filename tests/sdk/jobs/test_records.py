"""What the record of a submission contains, and what it never contains."""

import dataclasses
import json
import stat
import subprocess

import pytest

from openpai_tasks import protocol
from openpai_tasks.backends.openpai import Client
from openpai_tasks.errors import ConfigError, PathError
from openpai_tasks.protocol import JobRequest
from openpai_tasks.sdk.git import Revision, revision
from openpai_tasks.sdk.jobs import documents, provenance, records
from openpai_tasks.settings.credentials import Credentials
from openpai_tasks.settings.registry import Cluster
from openpai_tasks.storage.job_files.archive import pack
from openpai_tasks.storage.job_files.sources import collect


def client(alias="lab"):
    return Client(Cluster(alias, "https://pai.example.org", user="ann"), Credentials(token="t0ken"))


@pytest.fixture
def project(tmp_path):
    (tmp_path / "train.py").write_text("print()")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "model.py").write_text("")
    return tmp_path


def origin(project):
    files = pack(collect(["train.py", "lib"], project).files).files
    spec = JobRequest("python3 train.py", name="one", image="python:3", environment={"A": "value of A"})
    spec = dataclasses.replace(spec, sources=("train.py", "lib"))
    return provenance.origin_of_request(project, spec, files)


def text(**more):
    document = protocol.build_document(JobRequest("python3 train.py", name="one", image="python:3"))
    return protocol.dump({**document, **more})


def test_saved_record_is_found_by_job_and_cluster(project):
    records.save_record(client(), text(), origin(project))
    found = records.find_record(project, "one", "lab")
    assert (found.name, found.user, found.cluster, found.command) == ("one", "ann", "lab", "python3 train.py")
    assert sorted(found.files) == ["lib/model.py", "train.py"] and found.sources == ("train.py", "lib")
    assert found.settings["image"] == "python:3"
    assert (
        records.find_record(project, "one", "other") is None and records.find_record(project, "two") is None
    )


def test_secrets_and_registry_passwords_are_not_recorded(project):
    auth = {"username": "u", "password": "registry-pass", "registryuri": "r"}
    image = {"name": "image", "type": "dockerimage", "uri": "python:3", "auth": auth}
    records.save_record(client(), text(secrets={"key": "s3cret"}, prerequisites=[image]), origin(project))
    folder = project / ".openpai" / "jobs" / "one"
    kept = (folder / "record.json").read_text()
    for secret in ("s3cret", "registry-pass", "t0ken", "value of A"):
        assert secret not in kept
    assert stat.S_IMODE((folder / "record.json").stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert records.find_record(project, "one").secrets == ("key",)


def test_a_second_job_of_the_same_name_keeps_the_first_record(project):
    records.save_record(client("lab"), text(), origin(project))
    records.save_record(client("home"), text(jobRetryCount=3), origin(project))
    assert records.find_record(project, "one", "lab").cluster == "lab"
    assert "jobRetryCount: 3" in records.find_record(project, "one").document


def test_error_names_an_invalid_record(project):
    records.save_record(client(), text(), origin(project))
    (project / ".openpai/jobs/one/record.json").write_text("[1")
    with pytest.raises(ConfigError, match=r"record\.json"):
        records.find_record(project, "one")


@pytest.mark.parametrize("name", ["../one", "a/b", "", ".."])
def test_invalid_job_names_have_no_record(project, name):
    assert records.find_record(project, name) is None


def test_v1_document_is_recorded_unchanged(project):
    role = {"name": "main", "command": "true", "taskNumber": 1}
    v1 = {"jobName": "old", "image": "python:3", "taskRoles": [role]}
    records.save_record(client(), json.dumps(v1), origin(project))
    assert protocol.read(records.find_record(project, "old").document).value == v1


def test_the_hash_of_sources_covers_content_names_and_modes(project):
    before = origin(project).source_hash
    assert before == origin(project).source_hash and before.startswith("sha256:")
    (project / "train.py").chmod(0o755)
    runnable = origin(project).source_hash
    (project / "lib" / "model.py").rename(project / "lib" / "other.py")
    renamed = origin(project).source_hash
    (project / "train.py").write_text("print(1)")
    assert len({before, runnable, renamed, origin(project).source_hash}) == 4


def test_stamp_is_read_back_and_invalid_stamps_are_ignored():
    stamp = provenance.Stamp("1", "c0ffee", True, "sha256:1", "jobs/one/source", "home", "team", "zero")
    assert provenance.read_stamp(provenance.put_stamp({"extras": {"mine": 1}}, stamp)) == stamp
    assert provenance.put_stamp({"extras": {"mine": 1}}, stamp)["extras"]["mine"] == 1
    for extras in (None, 3, {"openpaiTasks": "x"}, {"openpaiTasks": {"storage": ["x"], "dirty": "yes"}}):
        assert provenance.read_stamp({"extras": extras}) == provenance.Stamp()


def git(folder, *words):
    setup = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *setup, *words], cwd=folder, check=True, capture_output=True)


def test_the_revision_has_the_commit_and_whether_files_differ(project):
    assert revision(project) == Revision()
    git(project, "init", "-q")
    assert revision(project) == Revision()  # nothing is committed yet
    git(project, "add", ".")
    git(project, "commit", "-qm", "first")
    clean = revision(project)
    assert len(clean.commit) == 40 and not clean.dirty
    (project / ".openpai").mkdir()
    (project / ".openpai" / "x").write_text("ours")
    (project / "lib" / ".openpai").mkdir()
    (project / "lib" / ".openpai" / "x").write_text("ours")
    assert revision(project) == clean == revision(project / "lib")
    (project / "new.py").write_text("")
    assert revision(project / "lib") == Revision(clean.commit, True)


@pytest.fixture
def elsewhere(project, tmp_path_factory, monkeypatch):
    """A folder beside the project, with a key in it that a symlink in the project points to."""
    folder = tmp_path_factory.mktemp("around") / "elsewhere"
    folder.mkdir()
    (folder.parent / "other").write_text("not named")
    (folder / "key").write_text("secret")
    (project / "lib" / "link").symlink_to(folder / "key")
    monkeypatch.setenv("OPENPAI_HOME", str(tmp_path_factory.mktemp("home")))
    return folder


def shipped(project, *sources):
    """A record that came with the folder."""
    records.save_record(client(), text(), dataclasses.replace(origin(project), sources=sources))
    return records.find_record(project, "one", "lab")


def test_record_that_came_with_a_folder_cannot_include_outside_sources(project, elsewhere):
    record = shipped(project, "train.py", str(elsewhere / "key"))
    message = rf"the record of job 'one' names sources outside .*`--sources {elsewhere}/key`"
    with pytest.raises(ConfigError, match=message):
        records.trusted_sources(record, project)
    inside = records.trusted_sources(shipped(project, "train.py", "lib"), project)
    with pytest.raises(PathError, match="lib/link leads to"):
        collect(inside, project)


def test_sources_that_the_user_has_named_before_can_be_repeated(project, elsewhere):
    (project / "lib" / "link").unlink()
    named = ["lib", str(elsewhere)]
    records.remember_sources(project, named, collect(named, project).files)
    assert collect(records.trusted_sources(shipped(project, *named), project), project).files
    (project / "lib" / "link").symlink_to(elsewhere.parent)
    with pytest.raises(PathError, match="lib/link"):
        collect(records.trusted_sources(shipped(project, *named), project), project)
    with pytest.raises(ConfigError):
        records.trusted_sources(shipped(project, str(elsewhere.parent)), project)


def test_symlinks_that_the_user_has_submitted_before_can_be_repeated(project, elsewhere):
    records.remember_sources(project, ["lib"], collect(["lib"], project).files)
    found = collect(records.trusted_sources(shipped(project, "lib"), project), project)
    assert [source.name for source in found.files] == ["lib/link", "lib/model.py"]


@pytest.mark.parametrize(
    "forged",
    [{"sources": 3}, {"secrets": [{}]}, {"files": []}, {"document": 1}, {"submitted": "x"}, {"name": None}],
    ids=str,
)
def test_a_forged_record_is_refused_in_one_line(project, forged):
    records.save_record(client(), protocol.dump({"name": "one"}), origin(project))
    path = project / ".openpai" / "jobs" / "one" / "record.json"
    assert records.find_record(project, "one").name == "one"
    path.write_text(json.dumps(json.loads(path.read_text()) | forged))
    with pytest.raises(ConfigError, match="is not a valid record of a submission; remove it"):
        records.find_record(project, "one")


@pytest.mark.parametrize("text", ["- 1", "taskRoles: 1", "taskRoles: {a: {commands: 1}}", "jobName"])
def test_a_forged_document_of_a_record_is_refused_in_one_line(project, text):
    records.save_record(client(), protocol.dump({"name": "one"}), origin(project))
    record = dataclasses.replace(records.find_record(project, "one"), document=text)
    with pytest.raises(ConfigError, match="the recorded document of job 'one' is invalid"):
        documents.recorded_document(record)
