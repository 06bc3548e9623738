"""Small files copied between two open folders: complete or absent, and never out of the folders."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from openpai_tasks.errors import PaiError
from openpai_tasks.storage.copying import direct
from openpai_tasks.storage.copying.copy import copy
from openpai_tasks.storage.copying.direct import SMALL, FolderCopy
from openpai_tasks.storage.copying.plan import plan_copy, plan_sync
from openpai_tasks.storage.local.store import LocalStore
from openpai_tasks.storage.location import Location
from tests.storage.trees import at, plant, seen

PART = ".pai-part-0000000000000000"


class Folders:
    """A source folder with a file ``f``, and an empty target folder in a storage."""

    def __init__(self, folder: Path) -> None:
        self.source, self.root = folder / "source", folder / "root"
        self.source.mkdir()
        (self.root / "d").mkdir(parents=True)
        (folder / "outside").mkdir()
        self.outside, self.target = folder / "outside", self.root / "d"
        (self.source / "f").write_bytes(b"content")
        os.utime(self.source / "f", (9.5, 9.5))  # the clock of a file system may tick only every 4 ms
        self.entry = LocalStore().stat(str(self.source / "f"))
        self.open_copy = FolderCopy(LocalStore(), str(self.source), LocalStore(str(self.root)), "/d")

    def copy(self) -> bool:
        assert self.entry
        return self.open_copy.copy(self.entry, "f")


@pytest.fixture
def folders(tmp_path, monkeypatch):
    monkeypatch.setattr(direct, "part_name", lambda: PART)
    found = Folders(tmp_path)
    yield found
    found.open_copy.close()


def test_a_file_arrives_with_its_time_and_without_a_part(folders):
    assert folders.copy() and os.listdir(folders.target) == ["f"]
    assert (folders.target / "f").read_bytes() == b"content"
    times = [int((place / "f").stat().st_mtime * 1000) for place in (folders.source, folders.target)]
    assert times[0] == times[1]


def test_a_disk_that_becomes_full_leaves_nothing(folders, monkeypatch):
    monkeypatch.setattr(os, "write", lambda handle, content: len(content) - 1)
    assert not folders.copy() and os.listdir(folders.target) == []


@pytest.mark.parametrize("change", ["content", "longer", "replaced", "removed"])
def test_a_source_that_changes_while_it_is_read_is_left_to_the_general_copy(folders, monkeypatch, change):
    file, read = folders.source / "f", os.read

    def changed(handle, size):
        content = read(handle, size)
        if change == "content":
            file.write_bytes(b"CONTENT")
        elif change == "longer":
            file.write_bytes(b"content and more")
        elif change == "replaced":
            (folders.source / "new").write_bytes(content)
            os.utime(folders.source / "new", ns=(1, file.stat().st_mtime_ns))
            os.replace(folders.source / "new", file)
        else:
            file.unlink()
        return content

    monkeypatch.setattr(os, "read", changed)
    assert not folders.copy() and os.listdir(folders.target) == []


def test_a_source_swapped_for_a_symlink_or_a_pipe_is_not_read(folders):
    (folders.outside / "secret").write_bytes(b"content")
    os.utime(folders.outside / "secret", ns=(1, (folders.source / "f").stat().st_mtime_ns))
    (folders.source / "f").unlink()
    (folders.source / "f").symlink_to(folders.outside / "secret")
    assert not folders.copy()
    (folders.source / "f").unlink()
    os.mkfifo(folders.source / "f")
    assert not folders.copy() and os.listdir(folders.target) == []


def test_a_symlink_in_the_place_of_the_part_is_not_written_through(folders):
    (folders.outside / "victim").write_bytes(b"kept")
    (folders.target / PART).symlink_to(folders.outside / "victim")
    assert not folders.copy() and (folders.outside / "victim").read_bytes() == b"kept"


def test_a_target_folder_swapped_for_a_symlink_meanwhile_is_not_followed(folders):
    folders.target.rename(folders.root / "moved")
    folders.target.symlink_to(folders.outside)
    assert folders.copy()
    assert os.listdir(folders.outside) == [] and os.listdir(folders.root / "moved") == ["f"]


def test_a_target_folder_that_leads_out_of_the_storage_is_not_opened(folders):
    (folders.root / "link").symlink_to(folders.outside)
    with pytest.raises(PaiError, match="leads out of the storage"):
        FolderCopy(LocalStore(), str(folders.source), LocalStore(str(folders.root)), "/link")


def test_a_file_whose_time_cannot_be_set_leaves_nothing(folders, monkeypatch):
    def fail(*args, **options):
        raise OSError("full")

    monkeypatch.setattr(os, "utime", fail)
    assert not folders.copy() and os.listdir(folders.target) == []


def test_an_interrupt_before_the_rename_leaves_nothing(folders, monkeypatch):
    def interrupted(*args, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(os, "rename", interrupted)
        folders.copy()
    assert os.listdir(folders.target) == []


def test_what_the_short_way_refuses_is_copied_in_the_general_way(here, monkeypatch):
    monkeypatch.setattr(FolderCopy, "copy", lambda *args: False)
    plant(here, {"d/a": b"1", "d/b": b"2", "d/empty": b""})
    assert copy(plan_copy([at(here, "d")], at(here, "t"))).files == 3
    assert seen(at(here, "t")) == {"a": b"1", "b": b"2", "empty": b""}


@pytest.mark.parametrize("size", [0, 1, SMALL, SMALL + 1])
def test_files_of_any_size_arrive(here, tmp_path, size):
    content = os.urandom(size)
    (tmp_path / "storage").mkdir()
    storage = Location(LocalStore(str(tmp_path / "storage")), "/", "pai://lab/home/")
    plant(here, {"d/f": content})
    assert copy(plan_copy([at(here, "d")], at(storage, "d"))).bytes == size
    assert seen(at(storage, "d")) == {"f": content}
    assert copy(plan_copy([at(storage, "d/f")], at(here, "back"))).files == 1
    assert (tmp_path / "here" / "back").read_bytes() == content


def test_sync_counts_unchanged_files_and_copies_the_others(here):
    plant(here, {"s/same": b"1", "s/longer": b"2", "s/later": b"3", "s/new": b"4", "s/in/same": b"5"})
    assert copy(plan_sync(at(here, "s"), at(here, "t"))).files == 5
    plant(here, {"s/longer": b"22", "s/later": b"6", "t/surplus": b"7"})
    os.utime(f"{here.path}/s/later", (9, 9))
    os.unlink(f"{here.path}/t/new")
    os.unlink(f"{here.path}/t/in/same")
    os.symlink("../surplus", f"{here.path}/t/in/same")
    again = copy(plan_sync(at(here, "s"), at(here, "t")))
    assert (again.files, again.skipped, again.failed) == (4, 1, ())
    assert seen(at(here, "t")) == {**seen(at(here, "s")), "surplus": b"7"}
