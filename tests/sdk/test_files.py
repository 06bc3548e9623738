"""Looking at files: parts of them, and what is below a folder."""

from __future__ import annotations

import os

import pytest

from openpai_tasks.errors import ConfigError, Denied, PaiError, PathError
from openpai_tasks.sdk import files, removing
from openpai_tasks.storage.local import LocalStore
from openpai_tasks.storage.location import Location
from openpai_tasks.storage.store import Place

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
def test_head_gives_as_many_lines_as_there_are(place, count):
    lines = LINES.splitlines(keepends=True)[:count]
    assert b"".join(files.head(place.join("long"), count)) == b"".join(lines)


def test_head_keeps_a_last_line_that_has_no_end(place):
    assert b"".join(files.head(place.join("no newline"), 2)) == b"a\nb"
    assert b"".join(files.head(place.join("no newline"), 1)) == b"a\n"


def test_usage_counts_each_thing_once_and_links_as_nothing_more(place):
    rows = {row.url.removeprefix("pai://lab/home/"): row for row in files.usage(place)}
    assert (rows["d"].files, rows["d"].folders, rows["d"].size) == (2, 2, 6)
    assert (rows["link"].files, rows["link"].folders, rows["link"].size) == (0, 1, 0)
    assert rows[""].size == 6 + len(LINES) + 3
    assert files.usage(place.join("no newline"))[0].size == 3


def test_a_tree_is_drawn_with_every_last_one_marked(place):
    drawn = [bars + found.entry.name for bars, found in files.tree(place)]
    assert drawn == ["├── d", "│   ├── .hidden.csv", "│   └── e", "│       └── x.csv", "├── link", "├── long",
                     "└── no newline"]  # fmt: skip
    assert [found.name for _, found in files.tree(place.join("d"), depth=1)] == [".hidden.csv", "e"]


def test_find_looks_at_names_types_and_sizes(place):
    def found(name=None, kind=None, at_least=0):
        return [info.name for info in files.find(place, name, kind, at_least)]

    assert found("*.csv") == ["d/.hidden.csv", "d/e/x.csv"]
    assert found("*.csv", at_least=3) == ["d/.hidden.csv"]
    assert found(kind="folder") == ["d", "d/e", "link"]
    with pytest.raises(PathError, match="a type is file or folder"):
        found(kind="dir")


def test_names_that_are_no_text_can_be_shown(place, tmp_path):
    (tmp_path / os.fsdecode(b"caf\xe9")).write_bytes(b"")
    names = [info.name for info in files.listing([place])]
    assert "caf\ufffd" in names and "".join(names).encode()


class Home:
    """A cluster `lab` whose storage `home` is the folder `d`."""

    def __init__(self, root):
        self.root = root

    def storages(self, cluster):
        return ("home",)

    def opened(self, cluster, storage):
        return Place("lab", "home", "local", {}), LocalStore(str(self.root / "d"))


@pytest.fixture
def rm(place, tmp_path, monkeypatch):
    """`storage.rm -r`, in the folder of the files; the names that are left there."""
    monkeypatch.chdir(tmp_path)

    def run(*texts):
        removing.remove(removing.removals(texts, Home(tmp_path), recursive=True))
        return sorted(os.listdir(tmp_path))

    return run


def test_a_pattern_with_a_slash_removes_only_folders(rm, tmp_path):
    (tmp_path / "d.txt").write_bytes(b"")
    assert rm("d*/") == ["d.txt", "link", "long", "no newline"]


@pytest.mark.parametrize("text", [
    "*/.", "d/.", "d/..", "/*", "/*/", "/[a-z]*/x", "d//*", "a//b://c", "pai://lab/home//*", "pai://lab/home/*/.",
    "pai://lab//*", "missing/../long", "long/../d", "long/", "link/", "l*/", "missing",
])  # fmt: skip
def test_what_cannot_be_meant_is_not_removed(rm, tmp_path, text):
    with pytest.raises(PaiError):
        rm(text)
    assert sorted(os.listdir(tmp_path)) == ["d", "link", "long", "no newline"]
    assert sorted(os.listdir(tmp_path / "d")) == [".hidden.csv", "e"]


def test_a_pattern_in_the_root_of_this_machine_is_told(rm, monkeypatch):
    monkeypatch.chdir("/")
    with pytest.raises(Denied, match="is a variable empty"):
        rm("*")


def test_a_link_is_removed_itself_wherever_it_leads(rm, tmp_path):
    for name, to in (("dead", "none"), ("out", ".."), ("file", "../long")):
        os.symlink(to, tmp_path / "d" / name)
    os.symlink("none", tmp_path / "dead")
    assert rm("link", "dead", "pai://lab/home/out", "pai://lab/home/dead") == ["d", "long", "no newline"]
    rm("pai://lab/home/f*")
    assert sorted(os.listdir(tmp_path / "d")) == [".hidden.csv", "e"]


def test_what_is_named_twice_is_removed_once(rm):
    assert rm("long", "./long", "lon*", "link", "d", "d/", "link") == ["no newline"]


def test_what_is_in_a_folder_that_goes_too_is_no_error(rm):
    assert rm("d/e", "d", "./d/.h*") == ["link", "long", "no newline"]


def test_a_link_in_a_folder_that_goes_does_not_take_along_what_it_leads_to(rm, tmp_path):
    os.symlink("../long", tmp_path / "d" / "inner")
    assert rm("d", "d/inner") == ["link", "long", "no newline"]


def test_what_only_fits_a_bracket_is_a_guess(rm, tmp_path):
    (tmp_path / "b1").write_bytes(b"")
    found = removing.removals(["b[1]"], Home(tmp_path), recursive=False)
    assert [one.is_guess for one in found] == [True]
    with pytest.raises(ConfigError, match="--yes removes it"):
        removing.refuse_guesses(found)
    (tmp_path / "b[1]").write_bytes(b"")
    found = removing.removals(["b[1]", "b?"], Home(tmp_path), recursive=False)
    assert [(one.place.name, one.is_guess) for one in found] == [("b[1]", False), ("b1", False)]
