"""Bringing files: whole or not at all, and never outside the target."""

import os

import pytest

from openpai_tasks.errors import PathError
from openpai_tasks.storage.downloads import download, listing
from openpai_tasks.storage.sources import Source


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "output"
    (folder / "a").mkdir(parents=True)
    (folder / "a" / "one.txt").write_text("one")
    (folder / "two.sh").write_text("two")
    os.chmod(folder / "two.sh", 0o755)
    return folder


def test_everything_below_is_listed_by_name(folder):
    assert [(file.name, file.size) for file in listing(folder).files] == [("a/one.txt", 3), ("two.sh", 3)]


def test_a_missing_folder_has_no_files(tmp_path):
    assert listing(tmp_path / "no").files == ()


def test_links_to_folders_and_loops_are_left_out(folder):
    (folder / "a" / "loop").symlink_to(folder)
    (folder / "dangling").symlink_to(folder / "nowhere")
    found = listing(folder)
    assert found.left_out == ("a/loop", "dangling") and len(found.files) == 2


def test_files_come_with_their_mode_into_a_folder_that_is_made(folder, tmp_path):
    target = tmp_path / "new" / "place"
    download(listing(folder).files, target)
    assert (target / "a" / "one.txt").read_text() == "one"
    assert os.access(target / "two.sh", os.X_OK)


def test_a_file_that_was_there_is_replaced_not_written_into(folder, tmp_path):
    target = tmp_path / "there"
    target.mkdir()
    kept = tmp_path / "kept"
    kept.write_text("kept")
    (target / "two.sh").symlink_to(kept)
    download(listing(folder).files, target)
    assert (target / "two.sh").read_text() == "two" and kept.read_text() == "kept"


def test_a_failed_copy_leaves_the_old_file_and_no_part(folder, tmp_path):
    target = tmp_path / "there"
    target.mkdir()
    (target / "two.sh").write_text("old")
    gone = Source(folder / "vanished", "two.sh", 3)
    with pytest.raises(PathError):
        download([gone], target)
    assert [(path.name, path.read_text()) for path in target.iterdir()] == [("two.sh", "old")]


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/tmp/x"])
def test_names_cannot_escape(folder, tmp_path, name):
    with pytest.raises(PathError):
        download([Source(folder / "two.sh", name, 3)], tmp_path / "there")
    assert not (tmp_path / "x").exists()


def test_a_link_in_the_target_cannot_lead_out(folder, tmp_path):
    target = tmp_path / "there"
    target.mkdir()
    (tmp_path / "elsewhere").mkdir()
    (target / "a").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PathError):
        download(listing(folder).files, target)
    assert not list((tmp_path / "elsewhere").iterdir())
