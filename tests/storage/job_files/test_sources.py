"""The source files that are sent with a job."""

import os
from pathlib import Path

import pytest

from openpai_tasks.errors import PathError
from openpai_tasks.paddlecloud.package import collect_package
from openpai_tasks.settings.trust import ConfinedSources
from openpai_tasks.storage.job_files.archive import pack
from openpai_tasks.storage.job_files.sources import collect


def write(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)


def names(root: Path, *given: str) -> list[str]:
    return [source.name for source in collect(given, root).files]


def test_a_file_keeps_its_relative_name(tmp_path):
    write(tmp_path, "src/train.py")
    assert names(tmp_path, "src/train.py", "./src/../src/train.py") == ["src/train.py"]


def test_folder_includes_everything_except_repositories_and_caches(tmp_path):
    write(tmp_path, "a/one.py", "a/b/two.py", "a/.git/config", "a/__pycache__/x.pyc", "a/.openpai/x")
    assert names(tmp_path, "a") == ["a/b/two.py", "a/one.py"]


def test_files_of_the_working_directory_have_no_folder_prefix(tmp_path):
    write(tmp_path, "train.py")
    assert names(tmp_path, ".") == ["train.py"]


def test_ignore_files_apply_to_their_folder_and_below(tmp_path):
    write(tmp_path, "a/keep.py", "a/big.bin", "a/data/x", "a/b/big.bin", "a/b/only-here", "a/only-here")
    (tmp_path / ".gitignore").write_text("*.bin\n")
    (tmp_path / "a" / ".gitignore").write_text("/data/\n")
    (tmp_path / "a" / "b" / ".gitignore").write_text("only-here\n")
    assert names(tmp_path, "a") == ["a/.gitignore", "a/b/.gitignore", "a/keep.py", "a/only-here"]


def test_paiignore_overrides_gitignore(tmp_path):
    write(tmp_path, "a/model.bin", "a/other.bin", "a/notes.md")
    (tmp_path / "a" / ".gitignore").write_text("*.bin\n")
    (tmp_path / "a" / ".paiignore").write_text("!model.bin\n*.md\n.gitignore\n.paiignore\n")
    assert names(tmp_path, "a") == ["a/model.bin"]


def test_explicitly_named_file_is_included_although_it_is_ignored(tmp_path):
    write(tmp_path, "out/model.bin")
    (tmp_path / ".gitignore").write_text("*.bin\n")
    assert names(tmp_path, "out/model.bin") == ["out/model.bin"]


def test_path_outside_the_project_keeps_only_its_last_part(tmp_path):
    write(tmp_path, "lib/x.py", "lib/sub/y.py", "project/train.py")
    assert names(tmp_path / "project", "../lib", "../lib/x.py") == ["lib/sub/y.py", "lib/x.py", "x.py"]


def test_two_sources_with_the_same_name_are_refused(tmp_path):
    write(tmp_path, "one/x.py", "two/x.py", "project/t.py")
    with pytest.raises(PathError, match=r"two sources would both be 'x\.py'"):
        collect(["../one/x.py", "../two/x.py"], tmp_path / "project")


def test_error_names_a_missing_source(tmp_path):
    with pytest.raises(PathError, match=r"'nope\.py': no such file or folder"):
        collect(["nope.py"], tmp_path)


def test_symlink_to_a_parent_folder_is_not_followed_forever(tmp_path):
    write(tmp_path, "a/one.py")
    os.symlink(tmp_path / "a", tmp_path / "a" / "again")
    assert names(tmp_path, "a") == ["a/one.py"]


def test_what_cannot_be_sent_is_named(tmp_path):
    write(tmp_path, "a/one.py")
    os.symlink(tmp_path / "gone", tmp_path / "a" / "broken")
    os.symlink(tmp_path / "a", tmp_path / "a" / "above")
    os.mkfifo(tmp_path / "a" / "pipe")
    os.mkfifo(tmp_path / "a" / "ignored")
    (tmp_path / ".gitignore").write_text("ignored")
    found = collect(["."], tmp_path)
    assert [one.name for one in found.files] == [".gitignore", "a/one.py"]
    assert "left out of the sources: a/above, a/broken, a/pipe (" in found.notes[0]


def test_special_characters_in_names_are_kept(tmp_path):
    odd = ["a/with space.py", "a/ünï.py", "a/new\nline.py", "a/#hash%20.py"]
    write(tmp_path, *odd)
    assert names(tmp_path, "a") == sorted(odd)


@pytest.fixture
def secret(tmp_path):
    """A project, and a file outside it that a symlink in the project points to."""
    write(tmp_path, "secret/key", "project/src/train.py", "project/lib/x.py", "project/.git/config")
    os.symlink("../../secret/key", tmp_path / "project" / "src" / "key")
    return tmp_path / "secret"


@pytest.mark.parametrize(
    "link, target", [("key", "../../secret/key"), ("all", "../../secret"), ("g", "../.git/config")]
)
def test_symlink_out_of_a_project_that_sets_its_own_sources_is_refused(tmp_path, secret, link, target):
    root = tmp_path / "project"
    (root / "src" / "key").unlink()
    os.symlink(target, root / "src" / link)
    for given in ("src", ".", "src/"):
        with pytest.raises(PathError, match=rf"src/{link}.* leads to .*; .*`--sources {given}`"):
            collect(ConfinedSources.within(str(root), [given]), root)
    assert collect(["src"], root).files  # typed by the user, it is allowed


def test_symlinks_inside_a_project_are_followed(tmp_path, secret):
    root = tmp_path / "project"
    (root / "src" / "key").unlink()
    os.symlink("../lib", root / "src" / "lib")
    found = collect(ConfinedSources.within(str(root), ["src"]), root).files
    assert [source.name for source in found] == ["src/lib/x.py", "src/train.py"]


def test_symlink_out_of_a_trusted_outside_source_is_refused(tmp_path, secret):
    root = tmp_path / "project"
    assert collect(ConfinedSources.within(str(root), ["../secret"]), root).files[0].name == "secret/key"
    write(tmp_path, "other/x")
    os.symlink("../other/x", secret / "x")
    with pytest.raises(PathError, match=r"secret/x leads to"):
        collect(ConfinedSources.within(str(root), ["../secret"]), root)


@pytest.mark.parametrize("swapped", ["src/train.py", "src"])
def test_projects_source_swapped_for_a_symlink_after_the_check_is_not_packed(tmp_path, secret, swapped):
    root = tmp_path / "project"
    (root / "src" / "key").unlink()
    write(tmp_path, "secret/train.py")
    found = collect(ConfinedSources.within(str(root), ["src"]), root).files
    (root / swapped).rename(root / "old")
    (root / swapped).symlink_to(secret / "train.py" if swapped.endswith(".py") else secret)
    with pytest.raises(PathError, match="leads out"):
        pack(found)


def test_trusted_sources_from_elsewhere_are_packed(tmp_path, secret):
    root = tmp_path / "project"
    for given in ("../secret", "../secret/key"):
        assert len(pack(collect(ConfinedSources.within(str(root), [given]), root).files).members) == 1


def test_huge_ignore_file_ends_in_one_line(tmp_path):
    write(tmp_path, "src/train.py", "src/.paiignore")
    os.truncate(tmp_path / "src" / ".paiignore", 1 << 42)
    with pytest.raises(PathError, match=r"src/\.paiignore: it is larger than 1 MB"):
        collect(["src"], tmp_path)


def test_links_to_folders_with_links_to_folders_end_in_one_line(tmp_path):
    # 14 links in a path: Linux stops at 40, and counts them twice if it has to look the path up again
    for number in range(15):
        (tmp_path / f"{number}").mkdir()
        for name in "xyz" if number else ():
            (tmp_path / f"{number - 1}" / name).symlink_to(f"../{number}")
    with pytest.raises(PathError, match=r"more than 100 links lead to .*/14$"):
        collect(["."], tmp_path)
    with pytest.raises(PathError, match=r"more than 100 links lead to .*/14$"):
        collect_package(str(tmp_path))


def test_very_deep_folders_end_in_one_line(tmp_path):
    deep = tmp_path / "/".join(["d"] * 300)
    deep.mkdir(parents=True)
    (deep / "file").write_text("")
    with pytest.raises(PathError, match=r"…: there are more than 200 folders in one another$"):
        collect(["."], tmp_path)
    with pytest.raises(PathError, match=r"…: there are more than 200 folders in one another$"):
        collect_package(str(tmp_path))
