"""A repository that came from somebody else runs nothing when its commit is looked up."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from openpai_tasks.sdk.git import Revision, revision
from tests.needs import needs

pytestmark = needs("git")

SETUP = (
    "-c",
    "user.name=a",
    "-c",
    "user.email=a@b",
    "-c",
    "commit.gpgsign=false",
    "-c",
    "protocol.allow=always",
    "-c",
    "maintenance.auto=false",  # which newer versions do in the background, where a copy would see its files
)


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *SETUP, *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    """A file that exists only if a program of the repository was run."""
    return tmp_path / "marker"


@pytest.fixture
def program(tmp_path: Path, marker: Path) -> str:
    """A program as an attacker would name it in the settings of a repository."""
    path = tmp_path / "evil.sh"
    path.write_text(f"#!/bin/sh\necho ran >> {marker}\ncat\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    (folder / "train.py").write_text("print(1)\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    return folder


def plain_status(folder: Path) -> None:
    """Run plain git, to prove that the attack works."""
    words = ["git", "status", "--porcelain=v2"]
    subprocess.run(words, cwd=folder, capture_output=True, check=False, timeout=60)


def assert_attack_fails(folder: Path, marker: Path, commit: str | None) -> None:
    for seconds, look in ((1, plain_status), (2, revision)):
        for path in folder.glob("*.py"):
            os.utime(path, (seconds, seconds))  # git has to read the file to see that it is the same
        look(folder)
        assert marker.exists() is (look is plain_status)  # else the attack itself is wrong
        marker.unlink(missing_ok=True)
    assert revision(folder).commit == (commit or "")


def test_fsmonitor_of_the_repository_is_not_run(repository, marker, program):
    git(repository, "config", "core.fsmonitor", program)
    assert_attack_fails(repository, marker, git(repository, "rev-parse", "HEAD"))


@pytest.mark.parametrize("key", ["clean", "process"])
@pytest.mark.parametrize("name", ["evil", "lfs", "a.b", "Ünï"])
def test_a_filter_of_the_repository_is_not_run(repository, marker, program, key, name):
    commit = git(repository, "rev-parse", "HEAD")
    (repository / ".git" / "info").mkdir(exist_ok=True)
    (repository / ".git" / "info" / "attributes").write_text(f"*.py filter={name}\n")
    git(repository, "config", f"filter.{name}.{key}", program)
    git(repository, "config", f"filter.{name}.required", "true")
    assert_attack_fails(repository, marker, commit)
    assert not revision(repository).dirty


def test_a_filter_in_an_included_file_is_not_run(repository, marker, program, tmp_path):
    commit = git(repository, "rev-parse", "HEAD")
    (tmp_path / "more").write_text(f'[filter "evil"]\n  clean = {program}\n')
    (repository / ".gitattributes").write_text("*.py filter=evil\n")
    git(repository, "config", "include.path", str(tmp_path / "more"))
    assert_attack_fails(repository, marker, commit)


def test_filter_whose_name_cannot_be_overridden_prevents_the_lookup(repository, marker, program):
    (repository / ".git" / "config").open("a").write(f'[filter "a=b"]\n  clean = {program}\n')
    (repository / ".git" / "info" / "attributes").write_text("*.py filter=a=b\n")
    assert_attack_fails(repository, marker, None)


def test_hooks_and_a_pager_of_the_repository_are_not_run(repository, marker, program):
    commit = git(repository, "rev-parse", "HEAD")
    for name in ("post-index-change", "fsmonitor-watchman", "reference-transaction"):
        shutil.copy(program, repository / ".git" / "hooks" / name)
    git(repository, "config", "core.hooksPath", str(repository / ".git" / "hooks"))
    git(repository, "config", "core.pager", program)
    git(repository, "config", "pager.status", "true")
    git(repository, "config", "pager.config", "true")
    assert_attack_fails(repository, marker, commit)


def test_settings_of_a_submodule_run_nothing(repository, marker, program, tmp_path):
    inner = tmp_path / "inner"
    shutil.copytree(repository, inner)
    git(repository, "submodule", "add", "-q", str(inner), "inner")
    git(repository, "commit", "-qm", "with a submodule")
    git(repository / "inner", "config", "core.fsmonitor", program)
    assert_attack_fails(repository, marker, git(repository, "rev-parse", "HEAD"))


def test_submodule_at_another_commit_counts_as_a_change(repository, tmp_path):
    inner = tmp_path / "inner"
    shutil.copytree(repository, inner)
    git(repository, "submodule", "add", "-q", str(inner), "inner")
    git(repository, "commit", "-qm", "with a submodule")
    assert not revision(repository).dirty
    git(repository / "inner", "commit", "-qm", "second", "--allow-empty")
    assert revision(repository).dirty


def test_a_missing_object_is_not_fetched_by_a_program_of_the_repository(repository, marker):
    tree = git(repository, "rev-parse", "HEAD^{tree}")
    git(repository, "config", "remote.origin.url", "ssh://nowhere.invalid/repository")
    git(repository, "config", "core.sshCommand", f"touch {marker};")
    git(repository, "config", "remote.origin.promisor", "true")
    git(repository, "config", "extensions.partialClone", "origin")
    git(repository, "config", "core.repositoryFormatVersion", "1")
    (repository / "new.py").write_text("")
    git(repository, "add", "new.py")
    (repository / ".git" / "objects" / tree[:2] / tree[2:]).unlink()
    assert_attack_fails(repository, marker, None)


def test_a_bare_repository_in_a_folder_is_not_used(repository, marker, program):
    hidden = repository / "data"
    shutil.copytree(repository / ".git", hidden)
    with (hidden / "config").open("w") as file:
        file.write(f"[core]\n  repositoryFormatVersion = 0\n  bare = false\n  fsmonitor = {program}\n")
        file.write(f"  worktree = {hidden}/tree\n")
    (hidden / "tree").mkdir()
    assert_attack_fails(hidden, marker, None)


def test_work_tree_outside_the_repository_is_not_used(repository, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    git(repository, "config", "core.worktree", str(elsewhere))
    assert revision(repository) == Revision()
