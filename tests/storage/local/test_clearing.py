"""Recursive removal of local folders: very deep, changing meanwhile, full of symlinks."""

from __future__ import annotations

import errno
import os
import resource
import sys

import pytest

from openpai_tasks.errors import NotFound, PathError
from openpai_tasks.storage.copying.copy import copy
from openpai_tasks.storage.copying.plan import plan_copy
from openpai_tasks.storage.copying.walk import walk
from openpai_tasks.storage.local.identity import real_path
from openpai_tasks.storage.local.store import LocalStore
from openpai_tasks.storage.location import Location

DEEP = 1200


@pytest.fixture(autouse=True)
def _remove_deep_folders(tmp_path):
    """Remove them here, because pytest's own cleanup cannot go that deep."""
    yield
    for found in tmp_path.iterdir():
        LocalStore().remove(str(found), recursive=True)


def dig(folder, name="d", levels=DEEP):
    """Nest folders, with a file in the last one; step by step, because the path would be too long."""
    folder.mkdir()
    here = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir(name, dir_fd=here)
        above, here = here, os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(above)
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)


@pytest.fixture
def few_files():
    """Allow far fewer open files than there are levels."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/dev/fd")) + 100, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.fixture(params=[False, True], ids=["anywhere", "confined"])
def store(request, tmp_path):
    """A store, and the path of the folder in it that tests work in."""
    return (LocalStore(str(tmp_path)), "") if request.param else (LocalStore(), str(tmp_path))


@pytest.mark.parametrize("name", ["d", "a-longer-name-than-that"], ids=["short", "longer-than-a-path-can-be"])
def test_a_very_deep_folder_is_removed(store, tmp_path, name, few_files):
    dig(tmp_path / "deep", name)
    (tmp_path / "kept").touch()
    where, above = store
    where.remove(f"{above}/deep", recursive=True)
    assert os.listdir(tmp_path) == ["kept"]


@pytest.fixture
def few_frames():
    """Allow fewer nested calls than there are levels, whose cost grows quadratically."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(400)
    yield 500
    sys.setrecursionlimit(before)


def test_a_very_deep_folder_is_copied_and_walked(tmp_path, few_frames):
    dig(tmp_path / "deep", levels=few_frames)
    (tmp_path / "home").mkdir()
    source = Location(LocalStore(), str(tmp_path / "deep"), "deep")
    target = Location(LocalStore(str(tmp_path / "home")), "/deep", "pai://lab/home/deep")
    copied = copy(plan_copy([source], target))
    assert (copied.files, copied.failed) == (1, ())
    assert sum(1 for _ in walk(target)) == few_frames + 1


def test_very_many_missing_parent_folders_are_created(store, tmp_path):
    where, above = store
    where.make_folder(above + "/d" * DEEP)
    found = where.stat(above + "/d" * DEEP)
    assert found is not None and found.is_folder
    where.remove(f"{above}/d", recursive=True)


def test_file_whose_path_is_too_long_is_an_error(tmp_path):
    dig(tmp_path / "deep", "a-longer-name-than-that")
    with pytest.raises(PathError, match="file name too long"):
        list(walk(Location(LocalStore(), str(tmp_path / "deep"), "deep")))
    LocalStore().remove(str(tmp_path / "deep"), recursive=True)


def test_symlinks_are_removed_and_not_followed(store, tmp_path):
    (tmp_path / "d" / "e").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "kept").touch()
    (tmp_path / "d" / "folder").symlink_to(tmp_path / "other")
    (tmp_path / "d" / "e" / "file").symlink_to(tmp_path / "other" / "kept")
    (tmp_path / "d" / "dead").symlink_to("nowhere")
    where, above = store
    where.remove(f"{above}/d", recursive=True)
    assert os.listdir(tmp_path) == ["other"] and os.listdir(tmp_path / "other") == ["kept"]


def test_folder_that_becomes_a_symlink_during_removal_is_not_followed(store, tmp_path, monkeypatch):
    (tmp_path / "d" / "e").mkdir(parents=True)
    (tmp_path / "d" / "first").touch()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "kept").touch()
    unlink = os.unlink

    def swap(name, **options):
        unlink(name, **options)
        os.rename(tmp_path / "d" / "e", tmp_path / "aside")
        os.symlink(tmp_path / "other", tmp_path / "d" / "e")

    monkeypatch.setattr(os, "unlink", swap)
    where, above = store
    with pytest.raises((PathError, NotFound), match="/d/e: not a directory"):
        where.remove(f"{above}/d", recursive=True)
    assert os.listdir(tmp_path / "other") == ["kept"]


def test_folder_that_is_moved_during_removal_is_an_error(store, tmp_path, monkeypatch):
    (tmp_path / "d" / "e").mkdir(parents=True)
    (tmp_path / "d" / "e" / "file").touch()
    (tmp_path / "other" / "e").mkdir(parents=True)
    unlink = os.unlink

    def move(name, **options):
        unlink(name, **options)
        os.rename(tmp_path / "d" / "e", tmp_path / "other" / "moved")

    monkeypatch.setattr(os, "unlink", move)
    where, above = store
    with pytest.raises(PathError, match="d/e was moved while it was being removed"):
        where.remove(f"{above}/d", recursive=True)
    assert sorted(os.listdir(tmp_path / "other")) == ["e", "moved"]


def test_error_names_the_file_that_cannot_be_removed(store, tmp_path, monkeypatch):
    (tmp_path / "d" / "e").mkdir(parents=True)
    (tmp_path / "d" / "e" / "file").touch()

    def refuse(name, **options):
        raise OSError(errno.EBUSY, "Device or resource busy", name)

    monkeypatch.setattr(os, "unlink", refuse)
    where, above = store
    with pytest.raises(PathError, match=r"/d/e/file: device or resource busy"):
        where.remove(f"{above}/d", recursive=True)


def test_files_removed_by_others_meanwhile_are_not_an_error(store, tmp_path, monkeypatch):
    (tmp_path / "d" / "e").mkdir(parents=True)
    (tmp_path / "d" / "file").touch()
    unlink = os.unlink

    def quicker(name, **options):
        unlink(name, **options)
        os.rmdir(tmp_path / "d" / "e")
        unlink(name, **options)

    monkeypatch.setattr(os, "unlink", quicker)
    where, above = store
    where.remove(f"{above}/d", recursive=True)
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize(
    "name", ["a", "link/a", "dead", "missing", "link/missing/x", "up/../a", "a/none", "loop", "", "odd \n"]
)
def test_real_path_agrees_with_the_operating_system(tmp_path, name):
    (tmp_path / "f").mkdir()
    (tmp_path / "f" / "a").touch()
    (tmp_path / "odd \n").touch()
    for link, to in (("link", "f"), ("dead", "nowhere/at/all"), ("loop", "loop"), ("a", "f/a"), ("up", "f")):
        (tmp_path / link).symlink_to(to)
    path = f"{tmp_path}/{name}"
    assert real_path(path) == os.path.realpath(path)
