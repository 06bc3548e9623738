"""Copies that fail on the way: each file is complete or absent, and every failure is reported."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from openpai_tasks.errors import Denied, PathError, Unreachable
from openpai_tasks.storage import retry
from openpai_tasks.storage.copying.copy import Rules, copy
from openpai_tasks.storage.copying.plan import plan_copy, plan_sync
from openpai_tasks.storage.copying.progress import Interrupted, Watch
from openpai_tasks.storage.copying.transfer import put
from openpai_tasks.storage.local.store import LocalStore
from openpai_tasks.storage.location import Location, naming
from openpai_tasks.storage.parts import PART
from openpai_tasks.storage.store import check_name
from tests.storage.trees import at, plant, seen

CONTENT = bytes(range(256)) * 4096  # 1 MiB


class Faulty(LocalStore):
    """A remote store with a bad connection: the first ``times`` reads break after ``break_at`` bytes."""

    kind = "faulty"

    def __init__(self, root, break_at=500_000, times=0, error=Unreachable, damage=0, short=False):
        super().__init__(str(root))
        self.break_at, self.times, self.error, self.damage, self.short = break_at, times, error, damage, short
        self.reads = 0
        self.calls: dict[str, int] = {}

    def read(self, path, offset=0, length=None):
        self.reads += 1
        content = b"".join(super().read(path, offset, length))
        if self.reads <= self.times:
            yield content[: self.break_at]
            if not self.short:
                raise self.error(f"{path}: connection reset")
            return
        yield content

    def write(self, path, pieces, size=None):
        content = bytearray(b"".join(pieces))
        if self.damage:
            self.damage -= 1
            content[1000] ^= 1
        super().write(path, [bytes(content)], size)

    def stat(self, path):
        self.calls["stat"] = self.calls.get("stat", 0) + 1
        return super().stat(path)

    def list(self, path):
        self.calls["list"] = self.calls.get("list", 0) + 1
        return super().list(path)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(retry, "FIRST_PAUSE", 0.001)


@pytest.fixture
def bad(tmp_path):
    """Make a store with the given faults."""

    def make(**faults):
        (tmp_path / "bad").mkdir(exist_ok=True)
        return Location(Faulty(tmp_path / "bad", **faults), "/", "pai://lab/bad/")

    return make


def parts(place):
    return [entry.name for entry in place.store.list(place.path) if entry.name.startswith(PART)]


def test_broken_connection_is_retried(here, bad):
    source = bad(times=3)
    plant(source, {"f": CONTENT})
    copied = copy(plan_copy([at(source, "f")], here))
    assert (copied.files, copied.bytes, copied.failed) == (1, len(CONTENT), ())
    assert seen(here) == {"f": CONTENT} and source.store.reads == 4


@pytest.mark.parametrize("break_at", [0, 1, 500_000, len(CONTENT)])
def test_connection_that_stays_broken_leaves_no_file(here, bad, break_at):
    source = bad(times=99, break_at=break_at)
    plant(source, {"f": CONTENT})
    copied = copy(plan_copy([at(source, "f")], here))
    assert [(one.path, one.reason) for one in copied.failed] == [("/f", "connection reset")]
    assert seen(here) == {} and parts(here) == [] and source.store.reads == retry.TRIES


@pytest.mark.parametrize("error", [Denied, PathError])
def test_refusal_is_not_retried(here, bad, error):
    source = bad(times=99, error=error)
    plant(source, {"f": CONTENT})
    assert copy(plan_copy([at(source, "f")], here)).failed and source.store.reads == 1


def test_file_that_arrives_too_short_is_not_kept(here, bad):
    source = bad(times=99, short=True)
    plant(source, {"f": CONTENT})
    assert "got 500000 of 1048576 bytes" in copy(plan_copy([at(source, "f")], here)).failed[0].reason
    assert seen(here) == {}
    source.store.times = 0
    assert copy(plan_copy([at(source, "f")], here)).failed == ()


def test_damaged_file_is_detected_and_sent_again(here, bad):
    plant(here, {"f": CONTENT})
    target = bad(damage=1)
    assert copy(plan_copy([at(here, "f")], target)).failed == ()
    assert seen(target) == {"f": CONTENT}


def test_file_that_is_always_damaged_never_replaces_the_target(here, bad):
    plant(here, {"f": CONTENT})
    target = bad(damage=99)
    plant(Location(LocalStore(), target.store.root, ""), {"f": b"what was there before"})
    assert "damaged in transit" in copy(plan_copy([at(here, "f")], target)).failed[0].reason
    assert seen(target) == {"f": b"what was there before"} and parts(target) == []
    with pytest.raises(PathError, match="damaged in transit"):
        put(target.store, "/g", lambda: [CONTENT])
    assert parts(target) == []


def test_one_failure_does_not_stop_the_others(here, tmp_path):
    plant(here, {f"d/{number}": b"x" for number in range(100)})
    os.mkfifo(f"{here.path}/d/pipe")
    target = Location(LocalStore(str(tmp_path)), "/to", "pai://lab/s/to")
    copied = copy(plan_copy([at(here, "d")], target))
    assert copied.files == 100 and [Path(one.path).name for one in copied.failed] == ["pipe"]
    assert "neither a file nor a folder" in copied.failed[0].reason


def test_a_failure_names_the_file_at_the_target_and_its_storage(here, tmp_path):
    plant(here, {"d/a.txt": b"a", "d/b": b"b", "d/c/x": b"x"})
    (tmp_path / "to" / "b").mkdir(parents=True)
    (tmp_path / "to" / "c").touch()
    target = Location(Refusing(str(tmp_path / "to")), "/", "pai://lab/s/")
    copied = copy(plan_copy([at(here, "d/.")], target))
    assert {Path(one.path).name: one.reason for one in copied.failed} == {
        "a.txt": "pai://lab/s/a.txt: no space for it",
        "b": "a folder is at pai://lab/s/b, so the file cannot be put there",
        "c": "a file is at pai://lab/s/c, so the folder cannot be put there",
    }
    with pytest.raises(PathError, match=r"^pai://lab/s/f: no space for it$"), naming(target):
        put(target.store, "/f", lambda: [b"f"])


class Refusing(LocalStore):
    """A store that refuses every write, and names the path."""

    def write(self, path, pieces, size=None):
        raise PathError(f"{path}: no space for it")


def test_error_for_a_folder_that_cannot_be_created_names_the_storage(here, tmp_path):
    plant(here, {"f": b"f", "d/": None})
    target = Location(LocalStore(str(tmp_path), read_only=True), "/", "pai://lab/s/")
    with pytest.raises(Denied, match=r"^pai://lab/s/k: the storage is read-only") as raised:
        copy(plan_copy([at(here, "f")], at(target, "k/")))
    assert raised.value.status == 403
    copied = copy(plan_copy([at(here, "d")], at(target, "k")))
    assert [one.reason for one in copied.failed] == ["pai://lab/s/k: the storage is read-only for you"]


@pytest.mark.parametrize("files, threads", [(1, 1), (3, 3), (40, 8)])
def test_there_are_no_more_threads_than_files(here, bad, files, threads):
    class Noting(Watch):
        most = 0

        def moved(self, count):
            self.most = max(self.most, len(set(threading.enumerate()) - before))

    plant(here, {f"d/{number}": b"x" for number in range(files)})
    before, watch = set(threading.enumerate()), Noting()
    assert copy(plan_copy([at(here, "d")], at(here, "t")), Rules(workers=8), watch).files == files
    assert 0 < watch.most <= threads


def test_unexpected_error_in_a_store_ends_the_copy(here, bad):
    source = bad(times=99, error=RuntimeError)
    plant(source, {f"d/{number}": CONTENT for number in range(20)})
    with pytest.raises(RuntimeError, match="connection reset"):
        copy(plan_copy([at(source, "d")], here))
    assert seen(here) == {}


def test_copy_can_be_interrupted_between_two_pieces(here, tmp_path):
    class Impatient(Watch):
        def moved(self, count):
            self.stop()

        def interrupted(self, copied):
            self.copied = copied

    plant(here, {f"d/{number}": CONTENT * 3 for number in range(20)})
    target = Location(LocalStore(), str(tmp_path / "to"), "")
    before = set(threading.enumerate())
    watch = Impatient()
    with pytest.raises(Interrupted):
        copy(plan_copy([at(here, "d")], target), Rules(workers=2), watch)
    assert watch.copied.interrupted and watch.copied.files == len(seen(target)) < 20
    assert parts(target) == [] and not [
        content for content in seen(target).values() if content != CONTENT * 3
    ]
    assert set(threading.enumerate()) <= before


def test_watch_is_notified_of_every_byte_and_file(here, bad):
    class Noting(Watch):
        files, bytes, ends = 0, 0, ()

        def found(self, size):
            self.files += 1

        def moved(self, count):
            self.bytes += count

        def ended(self, name, outcome, size):
            self.ends += ((name, outcome, size),)

    source, watch = bad(times=1), Noting()
    plant(source, {"f": CONTENT})
    copy(plan_copy([at(source, "f")], here), watch=watch)
    assert (watch.files, watch.bytes, watch.ends) == (1, len(CONTENT), (("/f", "copied", len(CONTENT)),))


def test_watch_finds_as_many_files_as_end_also_if_some_cannot_be_copied(here):
    class Counting(Watch):
        files, ended_files = 0, 0

        def found(self, size):
            self.files += 1

        def ended(self, name, outcome, size):
            self.ended_files += 1

    plant(here, {"d/f": CONTENT})
    os.mkfifo(os.path.join(here.path, "d", "pipe"))
    watch = Counting()
    assert len(copy(plan_copy([at(here, "d")], at(here, "t")), watch=watch).failed) == 1
    assert watch.files == watch.ended_files == 2


def test_sync_of_unchanged_files_costs_one_listing_per_folder(here, bad):
    plant(here, {f"{folder}/{number}": b"x" for folder in "abc" for number in range(100)})
    target = bad()
    copy(plan_sync(here, target))
    target.store.calls.clear()
    again = copy(plan_sync(here, target))
    assert (again.skipped, again.files) == (300, 0)
    assert target.store.calls == {"list": 4, "stat": 2}  # only the target itself is checked, no file


def test_sync_deletes_nothing_when_something_failed(here, bad):
    source = bad(times=99, error=Denied)
    plant(source, {"f": CONTENT})
    plant(here, {"old": b"old"})
    assert copy(plan_sync(source, here), Rules(delete=True)).removed == 0
    assert seen(here) == {"old": b"old"}


def test_copy_does_not_follow_a_symlink_out_of_the_target(here, tmp_path):
    plant(here, {"d/s/y": b"y", "d/x": b"x", "to/": None})
    outside = tmp_path / "outside"
    outside.mkdir()
    os.symlink(outside, f"{here.path}/to/s")
    copied = copy(plan_copy([at(here, "d")], at(here, "to")))
    assert "is not entered" in copied.failed[0].reason and list(outside.iterdir()) == []


def test_symlink_at_the_target_is_replaced_and_not_written_through(here):
    plant(here, {"f": b"new", "victim": b"kept"})
    os.symlink("victim", f"{here.path}/link")
    copy(plan_copy([at(here, "f")], at(here, "link")))
    assert seen(here) == {"f": b"new", "victim": b"kept", "link": b"new"}


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/etc/passwd", "../x", "a\0b"])
def test_listed_name_that_is_not_a_plain_file_name_is_an_error(name):
    with pytest.raises(PathError, match="cannot be a file's"):
        check_name(name, "pai://lab/home/")


def test_copied_programs_stay_executable(here):
    plant(here, {"run.sh": b"#!/bin/sh\n", "f": b""})
    os.chmod(f"{here.path}/run.sh", 0o755)
    copy(plan_copy([at(here, "run.sh"), at(here, "f")], at(here, "to/")))
    assert os.access(f"{here.path}/to/run.sh", os.X_OK) and not os.access(f"{here.path}/to/f", os.X_OK)


def test_file_that_grows_while_it_is_copied_arrives_complete(here, bad):
    class Growing(Faulty):
        def read(self, path, offset=0, length=None):
            if not self.reads:
                with open(self.root + path, "ab") as file:
                    file.write(b"more")
            yield from super().read(path, offset, length)

    source = bad()
    source = Location(Growing(source.store.root), "/", source.url)
    plant(source, {"f": CONTENT})
    assert copy(plan_copy([at(source, "f")], here)).failed == ()
    assert seen(here) == {"f": CONTENT + b"more"}
