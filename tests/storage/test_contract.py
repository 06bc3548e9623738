"""What every store does, and the rules of copying between any two stores (docs/storage.md)."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from openpai_tasks.errors import Denied, NotFound, PaiError, PathError
from openpai_tasks.storage.copying.copy import Rules, copy
from openpai_tasks.storage.copying.plan import plan_copy, plan_sync
from openpai_tasks.storage.location import Location
from openpai_tasks.storage.parts import PART
from openpai_tasks.storage.store import fingerprint, join
from tests.storage.stores import STORES, local
from tests.storage.trees import at, plant, seen

DOCS = Path(__file__).parents[2] / "docs" / "storage.md"
ODD = ("two  spaces #", "100%", "%41", "what? [x] *", "a+b&c=d;e", "naïve ☃ 文件\nnew line", "-rf")

SOURCE = {
    "f": b"1",
    "g": b"22",
    "d/x": b"x",
    "d/e/": None,
    "d/s/y": b"y",
    "b/f": b"another f",
    ".hidden": b"h",
}
TARGET = {"old": b"old", "dir/": None}
FULL = {"full/d/x": b"older x", "full/d/z": b"z"}
CLASH = {"clash/d/s": b"a file"}


@dataclass(frozen=True)
class Case:
    """One rule: what is copied where, and what is at the target afterwards; an error leaves it unchanged."""

    number: int
    sources: tuple[str, ...]
    target: str
    new: dict[str, bytes | None] | type[PaiError]
    as_cp: bool = True

    def __str__(self) -> str:
        return f"{self.number}: {' '.join(self.sources)} -> {self.target}"


D = {"x": b"x", "e/": None, "s/y": b"y"}


def below(folder: str, tree: dict[str, bytes | None] = D) -> dict[str, bytes | None]:
    return {f"{folder}/{name}": content for name, content in tree.items()}


CASES = (
    Case(1, ("f",), "new", {"new": b"1"}),
    Case(2, ("f",), "old", {"old": b"1"}),
    Case(3, ("f",), "dir", {"dir/f": b"1"}),
    Case(3, ("f",), "dir/", {"dir/f": b"1"}),
    Case(4, ("f",), "new/", {"new/f": b"1"}, as_cp=False),
    Case(5, ("f",), "a/b/new", {"a/b/new": b"1"}, as_cp=False),
    Case(5, ("d",), "a/b/new", below("a/b/new"), as_cp=False),
    Case(6, ("f",), "old/", PathError),
    Case(6, ("d",), "old/", PathError),
    Case(7, ("d",), "new", below("new")),
    Case(7, ("d/",), "new", below("new")),
    Case(8, ("d",), "dir", below("dir"), as_cp=False),
    Case(8, ("d/",), "full/d", {**below("full/d"), "full/d/z": b"z"}, as_cp=False),
    Case(9, ("d/.",), "dir", below("dir")),
    Case(9, ("d/.",), "new", below("new")),
    Case(9, ("d/.",), "dir/", below("dir")),
    Case(10, ("d",), "new/", below("new/d"), as_cp=False),
    Case(10, ("d/",), "dir/", below("dir/d")),
    Case(10, ("d",), "dir/.", below("dir/d")),
    Case(10, ("d",), ".", below("d")),
    Case(10, ("d",), "full/", {**below("full/d"), "full/d/z": b"z"}),
    Case(11, ("d",), "old", PathError),
    Case(12, ("f", "g", "d"), "dir", {"dir/f": b"1", "dir/g": b"22", **below("dir/d")}),
    Case(12, ("f", "d"), "new", {"new/f": b"1", **below("new/d")}, as_cp=False),
    Case(12, ("f", "g"), "new/", {"new/f": b"1", "new/g": b"22"}, as_cp=False),
    Case(13, ("f", "g"), "old", PathError),
    Case(14, ("[d]",), "new", below("new/d"), as_cp=False),
    Case(14, ("[f]",), "dir", {"dir/f": b"1"}),
    Case(15, ("f", "b/f"), "dir", PathError, as_cp=False),
    Case(16, ("missing",), "dir", NotFound),
    Case(17, ("*",), "dir", {"dir/f": b"1", "dir/g": b"22", **below("dir/d"), "dir/b/f": b"another f"}),
    Case(17, ("d/*", "[fg]"), "dir", {**below("dir"), "dir/f": b"1", "dir/g": b"22"}),
    Case(17, ("*/nothing",), "dir", NotFound),
    Case(18, ("f",), "di?", {"dir/f": b"1"}),
)


RULES = {str(case): case for case in CASES}
TO_STORES = (
    *("2: f -> old", "4: f -> new/", "5: d -> a/b/new", "6: f -> old/", "8: d/ -> full/d", "10: d -> ."),
    *("11: d -> old", "12: f d -> new", "18: f -> di?"),
)
"""Rules that differ in what they ask of the target's store; all of them are tested inside a folder."""

FROM_STORES = tuple({case.sources: str(case) for case in reversed(CASES) if case.number != 12}.values())
"""One rule for each form of the sources: the target makes no difference to the source's store."""

ACROSS = ("2: f -> old", "8: d/ -> full/d", "12: f d -> new")
"""Rules that are also tested inside each store; the others are, there, a matter of its two roles."""


def before(case: Case) -> dict[str, bytes | None]:
    """The tree at the target before a copy, with files that it must leave alone."""
    return {**TARGET, **(FULL if case.target.startswith("full") else {})}


def needed(case: Case) -> dict[str, bytes | None]:
    """The part of the tree that a rule depends on: every entry costs each kind of store a few requests."""
    trees: dict[str, dict[str, bytes | None]] = {"full": FULL, "old": {"old": b"old"}, "di": {"dir/": None}}
    return next((tree for name, tree in trees.items() if case.target.startswith(name)), {})


def expected(case: Case, tree: dict[str, bytes | None]) -> dict[str, bytes | None]:
    if isinstance(case.new, type):
        return tree
    taken = {name for name in tree if any(new.startswith(name) and name.endswith("/") for new in case.new)}
    return {**{name: content for name, content in tree.items() if name not in taken}, **case.new}


@pytest.fixture(params=["up", "down"])
def ways(request, here, there):
    """From here to the store, and from the store to here: two folders."""
    source, target = (here, there) if request.param == "up" else (there, here)
    target.store.make_folder(at(target, "target").path)
    return at(source, "source"), at(target, "target")


@pytest.fixture(scope="module", params=STORES.values(), ids=STORES)
def shared(request, tmp_path_factory):
    """A folder in each kind of store, in which every test has another one."""
    with request.param(tmp_path_factory.mktemp("shared")) as location:
        yield location


@pytest.fixture(scope="module")
def shared_source(shared):
    """A tree in the store that no test may change."""
    source = at(shared, "source")
    plant(source, SOURCE)
    yield source
    assert seen(source) == SOURCE


@pytest.fixture(scope="module")
def source_here(tmp_path_factory):
    """The same tree on this machine."""
    with local(tmp_path_factory.mktemp("here")) as here:
        source = at(here, "source")
        plant(source, SOURCE)
        yield source
        assert seen(source) == SOURCE


@pytest.mark.parametrize("case", [RULES[name] for name in TO_STORES], ids=str)
def test_copy_follows_the_documented_rules_to_a_store(shared, source_here, case):
    follows(case, source_here, at(shared, f"up {CASES.index(case)}"), needed(case))


@pytest.mark.parametrize("case", [RULES[name] for name in FROM_STORES], ids=str)
def test_copy_follows_the_documented_rules_from_a_store(shared_source, here, case):
    follows(case, shared_source, at(here, "target"), needed(case))


@pytest.mark.parametrize("case", [RULES[name] for name in ACROSS], ids=str)
def test_copy_follows_the_documented_rules_inside_a_store(shared, shared_source, case):
    follows(case, shared_source, at(shared, f"across {CASES.index(case)}"), needed(case))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_copy_follows_the_documented_rules_inside_a_folder(here, case):
    plant(at(here, "source"), SOURCE)
    follows(case, at(here, "source"), at(here, "target"), before(case), again=True)


def follows(
    case: Case, source: Location, target: Location, tree: dict[str, bytes | None], again: bool = False
) -> None:
    plant(target, tree)
    if not tree:
        target.store.make_folder(target.path)
    places = [at(source, text) for text in case.sources]
    if isinstance(case.new, type):
        with pytest.raises(case.new):
            copy(plan_copy(places, at(target, case.target)))
    else:
        copied = copy(plan_copy(places, at(target, case.target)))
        assert copied.failed == () and copied.files == len(
            [c for c in case.new.values() if c is not None]
        ) - ("full/d/z" in case.new)
    assert seen(target) == expected(case, tree)
    if again and not isinstance(case.new, type):
        assert copy(plan_copy(places, at(target, case.target))).skipped == copied.files
        assert seen(target) == expected(case, tree)


@pytest.mark.parametrize("case", [case for case in CASES if case.as_cp], ids=str)
def test_copy_rules_match_cp(here, case):
    plant(at(here, "source"), SOURCE)
    plant(at(here, "target"), before(case))
    quoted = [text if re.search(r"[*?\[]", text) else f"'{text}'" for text in case.sources]
    target = case.target if "?" in case.target else f"'{case.target}'"
    line = f"cd source && cp -r {' '.join(quoted)} ../target/{target}"
    ran = subprocess.run(["bash", "-c", line], cwd=here.path, capture_output=True)
    assert (ran.returncode != 0) == isinstance(case.new, type), ran
    assert seen(at(here, "target")) == expected(case, before(case))


def test_every_rule_is_in_the_docs():
    numbers = {int(number) for number in re.findall(r"^\| (\d+) \|", DOCS.read_text(), re.M)}
    assert {case.number for case in CASES} <= numbers


def test_names_with_wildcards_or_special_characters_are_kept(here, there):
    """On the way up, inside the store, and down again."""
    tree = {name: name.encode() for name in ODD}
    plant(here, {**tree, f"{ODD[0]}-dir/{ODD[1]}": b"1"})
    there.store.make_folder(at(there, "each").path)
    assert copy(plan_copy([at(here, name) for name in ODD], at(there, "each"))).files == len(ODD)
    assert copy(plan_copy([here], at(there, "up"))).failed == ()
    assert copy(plan_copy([at(there, "up")], at(there, "across"))).failed == ()
    assert copy(plan_copy([at(there, "across")], at(here, "down"))).failed == ()
    here.store.make_folder(at(here, "each").path)
    assert copy(plan_copy([at(there, f"each/{name}") for name in ODD], at(here, "each"))).files == len(ODD)
    assert seen(at(here, "down")) == {**tree, f"{ODD[0]}-dir/{ODD[1]}": b"1"}
    assert seen(at(here, "each")) == tree
    assert sorted(entry.name for entry in there.store.list(at(there, "across").path)) == sorted(
        [*ODD, f"{ODD[0]}-dir"]
    )


def test_target_with_wildcards_or_special_characters_is_taken_as_it_is(here, there):
    plant(here, {name: name.encode() for name in ODD})
    for name in ODD:
        assert copy(plan_copy([at(here, name)], at(there, f"to {name}"))).files == 1
    assert seen(there) == {f"to {name}": name.encode() for name in ODD}


def test_file_in_the_place_of_a_folder_fails_only_that_folder(ways):
    source, target = ways
    plant(source, below("d"))
    plant(target, CLASH)
    copied = copy(plan_copy([at(source, "d")], at(target, "clash/")))
    assert [failure.path for failure in copied.failed] == [at(source, "d/s").path]
    assert "a file is at" in copied.failed[0].reason
    assert seen(at(target, "clash")) == {"d/s": b"a file", "d/x": b"x", "d/e/": None}


def test_second_copy_skips_existing_files_and_copies_missing_ones(ways):
    source, target = ways
    plant(source, below("d"))
    assert copy(plan_copy([at(source, "d")], at(target, "new"))).files == 2
    target.store.remove(at(target, "new/x").path)
    again = copy(plan_copy([at(source, "d")], at(target, "new")))
    assert (again.files, again.skipped, again.failed) == (1, 1, ())


def test_checksum_detects_a_change_that_size_and_time_hide(ways):
    source, target = ways
    plant(source, {"g": b"22"})
    copy(plan_copy([at(source, "g")], at(target, "g")))
    entry = target.store.stat(at(target, "g").path)
    target.store.write(entry.path, [b"23"], 2)
    target.store.set_mtime(entry.path, entry.mtime_ms)
    assert copy(plan_copy([at(source, "g")], at(target, "g"))).skipped == 1
    assert copy(plan_copy([at(source, "g")], at(target, "g")), Rules(checksum=True)).files == 1
    assert copy(plan_copy([at(source, "g")], at(target, "g")), Rules(checksum=True)).skipped == 1


def test_sync_makes_the_target_equal_to_the_source(ways):
    source, target = ways
    new, old = {"f": b"1", ".hidden": b"h", **below("d")}, {**TARGET, "d/z": b"z", "full/d/x": b"x"}
    plant(source, new)
    plant(target, old)
    would = copy(plan_sync(source, target), Rules(delete=True, preview=True))
    assert (would.files, would.removed) == (4, 4) and seen(target) == old
    done = copy(plan_sync(source, target), Rules(delete=True))
    assert (done.files, done.removed, done.failed) == (4, 4, ())
    assert seen(target) == new
    assert copy(plan_sync(source, target), Rules(delete=True)).skipped == 4


def test_nothing_is_copied_onto_or_into_itself(there):
    plant(there, {"f": b"1", "d/x": b"x"})
    for source, target in (("f", "f"), ("f", "."), ("d", "d"), ("d", "d/s"), ("d", "d/s/t/")):
        with pytest.raises(PathError):
            plan_copy([at(there, source)], at(there, target))
    assert seen(there) == {"f": b"1", "d/x": b"x"}


def test_symlinks_are_copied_as_their_targets(here, there):
    plant(here, {"outside": b"o", "d/real": b"r", "d/s/y": b"y"})
    folder = at(here, "d").path
    for name, leads in {
        "file": "../outside",
        "folder": "s",
        "nowhere": "none",
        "s/up": "..",
        "self": "self",
    }.items():
        os.symlink(leads, join(folder, name))
    copied = copy(plan_copy([at(here, "d")], at(there, "new")))
    assert seen(at(there, "new")) == {"real": b"r", "s/y": b"y", "file": b"o", "folder/y": b"y"}
    assert {failure.path.removeprefix(folder) for failure in copied.failed} == {
        "/nowhere", "/s/up", "/folder/up", "/self",
    }  # fmt: skip


# What a store does by itself


def test_stat_and_list_report_files_and_folders(there):
    plant(there, {"f": b"123", "d/x": b"x"})
    file, folder = there.store.stat(at(there, "f").path), there.store.stat(at(there, "d").path)
    assert (file.name, file.size, file.is_folder) == ("f", 3, False)
    assert (folder.name, folder.size, folder.is_folder) == ("d", 0, True)
    assert there.store.stat(at(there, "none").path) is None
    assert there.store.stat(at(there, "f/below").path) is None
    assert sorted(entry.path for entry in there.store.list(there.path)) == [
        at(there, "d").path,
        at(there, "f").path,
    ]


def test_a_store_reads_any_part_of_a_file(there):
    plant(there, {"f": b"0123456789"})
    for offset, length in ((0, None), (3, None), (3, 4), (0, 0), (8, 100), (100, 5)):
        end = None if length is None else offset + length
        assert b"".join(there.store.read(at(there, "f").path, offset, length)) == b"0123456789"[offset:end]


def test_reading_an_empty_file_gives_no_data(there):
    plant(there, {"f": b""})
    path = at(there, "f").path
    for offset, length in ((0, None), (0, 0), (0, 1), (0, 100), (3, 1)):
        assert b"".join(there.store.read(path, offset, length)) == b""


def test_name_that_is_not_valid_utf_8_fails_alone_or_arrives(here, there):
    bad = os.fsdecode(b"bad\xff")
    tree = {f"d/{bad}.txt": b"1", f"d/{bad}/below": b"2", "d/good": b"3", "d/in/it": b"4"}
    plant(here, tree)
    copied = copy(plan_copy([at(here, "d")], at(there, "d")))
    if not copied.failed:
        assert seen(at(there, "d")) == {name.removeprefix("d/"): content for name, content in tree.items()}
        return
    assert sorted(failure.path for failure in copied.failed) == [
        at(here, f"d/{bad}").path,
        at(here, f"d/{bad}.txt").path,
    ]
    assert all("UTF-8" in failure.reason for failure in copied.failed)
    assert seen(at(there, "d")) == {"good": b"3", "in/it": b"4"}


def test_missing_paths_raise_not_found(there):
    missing = at(there, "none").path
    for act in (there.store.list, there.store.read):
        with pytest.raises(NotFound):
            list(act(missing))
    with pytest.raises(NotFound):
        there.store.remove(missing)


def test_folder_that_is_not_empty_is_removed_only_recursively(there):
    plant(there, {"d/x": b"x", "e/": None})
    with pytest.raises(PathError):
        there.store.remove(at(there, "d").path)
    there.store.remove(at(there, "e").path)
    there.store.remove(at(there, "d").path, recursive=True)
    assert seen(there) == {}


def test_a_rename_replaces_a_file(there):
    plant(there, {"f": b"new", "g": b"old"})
    there.store.rename(at(there, "f").path, at(there, "g").path)
    assert seen(there) == {"g": b"new"}


def test_folder_is_created_with_its_parents_and_may_exist(there):
    for _ in range(2):
        there.store.make_folder(at(there, "a/b/c").path)
    plant(there, {"f": b"1"})
    with pytest.raises((PathError, Denied)):
        there.store.make_folder(at(there, "f").path)
    assert seen(there) == {"a/b/c/": None, "f": b"1"}


def test_digest_equals_the_locally_computed_one(there):
    content = os.urandom(3_000_001)
    plant(there, {"f": content, "empty": b""})
    for name, data in (("f", content), ("empty", b"")):
        digest_there = there.store.digest(at(there, name).path)
        assert digest_there == fingerprint(there.store.hasher(digest_there.kind), [data[:7], data[7:]])


def test_modification_times_are_kept(there):
    plant(there, {"f": b"1"})
    there.store.set_mtime(at(there, "f").path, 1_234_567_890_123)
    entry = there.store.stat(at(there, "f").path)
    assert entry.mtime_ms == (1_234_567_890_000 if entry.is_whole_second else 1_234_567_890_123)


def test_copy_leaves_no_part_files(there, here):
    plant(here, {f"d/{number}": b"x" * number for number in range(20)})
    assert copy(plan_copy([at(here, "d")], at(there, "d"))).files == 20
    assert not [entry for entry in there.store.list(at(there, "d").path) if entry.name.startswith(PART)]
