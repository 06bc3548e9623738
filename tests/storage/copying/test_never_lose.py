"""Copies that could lose a file: symlinks, deletion, parts of other copies, modes, files that change."""

from __future__ import annotations

import errno
import os
import secrets
import stat
import time

import pytest

from openpai_tasks.errors import PathError
from openpai_tasks.storage import retry
from openpai_tasks.storage.copying import transfer as stale
from openpai_tasks.storage.copying import walk
from openpai_tasks.storage.copying.claims import part_name
from openpai_tasks.storage.copying.copy import Rules, copy
from openpai_tasks.storage.copying.plan import plan_copy, plan_sync
from openpai_tasks.storage.copying.transfer import put
from openpai_tasks.storage.local.store import LocalStore
from openpai_tasks.storage.location import Location, locate
from openpai_tasks.storage.parts import PART
from openpai_tasks.storage.store import StorageSpec
from tests.storage.trees import at, plant, seen, umask

DELETE = Rules(delete=True)
ROOTS = ("pai://lab/home", "pai://lab/home/")


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(retry, "FIRST_PAUSE", 0.001)


@pytest.fixture
def usual_umask():
    with umask(0o022):
        yield


class Home:
    """A book with one storage."""

    def __init__(self, folder):
        self.store = LocalStore(folder)

    def opened(self, cluster, storage):
        return StorageSpec(cluster, storage, "local", {}), self.store

    def cluster_url(self, path):
        return ""


def mode(place, name):
    return stat.S_IMODE(os.lstat(f"{place.path}/{name}").st_mode)


def reasons(copied):
    return [failure.reason for failure in copied.failed]


def test_links_to_folders_with_links_to_folders_end(here, monkeypatch):
    monkeypatch.setattr(walk, "MOST_LINKS", 3)
    for number in range(30):
        plant(here, {f"s/{number}/f": b""})
        for name in "xyz" if number else ():
            os.symlink(f"../{number}", f"{here.path}/s/{number - 1}/{name}")
    copied = copy(plan_sync(at(here, "s"), at(here, "t")))
    assert {*reasons(copied)} == {"more than 3 links lead to this folder"}
    assert copied.files <= 30 * 4  # itself, and by each of three links


def test_symlink_to_a_folder_in_the_target_is_not_entered(here):
    plant(here, {"s/latest/new": b"n", "s/x": b"x", "t/run-3/kept": b"k"})
    os.symlink("run-3", f"{here.path}/t/latest")
    copied = copy(plan_sync(at(here, "s"), at(here, "t")), DELETE)
    assert "not entered" in reasons(copied)[0] and copied.removed == 0
    assert seen(at(here, "t/run-3")) == {"kept": b"k"} and at(here, "t").store.stat(f"{here.path}/t/x")


def test_symlink_with_the_name_of_the_source_is_not_entered(here):
    plant(here, {"d/x": b"x", "t/other/": None})
    os.symlink("other", f"{here.path}/t/d")
    assert "not entered" in reasons(copy(plan_copy([at(here, "d")], at(here, "t/"))))[0]
    assert seen(at(here, "t/other")) == {}


def test_target_itself_may_be_a_symlink(here):
    plant(here, {"s/x": b"x", "real/old": b"o"})
    os.symlink("real", f"{here.path}/t")
    assert copy(plan_sync(at(here, "s"), at(here, "t")), DELETE).failed == ()
    assert seen(at(here, "real")) == {"x": b"x"}


def test_sync_deletes_a_surplus_symlink_but_not_its_target(here):
    plant(here, {"s/x": b"x", "t/": None, "other/kept": b"k"})
    os.symlink("../other", f"{here.path}/t/link")
    assert copy(plan_sync(at(here, "s"), at(here, "t")), DELETE).removed == 1
    assert seen(at(here, "other")) == {"kept": b"k"}


def test_sync_does_not_delete_its_own_source(here):
    plant(here, {"a/b/x": b"x", "a/y": b"y"})
    with pytest.raises(PathError, match="remove the source"):
        copy(plan_sync(at(here, "a/b"), at(here, "a")), DELETE)
    assert seen(here) == {"a/b/x": b"x", "a/y": b"y"}
    assert copy(plan_sync(at(here, "a/b"), at(here, "a"))).files == 1


@pytest.mark.parametrize(
    "text", ["/", "//", "/./", "pai://lab/home//", "pai://lab/home//x", "none//x", *ROOTS]
)
@pytest.mark.parametrize("preview", [False, True])
def test_sync_with_delete_refuses_a_target_that_an_empty_variable_may_cause(here, text, preview):
    plant(here, {"s/x": b"x", "home/kept": b"k"})
    target = locate(text, Home(f"{here.path}/home"))
    with pytest.raises(PathError, match=r"empty name|the root of"):
        copy(plan_sync(at(here, "s"), target), Rules(delete=True, preview=preview))
    assert seen(at(here, "home")) == {"kept": b"k"}


def test_sync_with_delete_to_a_whole_storage_needs_a_final_dot(here):
    plant(here, {"s/x": b"x", "home/old": b"o"})
    target = locate("pai://lab/home/.", Home(f"{here.path}/home"))
    assert copy(plan_sync(at(here, "s"), target), DELETE).removed == 1


def test_copy_with_delete_needs_a_single_source(here):
    plant(here, {"a/x": b"x", "b/y": b"y", "t/": None})
    with pytest.raises(PathError, match="one source"):
        copy(plan_copy([at(here, "a/."), at(here, "b/.")], at(here, "t")), DELETE)


def part_begun(days):
    """The name of a part that was begun the given number of days ago."""
    return f"{PART}{int(time.time() - days * 86400):08x}{secrets.token_hex(4)}"


def test_parts_are_not_copied_and_are_removed_a_day_after_they_last_grew(here):
    old, grows, live = part_begun(3), part_begun(3), part_name()
    plant(here, {"d/x": b"x", f"d/{live}": b"", f"t/d/{live}": b"live"})
    plant(at(here, "t/d"), {old: b"", grows: b"more"})
    here.store.set_mtime(f"{here.path}/t/d/{live}", 1_000)  # it has its source's time already
    here.store.set_mtime(f"{here.path}/t/d/{old}", int((time.time() - 1.1 * 86400) * 1000))
    assert copy(plan_copy([at(here, "d")], at(here, "t/"))).files == 1
    assert seen(at(here, "t/d")) == {"x": b"x", live: b"live", grows: b"more"}


@pytest.mark.parametrize("days, stays", [(3, True), (8, False)])
def test_part_whose_time_does_not_show_when_it_grew_is_kept_for_a_week(here, days, stays):
    part = part_begun(days)
    plant(here, {"d/x": b"x", f"t/d/{part}": b"p"})
    here.store.set_mtime(f"{here.path}/t/d/{part}", int((time.time() - days * 86400) * 1000))
    copy(plan_copy([at(here, "d")], at(here, "t/d")))
    assert (part in seen(at(here, "t/d"))) == stays


def test_a_copy_of_single_files_removes_stale_parts_too(here):
    old, live = part_begun(9), part_name()
    plant(here, {"x": b"x", "y": b"y", f"t/{old}": b"p", f"t/{live}": b"live"})
    here.store.set_mtime(f"{here.path}/t/{old}", int((time.time() - 9 * 86400) * 1000))
    assert copy(plan_copy([at(here, "x"), at(here, "y")], at(here, "t")), Rules(preview=True)).files == 2
    assert old in seen(at(here, "t"))
    assert copy(plan_copy([at(here, "x"), at(here, "y")], at(here, "t"))).files == 2
    assert seen(at(here, "t")) == {"x": b"x", "y": b"y", live: b"live"}


def test_copy_of_single_files_lists_the_target_folder_once_and_only_in_part(here, monkeypatch):
    class Listed(LocalStore):
        listings = names = 0

        def list(self, path):
            self.listings += 1
            for entry in super().list(path):
                self.names += 1
                yield entry

    monkeypatch.setattr(stale, "LOOKED_AT", 5)
    plant(here, {"x": b"x", "y": b"y", **{f"t/{number}": b"" for number in range(20)}})
    target = Location(Listed(), f"{here.path}/t", "t")
    assert copy(plan_copy([at(here, "x"), at(here, "y")], target)).files == 2
    assert (target.store.listings, target.store.names) == (1, 5)


def test_names_that_only_begin_like_a_part_are_ordinary_files(here):
    mine = {f"{PART}mine": b"m", f"{PART}00000000000000001": b"n", f"{PART}0000000000000000/x": b"x"}
    plant(at(here, "d"), mine)
    plant(at(here, "t/d"), {f"{PART}old": b"o"})
    assert copy(plan_copy([at(here, "d")], at(here, "t/d"))).files == 3
    assert seen(at(here, "t/d")) == {**mine, f"{PART}old": b"o"}


@pytest.mark.parametrize("preview", [False, True])
def test_two_sources_with_a_file_for_the_same_target_path_do_not_race(here, preview):
    plant(here, {"a/x": b"first", "a/s/y": b"1", "b/x": b"second", "b/s/y": b"2", "b/z": b"z", "t/": None})
    copied = copy(plan_copy([at(here, "a/."), at(here, "b/.")], at(here, "t/")), Rules(preview=preview))
    assert copied.files == 3 and sorted(failure.path for failure in copied.failed) == [
        at(here, "b/s/y").path,
        at(here, "b/x").path,
    ]
    assert preview or seen(at(here, "t")) == {"x": b"first", "s/y": b"1", "z": b"z"}


def test_folder_and_file_for_the_same_target_path_do_not_race(here):
    plant(here, {"a/x": b"first", "b/x/y": b"2", "t/": None})
    copied = copy(plan_copy([at(here, "a/."), at(here, "b/.")], at(here, "t/")))
    assert (copied.files, len(copied.failed)) == (1, 1) and seen(at(here, "t")) == {"x": b"first"}


@pytest.mark.usefixtures("usual_umask")
def test_new_file_gets_the_mode_of_the_source_minus_the_umask(here):
    plant(here, {"d/secret": b"s", "d/open": b"o", "d/run": b"r", "d/in/x": b"x"})
    for name, bits in {"secret": 0o600, "open": 0o666, "run": 0o777, "in": 0o700}.items():
        os.chmod(f"{here.path}/d/{name}", bits)
    copy(plan_copy([at(here, "d")], at(here, "t")))
    found = {name: mode(at(here, "t"), name) for name in ("secret", "open", "run", "in")}
    assert found == {"secret": 0o600, "open": 0o644, "run": 0o755, "in": 0o700}


@pytest.mark.usefixtures("usual_umask")
def test_existing_files_and_folders_keep_their_mode(here):
    plant(here, {"d/f": b"new", "t/d/f": b"older", "d/g": b"g"})
    os.chmod(f"{here.path}/d/f", 0o644)
    os.chmod(f"{here.path}/t/d/f", 0o640)
    os.chmod(f"{here.path}/t/d", 0o700)
    assert copy(plan_copy([at(here, "d")], at(here, "t/d"))).files == 2
    assert (mode(here, "t/d/f"), mode(here, "t/d")) == (0o640, 0o700)
    put(here.store, f"{here.path}/t/d/f", lambda: [b"newer"])
    put(here.store, f"{here.path}/t/h", lambda: [b"h"])
    assert (mode(here, "t/d/f"), mode(here, "t/h")) == (0o640, 0o644)


@pytest.mark.usefixtures("usual_umask")
def test_nobody_else_can_read_a_part(here):
    def pieces():
        yield b"one"
        (part,) = [name for name in os.listdir(here.path) if name.startswith(PART)]
        assert mode(here, part) == 0o600

    put(here.store, f"{here.path}/f", pieces)
    assert mode(here, "f") == 0o644


def test_symlink_to_the_same_content_is_replaced(here):
    plant(here, {"s/f": b"1", "kept": b"1", "t/": None})
    os.symlink("../kept", f"{here.path}/t/f")
    for name in ("s/f", "kept"):
        here.store.set_mtime(f"{here.path}/{name}", 5_000)
    assert copy(plan_sync(at(here, "s"), at(here, "t")), Rules(checksum=True)).files == 1
    assert not os.path.islink(f"{here.path}/t/f") and seen(at(here, "t")) == {"f": b"1"}


@pytest.mark.parametrize("leads", ["t", ".", "t/in", "t/in/f"])
def test_symlink_in_the_source_that_points_to_the_target_fails(here, leads):
    plant(here, {"s/x": b"x", "t/in/f": b"f"})
    os.symlink(f"{here.path}/{leads}", f"{here.path}/s/link")
    copied = copy(plan_sync(at(here, "s"), at(here, "t")))
    assert copied.files == 1 and len(copied.failed) == 1
    assert seen(at(here, "t")) == {"x": b"x", "in/f": b"f"}


def test_a_pipe_at_the_target_is_not_replaced(here):
    plant(here, {"s/pipe": b"x", "t/": None})
    os.mkfifo(f"{here.path}/t/pipe")
    for target in ("t", "t/pipe"):
        copied = copy(plan_copy([at(here, "s/pipe")], at(here, target)))
        assert "neither a file nor a folder" in reasons(copied)[0]
    with pytest.raises(PathError, match="neither a file nor a folder"):
        put(here.store, f"{here.path}/t/pipe", lambda: [b"x"])
    assert stat.S_ISFIFO(os.lstat(f"{here.path}/t/pipe").st_mode)


def test_a_file_that_changes_while_it_is_read_is_read_again(here):
    class Changing(LocalStore):
        asked: tuple[int | None, ...] = ()

        def read(self, path, offset=0, length=None):
            yield from super().read(path, offset, length)
            if not self.asked:
                with open(path, "wb") as file:
                    file.write(b"new!!")
                os.utime(path, (1, 1))
            self.asked += (length,)

    store = Changing()
    plant(here, {"f": b"old!!", "t/": None})
    copied = copy(plan_copy([Location(store, f"{here.path}/f", "f")], at(here, "t")))
    assert (copied.files, copied.bytes, copied.failed) == (1, 5, ())
    assert store.asked == (5, 5) and seen(at(here, "t")) == {"f": b"new!!"}


def test_modification_time_of_zero_is_kept(here):
    plant(here, {"f": b"1", "t/": None})
    here.store.set_mtime(f"{here.path}/f", 0)
    copy(plan_copy([at(here, "f")], at(here, "t")))
    assert here.store.stat(f"{here.path}/t/f").mtime_ms == 0
    assert copy(plan_copy([at(here, "f")], at(here, "t"))).skipped == 1


def test_a_part_that_a_failed_copy_could_not_remove_is_removed_by_the_next_one(here, monkeypatch):
    """Found by ``inv endure --engine process --seed 72110``."""
    plant(here, {"s": b"new"})

    def failing(call):
        def fail(path, *more, **options):
            if PART in os.fspath(path):
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return call(path, *more, **options)

        return fail

    with monkeypatch.context() as broken:
        for name in ("rename", "replace", "unlink"):
            broken.setattr(os, name, failing(getattr(os, name)))
        assert len(reasons(copy(plan_copy([at(here, "s")], at(here, "d/"))))) == 1
    left = os.listdir(f"{here.path}/d")
    assert left and all(name.startswith(PART) for name in left)
    copy(plan_copy([at(here, "s")], at(here, "d/")))
    assert os.listdir(f"{here.path}/d") == ["s"]
