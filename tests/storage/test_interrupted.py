"""Copies that are interrupted anywhere and repeated: the tree equals the source, with nothing beside it."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from openpai_tasks.errors import PaiError, Unreachable
from openpai_tasks.sdk.files import cleaning
from openpai_tasks.storage import retry
from openpai_tasks.storage.copying import resume
from openpai_tasks.storage.copying.claims import claiming, part_name
from openpai_tasks.storage.copying.copy import Rules, copy
from openpai_tasks.storage.copying.plan import plan_copy
from openpai_tasks.storage.copying.progress import Watch
from openpai_tasks.storage.copying.transfer import put
from openpai_tasks.storage.local.store import LocalStore
from openpai_tasks.storage.location import Location
from openpai_tasks.storage.parts import PART
from tests.storage.trees import at, plant, seen

LARGE = 200_000
CALLS = (
    *("list", "stat", "make_folder", "remove", "rename", "write", "set_mtime", "digest"),
    *("append", "broken_off", "write_checked", "write_whole"),
)


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENPAI_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(retry, "FIRST_PAUSE", 0.0001)
    monkeypatch.setattr(resume, "LARGE", LARGE)  # files that are continued where they stopped


class Ends(Watch):
    """Ends a copy after some bytes: as Ctrl-C does, or by a connection that breaks for good."""

    def __init__(self, most: int, is_cut: bool) -> None:
        super().__init__()
        self._left, self._is_cut, self.is_broken = most, is_cut, False

    def moved(self, count: int) -> None:
        self._left -= count
        if self._left <= 0 and self._is_cut:
            self.is_broken = True
            raise Unreachable("the connection is lost")
        if self._left <= 0:
            self.stop()

    def breaks(self, store: object, patch: pytest.MonkeyPatch) -> None:
        """Let every later call of the store fail, too."""
        for name in CALLS:
            if call := getattr(store, name, None):
                patch.setattr(store, name, self._breaking(call))

    def _breaking(self, call):
        def checked(*args, **options):
            if self.is_broken:
                raise Unreachable("the connection is lost")
            return call(*args, **options)

        return checked


def test_copy_that_is_interrupted_at_random_points_ends_with_the_same_tree(here, there):
    seed = random.randrange(1 << 32)
    print("seed", seed)
    chance = random.Random(seed)
    names = [f"d/{folder}/{name}" for folder in "ab" for name in "xyz"]
    tree = {name: chance.randbytes(chance.randrange(9_000)) for name in names} | {"d/e/": None}
    tree |= {"d/large": chance.randbytes(2 * LARGE), "d/a/larger": chance.randbytes(3 * LARGE)}
    plant(here, tree)
    size = sum(len(content or b"") for content in tree.values())
    for number, is_cut in enumerate((False, True, True)):
        watch, is_whole = Ends(chance.randrange(1, size // 2), is_cut), False
        with pytest.MonkeyPatch.context() as patch, contextlib.suppress(PaiError):
            watch.breaks(there.store, patch)
            done = copy(plan_copy([at(here, "d")], at(there, "d")), Rules(workers=3), watch)
            is_whole = not done.failed
        assert number or not is_whole  # later, there may be less to copy than the watch lets pass
    assert copy(plan_copy([at(here, "d")], at(there, "d"))).failed == ()
    assert seen(there) == seen(here)
    assert copy(plan_copy([at(here, "d")], at(there, "d"))).files == 0


KILLED = """
import os, sys
from openpai_tasks.storage.copying import resume
from openpai_tasks.storage.copying.copy import Rules, copy
from openpai_tasks.storage.copying.plan import plan_copy
from openpai_tasks.storage.copying.progress import Watch
from openpai_tasks.storage.local.store import LocalStore
from openpai_tasks.storage.location import Location

resume.LARGE, waits = int(sys.argv[3]), sys.argv[4:]

class Confined(LocalStore):
    pass  # no short path for small files, which leaves nothing to see

class Ends(Watch):
    left = 2

    def moved(self, count):
        self.left -= count > 0
        if self.left > 0:
            return
        if waits:
            print("waits", flush=True)
            sys.stdin.read()
        os.kill(os.getpid(), 9)

place = [Location(Confined(), path, path) for path in sys.argv[1:3]]
copy(plan_copy(place[:1], place[1]), Rules(workers=1), Ends())
"""


def start_copy(source: Path, target: Path, *waits: str) -> subprocess.Popen[str]:
    """Start a copy that kills itself, or waits, at its second piece; small files are one each."""
    command = [sys.executable, "-c", KILLED, str(source), str(target), str(LARGE), *waits]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def leave_part(source: Path, target: Path) -> str:
    """Kill a copy, and return the part that it leaves."""
    process = start_copy(source, target)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    (part,) = parts(target)
    return part


def parts(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*") if path.name.startswith(PART)]


@pytest.fixture
def folders(tmp_path):
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    for name in "abc":
        (source / name).write_bytes(os.urandom(5_000))
    return source, target


def copied(source: Path, target: Path) -> None:
    place = [at_path(path) for path in (source, target)]
    assert copy(plan_copy(place[:1], place[1])).failed == ()
    assert seen(place[0]) == {name: data for name, data in seen(place[1]).items() if PART not in name}


def at_path(path: Path) -> Location:
    return Location(LocalStore(), str(path), str(path))


def test_next_copy_removes_the_part_of_a_killed_one_at_once(folders):
    leave_part(*folders)
    copied(*folders)
    assert parts(folders[1]) == []


def test_part_of_a_running_copy_is_kept(folders):
    process = start_copy(*folders, "waits")
    assert process.stdout and process.stdout.readline() == "waits\n"
    (part,) = parts(folders[1])
    copied(*folders)
    found = cleaning.clean_parts([at_path(folders[1])])
    assert found.removed == () and [one.reason for one in found.kept] == ["a copy is writing it"]
    assert parts(folders[1]) == [part]
    process.communicate("")
    copied(*folders)
    assert parts(folders[1]) == []


def test_part_of_another_machine_is_kept_until_it_is_old(folders, tmp_path, monkeypatch):
    part = leave_part(*folders)
    target = at_path(folders[1])
    monkeypatch.setenv("OPENPAI_HOME", str(tmp_path / "elsewhere"))
    copied(*folders)
    kept = cleaning.clean_parts([target])
    assert kept.removed == () and "on another machine" in kept.kept[0].reason
    assert parts(folders[1]) == [part]
    would = cleaning.clean_parts([target], older_than=-1, preview=True)
    assert would.removed == (f"{folders[1]}/{part}",) and parts(folders[1]) == [part]
    assert cleaning.clean_parts([target], older_than=-1).removed == would.removed
    assert parts(folders[1]) == []


def test_part_that_another_copy_can_continue_is_kept_by_copies_and_removed_by_clean(folders):
    for name in "abc":  # all of them, as the file system decides which one is copied first
        (folders[0] / name).write_bytes(os.urandom(3 << 20))
    part = leave_part(*folders)
    put(LocalStore(), str(folders[1] / "other"), lambda: [b"x"])
    (folders[0] / "d").write_bytes(b"x")
    place = [at_path(path) for path in (folders[0] / "d", folders[1])]
    assert copy(plan_copy(place[:1], place[1])).files == 1
    assert parts(folders[1]) == [part]
    assert len(cleaning.clean_parts([place[1]]).removed) == 1 and parts(folders[1]) == []


def test_claims_leave_nothing_in_the_home_after_a_copy(folders, tmp_path):
    copied(*folders)
    assert list((tmp_path / "home" / "transfers").iterdir()) == []
    with claiming():
        named = [part_name(), part_name(claimed=False)]
        assert len(list((tmp_path / "home" / "transfers").iterdir())) == 1
    assert [len(name) - len(PART) for name in (*named, part_name())] == [24, 16, 16]
