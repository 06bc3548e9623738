"""A set replaces another completely or not at all, and no other files are touched."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import threading
import time

import pytest

from openpai_tasks.errors import PaiError, PathError
from openpai_tasks.storage.packing import index as indexes
from openpai_tasks.storage.packing.target import WHAT
from openpai_tasks.storage.parts import PART
from tests.storage.packing.test_packing import Once, index_of, names_in, packed, unpacked
from tests.storage.stores import STORES, local
from tests.storage.trees import at, plant, seen

OLD = {f"old/{number}.txt": b"old %d" % number for number in range(2)}
NEW = {f"new/{number}.txt": b"new %d" % number for number in range(4)}
CHANGES = ("write", "write_checked", "write_whole", "append", "rename", "remove")
LONG_AGO = "00000001"


class Killed(BaseException):
    """Simulates a killed process: nothing happens after it."""


@pytest.fixture
def trees(here):
    plant(at(here, "one"), OLD)
    plant(at(here, "two"), NEW)
    return at(here, "one"), at(here, "two")


@pytest.fixture(params=["local", "s3"])
def store(request, tmp_path_factory):
    """A store that renames files into place, and one where they appear under their final name."""
    with STORES[request.param](tmp_path_factory.mktemp("there")) as location:
        yield location


class Breaking:
    """Allows a number of changes to a store; then it fails, once or, as after a kill, for good."""

    def __init__(self, monkeypatch, store, only):
        self.left, self._forever, self._only = None, False, only
        for name in CHANGES:
            if hasattr(type(store), name):
                monkeypatch.setattr(type(store), name, self._wrapped(getattr(type(store), name)))

    def at(self, change, forever):
        self.left, self._forever = change, forever

    def off(self):
        self.left = None

    def _wrapped(self, real):
        def act(store, path, *args, **kwargs):
            if store is self._only and self.left is not None:
                self.left -= 1
                if self.left < 0 and self._forever:
                    raise Killed
                if self.left == -1:
                    raise PathError(f"{path}: No space left on device")
            return real(store, path, *args, **kwargs)

        return act


def parts_in(place):
    return [entry for entry in place.store.list(place.path) if entry.name.startswith(PART)]


@pytest.mark.parametrize("format", ["tar", "har"])
@pytest.mark.parametrize("forever", [True, False], ids=["killed", "failing"])
def test_old_or_new_set_is_complete_whenever_a_replacing_pack_fails(
    trees, store, tmp_path, monkeypatch, forever, format
):
    breaking = Breaking(monkeypatch, store.store, store.store)
    ended, change = [], 0
    while not ended or ended[-1] != "in peace":
        target = at(store, f"set{change}.har")
        packed(trees[0], target, shard_size="2K", name="x", format=format)
        before = names_in(target)
        breaking.at(change, forever)
        try:
            packed(trees[1], target, shard_size="2K", name="x", format=format, replace=True)
            ended.append("in peace" if breaking.left >= 0 else "new")
        except (Killed, PaiError):
            ended.append("old")
        breaking.off()
        with local(tmp_path / f"back{change}") as back:
            unpacked(target, back)
            now = seen(back)
        may_be_new = ended[-1] != "old" or forever or format == "har"  # whose files for Hadoop come last
        assert now == OLD or (now == NEW and may_be_new), change
        if now == OLD and not forever:
            assert names_in(target) == before and len(parts_in(target)) <= 1, change
        packed(trees[1], target, shard_size="2K", name="x", format=format, replace=True)  # it can be repeated
        with local(tmp_path / f"again{change}") as again:
            unpacked(target, again)
            assert seen(again) == NEW
        change += 1
    assert ended.count("old") > 3


def test_leftovers_of_a_killed_pack_are_removed_by_a_later_pack_once_old(trees, here, monkeypatch):
    target = at(here, "set")
    packed(trees[0], target, name="x")
    old = names_in(target)
    real = type(here.store).rename

    def killed_at_the_switch(store, source, name):
        if name.endswith(indexes.NAME):
            raise Killed
        return real(store, source, name)

    with monkeypatch.context() as patch:
        patch.setattr(type(here.store), "rename", killed_at_the_switch)
        patch.setattr(type(here.store), "remove", lambda *args, **kwargs: (_ for _ in ()).throw(Killed()))
        with pytest.raises(Killed):
            packed(trees[1], target, name="x", replace=True)
    (left,) = {*names_in(target)} - {*old}
    assert index_of(target)[0]["shards"][0]["name"] in old
    packed(trees[1], target, name="x", replace=True)
    assert len(names_in(target)) == 3 and left in names_in(
        target
    )  # it could belong to a pack that still runs
    for part in parts_in(target):
        os.utime(part.path, (1, 1))
        os.rename(part.path, part.path.replace(part.name[len(PART) :][:8], LONG_AGO))
    packed(trees[0], target, name="x", replace=True)
    assert left not in names_in(target) and len(names_in(target)) == 2 and parts_in(target) == []


def test_other_files_of_the_user_are_refused_by_name_and_never_removed(trees, there):
    target, tar = at(there, "mine"), "backup-20260101.tar"
    for name in (tar, "photos-000000.tar", "photos-0123456789-000000.tar", "a.seq", indexes.NAME):
        mine = {name: b"years of work"}
        plant(target, mine)
        for replace in (False, True):
            with pytest.raises(PathError, match=name) as raised:
                packed(trees[0], target, replace=replace)
            assert "--replace" not in str(raised.value) and "\n" not in str(raised.value)
        assert seen(target) == mine
        there.store.remove(target.join(name).path)


def test_other_files_beside_a_set_are_refused(trees, here):
    packed(trees[0], at(here, "set"))
    plant(at(here, "set"), {"backup-20260101.tar": b"years"})
    before = seen(at(here, "set"))
    with pytest.raises(PathError, match=r"contains 'backup-20260101\.tar', which no index there names"):
        packed(trees[1], at(here, "set"), replace=True)
    assert seen(at(here, "set")) == before


def test_note_of_a_pack_does_not_cover_other_files(trees, here):
    packed(trees[0], at(here, "set"))
    note = {"what": WHAT, "begins": "one-0123456789-", "replaces": []}
    mine = {"one-0123456789-extra.tar": b"mine", "one-9999999999-000000.tar": b"mine"}
    for name, content in mine.items():
        plant(at(here, "set"), {f"{PART}{LONG_AGO}00000000": json.dumps(note).encode(), name: content})
        with pytest.raises(PathError, match=name):
            packed(trees[1], at(here, "set"), replace=True)
        os.unlink(at(here, f"set/{name}").path)


def test_set_with_other_shard_names_is_replaced_according_to_its_index(trees, here):
    packed(trees[0], at(here, "set"))
    head, rows = index_of(at(here, "set"))
    os.rename(at(here, f"set/{head['shards'][0]['name']}").path, at(here, "set/plain.tar").path)
    head["shards"][0]["name"] = "plain.tar"
    plant(at(here, "set"), {indexes.NAME: "".join(json.dumps(row) + "\n" for row in (head, *rows)).encode()})
    packed(trees[1], at(here, "set"), replace=True)
    assert "plain.tar" not in names_in(at(here, "set")) and len(names_in(at(here, "set"))) == 2


def test_repacked_tree_replaces_its_old_shards_under_new_names(trees, here):
    target = at(here, "set")
    packed(trees[0], target)
    first = names_in(target)
    plant(trees[0], {"old/0.txt": b"OLD 0"})  # same size and same time as before
    entry = index_of(target)[1][1]
    os.utime(at(trees[0], "old/0.txt").path, ns=(0, entry[5] * 10**6))
    packed(trees[0], target, replace=True)
    assert not {*names_in(target)} & {*first} - {indexes.NAME} and len(names_in(target)) == 2
    unpacked(target, at(here, "back"))
    assert seen(at(here, "back"))["old/0.txt"] == b"OLD 0"


@contextlib.contextmanager
def two_of(kind, folder):
    """Open the same folder twice, as two processes would, without shared state of uploads."""
    with STORES[kind](folder) as one, STORES[kind](folder) as two:
        yield one, two


@pytest.fixture
def large(here):
    plant(at(here, "large"), {"a": b"1", "big": bytes(3 << 20)})
    return at(here, "large")


@pytest.mark.parametrize("kind", ["local", "s3", "azure_blob"])
@pytest.mark.parametrize("is_same", [True, False], ids=["same tree", "another tree"])
def test_last_of_two_concurrent_packs_wins_completely(trees, large, kind, is_same, tmp_path):
    with two_of(kind, tmp_path) as (there, beside), local(tmp_path / "back") as back:
        target, other = at(there, "set"), large if is_same else trees[1]
        packed(trees[0], target, name="x")
        inner = Once(lambda: packed(other, at(beside, "set"), name="x", replace=True))
        packed(large, target, inner, name="x", replace=True)
        unpacked(target, back)
        assert seen(back) == seen(large)
        assert len(names_in(target)) == 2 and parts_in(target) == []


@pytest.mark.parametrize("kind", ["local", "s3", "azure_blob"])
def test_failing_pack_removes_nothing_of_a_pack_that_ended_meanwhile(trees, large, kind, tmp_path):
    def ends_and_stops():
        packed(large, at(beside, "set"), name="x", replace=True)
        watch.stop()

    with two_of(kind, tmp_path) as (there, beside), local(tmp_path / "back") as back:
        target = at(there, "set")
        packed(trees[0], target, name="x")
        watch = Once(ends_and_stops)
        with pytest.raises(PaiError):
            packed(large, target, watch, name="x", replace=True)
        unpacked(target, back)
        assert seen(back) == seen(large) and len(names_in(target)) == 2


def test_concurrent_packs_and_a_reader_never_mix_sets(trees, here):
    target, ended = at(here, "set"), threading.Event()
    packed(trees[0], target, shard_size="2K", name="x")
    mixed, whole = [], []

    def pack_on(tree):
        for number in itertools.count():
            if number >= 8 and whole:
                return
            with contextlib.suppress(PaiError):  # the other pack interfered, and that was reported
                packed(tree, target, shard_size="2K", name="x", replace=True)
            time.sleep(number / 500)  # longer each time, so that a slow reader gets a chance

    workers = [threading.Thread(target=pack_on, args=(tree,)) for tree in trees]
    for worker in workers:
        worker.start()
    threading.Thread(target=lambda: [*(worker.join() for worker in workers), ended.set()]).start()
    number = 0
    while not ended.is_set():
        number += 1
        try:
            unpacked(target, at(here, f"back{number}"))
        except (PaiError, AssertionError):
            continue  # it was replaced while it was read, and that was reported
        whole.append(number)
        if seen(at(here, f"back{number}")) not in (OLD, NEW):
            mixed.append(number)
    assert mixed == [] and whole
    unpacked(target, at(here, "last"))
    assert seen(at(here, "last")) in (OLD, NEW)
