"""Small files are unpacked into a local folder directly; the general transfer copies the others."""

from __future__ import annotations

import json
import os

import pytest

from openpai_tasks.sdk.files import packing
from openpai_tasks.storage.copying import copy as copying
from openpai_tasks.storage.copying import direct
from openpai_tasks.storage.copying.copy import Rules
from openpai_tasks.storage.copying.progress import Interrupted, Watch
from openpai_tasks.storage.location import Location
from openpai_tasks.storage.packing import index as indexes
from tests.storage.trees import at, plant, seen, umask

COUNT = 100
TREE = {
    "a/": None,
    "b/c/": None,
    **{
        f"{folder}{number:03}": bytes([number]) * number
        for number in range(COUNT)
        for folder in ("a/", "b/c/")
    },
    "top": b"at the top",
}


class Seen(Watch):
    """Adds up what it is shown."""

    def __init__(self, stop_after=None):
        super().__init__()
        self.files = self.bytes = self.moved_bytes = 0
        self.outcomes, self.copied, self._stop_after = [], None, stop_after

    def found(self, size):
        self.files, self.bytes = self.files + 1, self.bytes + size

    def moved(self, count):
        self.moved_bytes += count

    def ended(self, name, outcome, size):
        self.outcomes.append((name, outcome))
        if len(self.outcomes) == self._stop_after:
            self.stop()

    def interrupted(self, copied):
        self.copied = copied


@pytest.fixture
def packed(here):
    plant(at(here, "tree"), TREE)
    tree = at(here, "tree")
    packing.pack(tree, at(here, "set"), packing.packing_rules(tree, "tar", "8K"), Watch())
    return at(here, "set")


@pytest.fixture
def transfers(monkeypatch):
    """The paths of all files that the general transfer copies."""
    found, real = [], copying.transfer

    def noted(source, entry, *args):
        found.append(entry.path)
        return real(source, entry, *args)

    monkeypatch.setattr(copying, "transfer", noted)
    return found


def unpack(packed, here, watch=None, **rules):
    return packing.unpack(packed, at(here, "back"), Rules(**rules), watch or Watch())


def content(tree=TREE):
    return {name: data for name, data in tree.items() if data is not None}


def files_in(place):
    return {name: data for name, data in seen(place).items() if data is not None}


def leftovers(here):
    return [
        name for _, _, names in os.walk(at(here, "back").path) for name in names if name.startswith(".pai")
    ]


def test_new_folder_is_filled_directly(packed, here, transfers):
    watch = Seen()
    done = unpack(packed, here, watch)
    sizes = sum(map(len, content().values()))
    assert (done.files, done.bytes, done.skipped, done.failed) == (2 * COUNT + 1, sizes, 0, ())
    assert (watch.files, watch.bytes, watch.moved_bytes) == (2 * COUNT + 1, sizes, sizes)
    assert sorted(watch.outcomes) == [(f"/{name}", "copied") for name in sorted(content())]
    assert not transfers and files_in(at(here, "back")) == content() and not leftovers(here)


def test_empty_folder_is_filled_and_keeps_its_mode(packed, here, transfers):
    os.mkdir(at(here, "back").path, 0o700)
    unpack(packed, here)
    assert not transfers and files_in(at(here, "back")) == content()
    assert os.stat(at(here, "back").path).st_mode & 0o777 == 0o700


def test_modes_are_limited_by_the_umask(here):
    plant(at(here, "tree"), {"run.sh": b"#!", "in/file": b"x"})
    os.chmod(at(here, "tree/run.sh").path, 0o777)
    os.chmod(at(here, "tree/in").path, 0o577)
    packing.pack(
        at(here, "tree"), at(here, "set"), packing.packing_rules(at(here, "tree"), "tar", "1M"), Watch()
    )
    with umask(0o027):
        unpack(at(here, "set"), here)
    modes = {name: os.stat(at(here, f"back/{name}").path).st_mode & 0o777 for name in ("run.sh", "in")}
    assert modes == {"run.sh": 0o750, "in": 0o750}


def test_large_files_are_transferred(packed, here, transfers, monkeypatch):
    monkeypatch.setattr(direct, "SMALL", 90)
    watch = Seen()
    done = unpack(packed, here, watch)
    assert len(transfers) == 18
    assert (done.files, done.skipped, done.failed) == (2 * COUNT + 1, 0, ())
    assert files_in(at(here, "back")) == content()
    assert watch.moved_bytes == done.bytes == sum(map(len, content().values()))


def test_shards_without_an_index_are_unpacked(packed, here):
    os.unlink(packed.join(indexes.NAME).path)
    shards = Location(packed.store, packed.path + "/*.tar", packed.url + "/*.tar")
    assert unpack(shards, here).files == 2 * COUNT + 1
    assert files_in(at(here, "back")) == content()


def test_file_that_fails_once_is_transferred(packed, here, transfers, monkeypatch):
    real = os.open

    def fail_once(path, *args, **options):
        if str(path).startswith(".pai-part-") and not failed:
            failed.append(path)
            raise OSError("not now")
        return real(path, *args, **options)

    failed = []
    monkeypatch.setattr(os, "open", fail_once)
    done = unpack(packed, here)
    assert len(transfers) == 1 and (done.files, done.failed) == (2 * COUNT + 1, ())
    assert files_in(at(here, "back")) == content()


def rename_in_index(packed, old, new):
    path = packed.join(indexes.NAME).path
    with open(path) as file:
        head, *rows = map(json.loads, file)
    rows = [[new + row[0].removeprefix(old), *row[1:]] if row[0].startswith(old) else row for row in rows]
    with open(path, "w") as file:
        file.writelines(json.dumps(line) + "\n" for line in [head, *rows])


@pytest.mark.parametrize(("old", "count"), [("top", 1), ("a/", COUNT)])
def test_name_that_the_target_cannot_hold_fails_alone(packed, here, old, count):
    rename_in_index(packed, old, "n" * 300 + old.removeprefix("top").removeprefix("a"))
    done = unpack(packed, here)
    assert done.failed and all("name too long" in failure.reason for failure in done.failed)
    assert (done.files, done.skipped) == (2 * COUNT + 1 - count, 0)
    kept = {name: data for name, data in content().items() if not name.startswith(old)}
    assert files_in(at(here, "back")) == kept


def test_interrupted_unpack_is_continued(packed, here):
    watch = Seen(stop_after=50)
    with pytest.raises(Interrupted):
        unpack(packed, here, watch, workers=1)
    assert (watch.copied.files, watch.copied.interrupted) == (50, True)
    assert not leftovers(here)
    again = unpack(packed, here)
    assert again.skipped in (50, 51) and again.files == 2 * COUNT + 1 - again.skipped
    assert files_in(at(here, "back")) == content()


def test_preview_writes_nothing(packed, here):
    done = unpack(packed, here, preview=True)
    assert done.files == 2 * COUNT + 1 and here.store.stat(at(here, "back").path) is None


def test_link_in_the_target_is_not_entered(packed, here):
    plant(here, {"elsewhere/": None, "back/": None})
    os.symlink(at(here, "elsewhere").path, at(here, "back/a").path)
    done = unpack(packed, here)
    assert "which is not entered" in done.failed[0].reason and len(done.failed) == 1
    assert (done.files, done.skipped) == (COUNT + 1, 0)
    assert files_in(at(here, "elsewhere")) == {}


def test_existing_files_are_replaced_and_keep_their_modes(packed, here, transfers):
    plant(here, {"back/a/050": b"old", "back/other": b"mine"})
    os.chmod(at(here, "back/a/050").path, 0o640)
    done = unpack(packed, here)
    assert not transfers and (done.files, done.skipped) == (2 * COUNT + 1, 0)
    assert files_in(at(here, "back")) == {**content(), "other": b"mine"}
    assert os.stat(at(here, "back/a/050").path).st_mode & 0o777 == 0o640
    assert unpack(packed, here).skipped == 2 * COUNT + 1
