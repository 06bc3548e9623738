"""Looking at files: parts of them, and what is below a folder."""

from __future__ import annotations

import itertools
import os

import pytest

from openpai_tasks.errors import ConfigError, Denied, PaiError, PathError
from openpai_tasks.sdk.files import operations, removing
from openpai_tasks.storage.copying.claims import part_name
from openpai_tasks.storage.local.store import LocalStore
from openpai_tasks.storage.location import Location
from openpai_tasks.storage.store import Entry, StorageSpec

LINES = b"".join(b"line %d\n" % number for number in range(300_000))  # more than one piece


@pytest.fixture
def place(tmp_path):
    (tmp_path / "d" / "e").mkdir(parents=True)
    (tmp_path / "d" / ".hidden.csv").write_bytes(b"1234")
    (tmp_path / "d" / "e" / "x.csv").write_bytes(b"12")
    (tmp_path / "long").write_bytes(LINES)
    (tmp_path / "no newline").write_bytes(b"a\nb")
    os.symlink("d", tmp_path / "link")
    return Location(LocalStore(str(tmp_path)), "/", "pai://lab/home/")


@pytest.mark.parametrize("count", [0, 1, 100_000, 300_000, 400_000])
def test_head_returns_at_most_the_requested_lines(place, count):
    lines = LINES.splitlines(keepends=True)[:count]
    assert b"".join(operations.head(place.join("long"), count)) == b"".join(lines)


def test_head_keeps_a_last_line_without_a_newline(place):
    assert b"".join(operations.head(place.join("no newline"), 2)) == b"a\nb"
    assert b"".join(operations.head(place.join("no newline"), 1)) == b"a\n"


def test_disk_usage_counts_each_file_once_and_does_not_follow_symlinks(place):
    usages = list(operations.disk_usage(place))
    rows = {row.url.removeprefix("pai://lab/home/"): row for row in usages}
    assert usages[-1].url == place.url
    assert (rows["d"].files, rows["d"].folders, rows["d"].size) == (2, 2, 6)
    assert (rows["link"].files, rows["link"].folders, rows["link"].size) == (0, 1, 0)
    assert rows[""].size == 6 + len(LINES) + 3
    assert [row.size for row in operations.disk_usage(place.join("no newline"))] == [3]


def test_tree_is_drawn_with_its_last_entries_marked(place):
    drawn = [bars + found.entry.name for bars, found in operations.tree(place)]
    assert drawn == ["├── d", "│   ├── .hidden.csv", "│   └── e", "│       └── x.csv", "├── link", "├── long",
                     "└── no newline"]  # fmt: skip
    assert [found.name for _, found in operations.tree(place.join("d"), depth=1)] == [".hidden.csv", "e"]


def test_find_filters_by_name_type_and_size(place):
    def found(name=None, kind=None, at_least=0):
        return sorted(info.name for info in operations.find_files(place, name, kind, at_least))

    assert found("*.csv") == ["d/.hidden.csv", "d/e/x.csv"]
    assert found("*.csv", at_least=3) == ["d/.hidden.csv"]
    assert found(kind="folder") == ["d", "d/e", "link"]
    with pytest.raises(PathError, match="a type is file or folder"):
        found(kind="dir")


def test_names_that_are_not_valid_utf_8_are_listed_exactly(place, tmp_path):
    (tmp_path / os.fsdecode(b"caf\xe9")).write_bytes(b"")
    assert os.fsdecode(b"caf\xe9") in [info.name for info in operations.list_files([place])]


class Endless(LocalStore):
    """A folder whose listing never ends."""

    def list(self, path):
        for number in itertools.count():
            yield Entry(str(number), f"{path}/{number}", False, size=1)


@pytest.mark.parametrize(
    "looks", [operations.disk_usage, lambda place: operations.find_files(place, None, None, 0)]
)
def test_results_are_streamed_before_the_listing_ends(tmp_path, looks):
    place = Location(Endless(str(tmp_path)), "/", "pai://lab/home/")
    assert [one.size for one in itertools.islice(looks(place), 1000)] == [1] * 1000


def test_files_still_being_written_are_listed_only_on_request(place, tmp_path):
    part = part_name()
    (tmp_path / "d" / part).touch()
    inner = place.join("d")
    assert sorted(info.name for info in operations.list_files([inner])) == [".hidden.csv", "e"]
    assert part in [info.name for info in operations.list_files([inner], parts=True)]
    (tmp_path / "d" / "e" / part).write_text("half")
    assert part not in str([*operations.find_files(inner, None, None, 0), *operations.tree(inner)])
    assert [(usage.files, usage.size) for usage in operations.disk_usage(inner)][-1] == (2, 6)


class Home:
    """A cluster `lab` whose storage `home` is the folder `d`."""

    def __init__(self, root):
        self.root = root

    def storages(self, cluster):
        return ("home",)

    def opened(self, cluster, storage):
        return StorageSpec("lab", "home", "local", {}), LocalStore(str(self.root / "d"))

    def cluster_url(self, path):
        return ""


@pytest.fixture
def rm(place, tmp_path, monkeypatch):
    """Run `storage.rm -r` in the folder of the files, and return the names that are left."""
    monkeypatch.chdir(tmp_path)

    def run(*texts):
        removing.remove(removing.plan_removals(texts, Home(tmp_path), recursive=True))
        return sorted(os.listdir(tmp_path))

    return run


def test_a_pattern_with_a_slash_removes_only_folders(rm, tmp_path):
    (tmp_path / "d.txt").write_bytes(b"")
    assert rm("d*/") == ["d.txt", "link", "long", "no newline"]


@pytest.mark.parametrize("text", [
    "*/.", "d/.", "d/..", "/*", "/*/", "/[a-z]*/x", "d//*", "a//b://c", "pai://lab/home//*", "pai://lab/home/*/.",
    "pai://lab//*", "missing/../long", "long/../d", "long/", "link/", "l*/", "missing",
])  # fmt: skip
def test_invalid_or_dangerous_paths_are_not_removed(rm, tmp_path, text):
    with pytest.raises(PaiError):
        rm(text)
    assert sorted(os.listdir(tmp_path)) == ["d", "link", "long", "no newline"]
    assert sorted(os.listdir(tmp_path / "d")) == [".hidden.csv", "e"]


def test_pattern_in_the_root_of_this_machine_is_refused(rm, monkeypatch):
    monkeypatch.chdir("/")
    with pytest.raises(Denied, match="is a variable empty"):
        rm("*")


@pytest.mark.parametrize("text", ["*", "*/x.csv", "?", "[a-z]", "e*/"])
def test_pattern_in_the_root_of_a_storage_needs_yes(place, tmp_path, text):
    found = removing.plan_removals([f"pai://lab/home/{text}"], Home(tmp_path), recursive=True)
    with pytest.raises(ConfigError, match="--yes removes what it matches"):
        removing.check_guesses(found)
    deeper = removing.plan_removals(["pai://lab/home/e/*"], Home(tmp_path), recursive=True)
    removing.check_guesses(deeper)


@pytest.mark.parametrize("variable", ["HOME", "OPENPAI_HOME"])
@pytest.mark.parametrize("text", ["{root}/d/e", "{root}/d", "d", "d*", "pai://lab/home/e", "alias"])
def test_home_folder_is_not_removed(rm, tmp_path, monkeypatch, variable, text):
    os.symlink("d/e", tmp_path / "alias")
    monkeypatch.setenv(variable, str(tmp_path / ("alias" if text == "alias" else "d/e")))
    with pytest.raises(Denied, match="never removed"):
        rm(text.format(root=tmp_path))
    assert (tmp_path / "d" / "e" / "x.csv").exists() and (tmp_path / "alias").exists()


def test_working_directory_and_its_parents_are_not_removed(rm, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path / "d" / "e")
    for text in (str(tmp_path / "d"), "../../d", "../e", str(tmp_path)):
        with pytest.raises(Denied, match="the folder that you are in"):
            rm(text)
    assert rm("../../link") == ["d", "long", "no newline"]  # a symlink is removed without its target


def test_symlink_is_removed_itself_wherever_it_points(rm, tmp_path):
    for name, to in (("dead", "none"), ("out", ".."), ("file", "../long")):
        os.symlink(to, tmp_path / "d" / name)
    os.symlink("none", tmp_path / "dead")
    assert rm("link", "dead", "pai://lab/home/out", "pai://lab/home/dead") == ["d", "long", "no newline"]
    rm("pai://lab/home/f*")
    assert sorted(os.listdir(tmp_path / "d")) == [".hidden.csv", "e"]


def test_path_that_is_named_twice_is_removed_once(rm):
    assert rm("long", "./long", "lon*", "link", "d", "d/", "link") == ["no newline"]


def test_path_inside_a_removed_folder_is_not_an_error(rm):
    assert rm("d/e", "d", "./d/.h*") == ["link", "long", "no newline"]


def test_target_of_a_symlink_in_a_removed_folder_is_kept(rm, tmp_path):
    os.symlink("../long", tmp_path / "d" / "inner")
    assert rm("d", "d/inner") == ["link", "long", "no newline"]


def test_bracket_pattern_without_a_literal_match_needs_yes(rm, tmp_path):
    (tmp_path / "b1").write_bytes(b"")
    found = removing.plan_removals(["b[1]"], Home(tmp_path), recursive=False)
    assert [one.is_guess for one in found] == [True]
    with pytest.raises(ConfigError, match="--yes removes it"):
        removing.check_guesses(found)
    (tmp_path / "b[1]").write_bytes(b"")
    found = removing.plan_removals(["b[1]", "b?"], Home(tmp_path), recursive=False)
    assert [(one.place.name, one.is_guess) for one in found] == [("b[1]", False), ("b1", False)]
