"""Downloading the output of a job: completely or not at all, and never outside the target."""

import os
from types import SimpleNamespace

import pytest

from openpai_tasks.errors import NotFound, PathError
from openpai_tasks.sdk.jobs import outputs
from openpai_tasks.sdk.jobs.outputs import download_outputs, list_outputs
from openpai_tasks.storage.copying import copy as copying
from openpai_tasks.storage.local.store import LocalStore
from openpai_tasks.storage.location import Location


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "storage" / "output"
    (folder / "a").mkdir(parents=True)
    (folder / "a" / "one.txt").write_text("one")
    (folder / "two.sh").write_text("two")
    os.chmod(folder / "two.sh", 0o755)
    return folder


@pytest.fixture
def found(folder):
    return lambda: list_outputs(
        "j1", Location(LocalStore(str(folder.parent)), "/output", "pai://lab/home/output")
    )


def test_all_output_files_are_listed_by_name(found):
    assert [(row.name, row.size) for row in found().rows] == [("a/one.txt", 3), ("two.sh", 3)]
    assert found().read("a/one.txt", 3) == b"one"


def test_a_missing_folder_has_no_files(tmp_path):
    outputs = list_outputs("j1", Location(LocalStore(str(tmp_path)), "/no", "pai://lab/home/no"))
    assert outputs.files == {}
    with pytest.raises(NotFound, match="has not written anything"):
        download_outputs(outputs, tmp_path / "target")
    assert not (tmp_path / "target").exists()


def test_escaping_symlinks_loops_and_pipes_are_left_out(folder, found, tmp_path):
    (folder / "a" / "loop").symlink_to(folder)
    (folder / "dangling").symlink_to(folder / "nowhere")
    (tmp_path / "storage" / "outputs").write_text("another's")
    (folder / "near").symlink_to("../outputs")
    (folder / "host").symlink_to("/etc/hostname")
    os.mkfifo(folder / "pipe")
    outputs = found()
    assert sorted(outputs.left_out) == ["a/loop", "dangling", "host", "near", "pipe"]
    assert len(outputs.files) == 2
    download_outputs(outputs, tmp_path / "target")
    assert sorted(os.listdir(tmp_path / "target")) == ["a", "two.sh"]


def test_symlink_inside_the_output_is_downloaded_as_its_target(folder, found, tmp_path):
    (folder / "again").symlink_to("a/one.txt")
    download_outputs(found(), tmp_path / "target")
    assert (tmp_path / "target" / "again").read_text() == "one"
    assert not (tmp_path / "target" / "again").is_symlink()


def test_output_folder_that_is_a_symlink_is_refused(folder, tmp_path):
    (folder.parent / "linked").symlink_to(folder)
    with pytest.raises(PathError, match="link"):
        list_outputs("j1", Location(LocalStore(str(folder.parent)), "/linked", "pai://lab/home/linked"))


def test_files_are_downloaded_with_their_mode_into_a_new_folder(found, tmp_path):
    copied = download_outputs(found(), tmp_path / "new" / "place")
    assert (copied.files, copied.bytes, copied.failed) == (2, 6, ())
    assert (tmp_path / "new" / "place" / "a" / "one.txt").read_text() == "one"
    assert os.access(tmp_path / "new" / "place" / "two.sh", os.X_OK)


def test_existing_files_are_not_downloaded_again(found, tmp_path):
    download_outputs(found(), tmp_path / "there")
    (tmp_path / "there" / "two.sh").unlink()
    copied = download_outputs(found(), tmp_path / "there")
    assert (copied.files, copied.skipped) == (1, 1)


def test_existing_symlink_is_replaced_and_not_written_through(found, tmp_path):
    target, kept = tmp_path / "there", tmp_path / "kept"
    target.mkdir()
    kept.write_text("kept")
    (target / "two.sh").symlink_to(kept)
    download_outputs(found(), target)
    assert (target / "two.sh").read_text() == "two" and kept.read_text() == "kept"


def test_a_failed_copy_leaves_the_old_file_and_no_part(folder, found, tmp_path):
    target = tmp_path / "there"
    target.mkdir()
    (target / "two.sh").write_text("old one")
    outputs = found()
    (folder / "two.sh").unlink()
    copied = download_outputs(outputs, target)
    assert [failure.path for failure in copied.failed] == ["/output/two.sh"]
    assert sorted(os.listdir(target)) == ["a", "two.sh"] and (target / "two.sh").read_text() == "old one"


def test_symlink_in_the_target_cannot_lead_the_download_out_of_it(found, tmp_path):
    target = tmp_path / "there"
    target.mkdir()
    (tmp_path / "elsewhere").mkdir()
    (target / "a").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PathError):
        download_outputs(found(), target)
    assert not list((tmp_path / "elsewhere").iterdir())


def test_folder_that_is_swapped_for_a_symlink_after_the_check_is_not_written_to(found, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "target" / "a").mkdir(parents=True)

    def copy_after_the_swap(*args, **options):
        (tmp_path / "target" / "a").rename(tmp_path / "target" / "old")
        (tmp_path / "target" / "a").symlink_to(tmp_path / "elsewhere")
        return copying.copy(*args, **options)

    monkeypatch.setattr(outputs, "copying", SimpleNamespace(copy=copy_after_the_swap))
    with pytest.raises(PathError, match="target/a leads out"):
        download_outputs(found(), tmp_path / "target")
    assert not os.listdir(tmp_path / "elsewhere")
