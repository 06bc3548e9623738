"""The sources of a job, back from their archive, which may have been crafted."""

import gzip
import io
import os
import tarfile
from types import SimpleNamespace

import pytest

from openpai_tasks.errors import ConfigError, PathError
from openpai_tasks.protocol.document.job_storage import RUNTIME
from openpai_tasks.sdk.git import Revision
from openpai_tasks.sdk.jobs import sources
from openpai_tasks.sdk.jobs.sources import Sources, compare_sources, compare_with_commit, write_sources
from openpai_tasks.storage.job_files.archive import Archive, iter_files
from openpai_tasks.storage.job_files.archive import _archive as finish
from openpai_tasks.storage.job_files.archive import _member as member
from tests.needs import needs
from tests.sdk.test_git import git


def archived(**files: bytes) -> Archive:
    """An archive of files by name; a name that ends with ``*`` is executable."""
    content = io.BytesIO()
    with gzip.GzipFile(fileobj=content, mode="wb") as packed, tarfile.open(fileobj=packed, mode="w") as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name.removesuffix("*"))
            info.size, info.mode = len(data), 0o755 if name.endswith("*") else 0o644
            tar.addfile(info, io.BytesIO(data))
    return finish(content, tuple([member(info, file) for info, file in iter_files(content)]))


def job(archive: Archive) -> Sources:
    return Sources("job", archive, Revision())


def test_files_are_written_once_without_the_runtime(tmp_path):
    there = tmp_path / "new" / "back"
    found = job(archived(**{"train.py": b"1", "lib/run*": b"2", f"{RUNTIME}/runtime.py": b""}))
    write_sources(found, there)
    assert sorted(str(path.relative_to(there)) for path in there.rglob("*")) == ["lib", "lib/run", "train.py"]
    assert os.access(there / "lib/run", os.X_OK) and not os.access(there / "train.py", os.X_OK)
    before = (there / "train.py").stat()
    write_sources(found, there)
    assert (there / "train.py").stat().st_ctime_ns == before.st_ctime_ns
    assert os.listdir(there.parent) == ["back"]


@pytest.mark.parametrize("change", ["other", "link", "mode", "content"])
def test_a_folder_with_something_else_is_refused_and_stays(change, tmp_path):
    (tmp_path / "a").write_text("1")
    if change == "other":
        (tmp_path / "b").write_text("")
    elif change == "link":
        (tmp_path / "a").unlink()
        (tmp_path / "a").symlink_to("/etc/hostname")
    elif change == "mode":
        (tmp_path / "a").chmod(0o755)
    else:
        (tmp_path / "a").write_text("2")
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(PathError, match="is not empty, and has other files"):
        write_sources(job(archived(a=b"1")), tmp_path)
    assert sorted(os.listdir(tmp_path)) == before


@pytest.mark.parametrize("name", ["../out", "/out", "a/../../out", "a//b", "."])
def test_a_crafted_name_writes_nothing(name, tmp_path):
    with pytest.raises(PathError, match="leads out of the folder"):
        write_sources(job(archived(good=b"1", **{name: b"2"})), tmp_path / "back")
    assert os.listdir(tmp_path) == []


def test_files_that_collide_are_refused_with_one_line(tmp_path):
    with pytest.raises(PathError, match="cannot write the sources"):
        write_sources(job(archived(**{"a": b"1", "a/b": b"2"})), tmp_path / "back")
    assert os.listdir(tmp_path) == []


def test_texts_are_compared_by_line_and_others_are_named(monkeypatch):
    first = {"same": b"1", "text": b"a\nb\n", "ends": b"x", "bin": b"\0", "gone": b"", "run": b"r"}
    second = {
        "same": b"1",
        "text": b"a\nc\n",
        "ends": b"x\n",
        "bin": b"\xff",
        "long": b"\n" * 20_000,
        "run*": b"r",
    }
    archives = {"one": archived(**first), "two": archived(**second)}
    monkeypatch.setattr(sources, "find_sources", lambda client, name, mounts: job(archives[name]))
    lab = SimpleNamespace(cluster=SimpleNamespace(alias="lab"))
    found = compare_sources(lab, "one", lab, "two")
    assert list(found.lines) == [
        "binary or large files lab:one/bin and lab:two/bin differ",
        *("--- lab:one/ends", "+++ lab:two/ends", "@@ -1 +1 @@", "-x", "\\ No newline at end of file", "+x"),
        "gone (empty) is only in lab:one",
        "binary or large files /dev/null and lab:two/long differ",
        "run is executable in lab:two",
        *("--- lab:one/text", "+++ lab:two/text", "@@ -1,2 +1,2 @@", " a", "-b", "+c"),
    ]
    assert not found.same and compare_sources(lab, "one", lab, "one").same


@needs("git")
def test_sources_are_compared_with_the_commit_they_were_made_from(tmp_path):
    project = tmp_path / "sub folder"
    project.mkdir()
    for name, text in {"a b.py": "1\n", "same.py": "3\n", "data.bin": "\0"}.items():
        (project / name).write_text(text)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "x")
    commit = git(tmp_path, "rev-parse", "HEAD")
    sent = archived(**{"a b.py": b"2\n", "same.py*": b"3\n", "data.bin": b"\0\0", "new.py": b"4\n"})
    found = compare_with_commit(Sources("job", sent, Revision(commit, True)), project)
    assert found.lines == (
        *(f"--- commit {commit[:10]}/a b.py", "+++ job/a b.py", "@@ -1 +1 @@", "-1", "+2"),
        f"binary or large files commit {commit[:10]}/data.bin and job/data.bin differ",
        *("--- /dev/null", "+++ job/new.py", "@@ -0,0 +1 @@", "+4"),
    )
    for other in ("", "0" * 40, "HEAD"):
        with pytest.raises(ConfigError, match="commit"):
            compare_with_commit(Sources("job", sent, Revision(other)), project)
