"""Files that other users could have written are neither run nor trusted."""

from __future__ import annotations

import grp
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from openpai_tasks.settings import ownership

STRANGER = 54321


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that belongs to the user, in folders that nobody else can write."""
    monkeypatch.delenv("OPENPAI_TRUST", raising=False)
    monkeypatch.delenv("SUDO_UID", raising=False)
    path = tmp_path / "project" / "tasks.py"
    path.parent.mkdir()
    path.parent.chmod(0o755)
    path.write_text("")
    path.chmod(0o644)
    return path


@pytest.fixture
def give_away(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Give a path to another user; without root, pretend to be another user instead."""

    def give(path: Path) -> None:
        if os.geteuid() == 0:
            os.chown(path, STRANGER, -1, follow_symlinks=False)
        else:
            monkeypatch.setattr(os, "geteuid", lambda: STRANGER)

    return give


def test_file_of_the_user_is_trusted(file):
    assert ownership.problem(file) == ""


def test_missing_file_is_trusted(file):
    assert ownership.problem(file.with_name("other.py")) == ""


@pytest.mark.parametrize("mode", [0o666, 0o646, 0o662])
def test_file_that_others_can_write_is_reported_with_the_chmod_command(file, mode):
    file.chmod(mode)
    allow = f"export OPENPAI_TRUST={file.parent}"
    expected = (
        f"other users can write {file} (`chmod go-w {file}` prevents that, `{allow}` if you trust them)"
    )
    assert ownership.problem(file) == expected


def test_file_in_a_folder_that_others_can_write_is_reported(file):
    file.parent.chmod(0o777)
    assert f"`chmod go-w {file.parent}`" in ownership.problem(file)


def test_ancestor_folder_that_others_can_write_is_reported(file, tmp_path):
    deep = file.parent / "a" / "b" / "tasks.py"
    deep.parent.mkdir(parents=True)
    deep.write_text("")
    file.parent.chmod(0o757)
    assert f"other users can write {file.parent} " in ownership.problem(deep)


def test_file_in_a_sticky_folder_is_trusted(file):
    file.parent.chmod(0o1777)
    assert ownership.problem(file) == ""


def test_file_of_another_user_is_reported(file, give_away):
    give_away(file)
    assert f"`export OPENPAI_TRUST={file.parent}`" in ownership.problem(file)


def test_file_of_another_user_in_a_sticky_folder_is_reported(file, give_away):
    file.parent.chmod(0o1777)
    give_away(file)
    assert "belongs to" in ownership.problem(file)


def test_file_in_a_folder_of_another_user_is_reported(file, give_away):
    give_away(file.parent)
    assert "belongs to" in ownership.problem(file)


def test_group_writable_file_is_trusted_only_for_the_users_private_group(file, monkeypatch):
    file.chmod(0o664)
    owner = grp.struct_group(("somebody", "x", 1, []))
    user = ownership._name(os.geteuid())
    for name, members, is_fine in ((user, [], True), (user, ["mallory"], False), ("staff", [], False)):
        owner = grp.struct_group((name, "x", 1, members))
        monkeypatch.setattr(grp, "getgrgid", lambda _, owner=owner: owner)
        assert (ownership.problem(file) == "") is is_fine, (name, members)


def test_symlink_is_reported_if_others_can_write_the_folder_of_link_or_target(file, tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "tasks.py").write_text("")
    file.unlink()
    file.symlink_to(shared / "tasks.py")
    assert ownership.problem(file) == ""
    shared.chmod(0o777)
    assert f"other users can write {shared} " in ownership.problem(file)
    shared.chmod(0o755)
    file.parent.chmod(0o777)
    assert f"other users can write {file.parent} " in ownership.problem(file)


def test_relative_symlink_in_a_symlinked_folder_is_followed(file, tmp_path):
    (file.parent / "real.py").write_text("")
    (file.parent / "real.py").chmod(0o666)
    file.unlink()
    file.symlink_to("../project/real.py")
    (tmp_path / "link").symlink_to("project")
    assert f"other users can write {file.parent / 'real.py'} " in ownership.problem(
        tmp_path / "link" / "tasks.py"
    )


def test_symlink_to_itself_is_handled(file):
    file.unlink()
    file.symlink_to("tasks.py")
    assert ownership.problem(file) == ""  # and nobody can read it


def test_file_of_the_user_who_called_sudo_is_trusted(file, monkeypatch):
    if os.geteuid() != 0:
        monkeypatch.setattr(os, "geteuid", lambda: 0)
    else:
        os.chown(file, STRANGER, -1)
    monkeypatch.setenv("SUDO_UID", str(file.stat().st_uid))
    os.chmod(file.parent, 0o755)
    assert ownership.problem(file) == ""


@pytest.mark.parametrize(
    "folder, is_fine", [("project", True), ("", True), ("other", False), ("proj", False)]
)
def test_trust_variable_covers_a_folder_and_everything_below(file, tmp_path, monkeypatch, folder, is_fine):
    file.chmod(0o666)
    monkeypatch.setenv("OPENPAI_TRUST", f"/nowhere{os.pathsep}{tmp_path / folder}")
    assert (ownership.problem(file) == "") is is_fine


@pytest.mark.parametrize("value", ["", ".", "project", os.pathsep, f".{os.pathsep}"])
def test_trust_variable_needs_absolute_paths(file, monkeypatch, value):
    file.chmod(0o666)
    monkeypatch.chdir(file.parent.parent)
    monkeypatch.setenv("OPENPAI_TRUST", value)
    assert ownership.problem(file)


def test_symlink_to_a_file_outside_the_trusted_folder_is_reported(file, tmp_path, monkeypatch):
    (tmp_path / "evil.py").write_text("")
    (tmp_path / "evil.py").chmod(0o666)
    file.unlink()
    file.symlink_to(tmp_path / "evil.py")
    monkeypatch.setenv("OPENPAI_TRUST", str(file.parent))
    assert ownership.problem(file)


def test_everything_in_a_package_is_found_despite_a_symlink_loop(file):
    package = file.parent / "tasks"
    (package / "sub").mkdir(parents=True)
    (package / "sub" / "x.py").write_text("")
    (package / "sub" / "again").symlink_to(package)
    found = {path.relative_to(package).as_posix() for path in ownership.everything_in(package)}
    assert {".", "sub", "sub/x.py", "sub/again"} <= found


def test_folder_of_another_user_is_not_searched(file, give_away, monkeypatch):
    (file.parent / "everything").symlink_to("/")
    give_away(file.parent)
    monkeypatch.setattr(os, "listdir", lambda _: pytest.fail("searched"))
    assert "belongs to" in ownership.tree_problem(file.parent)
