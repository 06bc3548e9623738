"""A tree is packed into shards and an index, in any store, and unpacked to the same tree."""

from __future__ import annotations

import json
import os
import pickle
import random
import re

import pytest

from openpai_tasks.errors import ConfigError, NotFound, PaiError, PathError
from openpai_tasks.sdk.files import packing
from openpai_tasks.sdk.files.dataset import PackedDataset
from openpai_tasks.storage.copying.copy import Rules
from openpai_tasks.storage.copying.progress import Interrupted, Watch
from openpai_tasks.storage.hdfs.store import HdfsStore
from openpai_tasks.storage.location import Location, locate
from openpai_tasks.storage.packing import index as indexes
from openpai_tasks.storage.packing.index import Index, Names, Row, Shard
from openpai_tasks.storage.packing.members import PackMember, split
from openpai_tasks.storage.packing.pack import MOST, cut
from openpai_tasks.storage.parts import is_part
from tests.storage.stores import local
from tests.storage.trees import at, plant, seen

FORMATS = ("tar", "tfrecord", "sequencefile", "har")
TREE = {
    "a/0001.jpg": b"\xff\xd8 one",
    "a/0001.txt": b"cat\n",
    "a/0002.jpg": b"\xff\xd8 two" * 300,
    "a/0002.txt": b"dog\n",
    "a/empty/": None,
    "deep/er/and/deeper.bin": bytes(range(256)) * 20,
    "empty file": b"",
    ".hidden": b"dot",
    "no-dot": b"",
    "with #%?\nnew line é 猫.x": b"odd",
    "long/" + "n" * 120 + "/" + "m" * 120 + ".txt": b"long",
}


def packed(tree, target, watch=None, **options):
    rules = packing.packing_rules(
        tree, options.pop("format", "tar"), options.pop("shard_size", "256M"), **options
    )
    return packing.pack(tree, target, rules, watch or Watch())


def unpacked(source, target, **options):
    copied = packing.unpack(source, target, Rules(**options), Watch())
    assert copied.failed == ()
    return copied


def names_in(place):
    return sorted(entry.name for entry in place.store.list(place.path) if not is_part(entry))


def shards_of(place):
    """The names of the shards, without the identifier that is derived from the tree."""
    return [re.sub(r"-[0-9a-f]{10}-", "-*-", name) for name in names_in(place) if name != indexes.NAME]


def index_of(place):
    text = b"".join(place.store.read(place.join(indexes.NAME).path)).decode()
    head, *rows = map(json.loads, text.splitlines())
    return head, rows


@pytest.fixture
def tree(here):
    plant(at(here, "tree"), TREE)
    return at(here, "tree")


@pytest.mark.parametrize("format", FORMATS)
def test_tree_is_packed_into_any_store_and_unpacked(tree, there, tmp_path, format):
    made = packed(tree, at(there, "set.har"), format=format, shard_size="4K", name="train")
    assert (made.files, made.bytes, made.format) == (10, sum(map(len, filter(None, TREE.values()))), format)
    assert made.shards > 1
    suffix = {"sequencefile": "seq", "har": "part"}.get(format, format)
    shards = [f"train-*-{number:06d}.{suffix}" for number in range(made.shards)]
    others = ["_index", "_masterindex"] if format == "har" else []
    assert shards_of(at(there, "set.har")) == [*others, *shards]
    head, _ = index_of(at(there, "set.har"))
    names = [*others, "index.jsonl", *(shard["name"] for shard in head["shards"])]
    assert names == names_in(at(there, "set.har"))
    assert len({shard["name"].rpartition("-")[0] for shard in head["shards"]}) == 1  # one {000000..N} for all
    with local(tmp_path / "back") as back:
        unpacked(at(there, "set.har"), back)
        assert seen(back) == TREE
        for item in ("a/0001.jpg", "empty file"):
            assert (
                back.store.stat(at(back, item).path).mtime_ms == tree.store.stat(at(tree, item).path).mtime_ms
            )


def test_tree_in_any_store_is_packed_to_this_machine(there, here):
    plant(at(there, "tree"), TREE)
    packed(at(there, "tree"), at(here, "set"), shard_size="3K")
    unpacked(at(here, "set"), at(here, "back"))
    assert seen(at(here, "back")) == TREE


@pytest.mark.parametrize("format", FORMATS)
def test_file_modes_and_times_are_restored(tree, here, format):
    os.chmod(at(tree, "a/0001.txt").path, 0o700)
    os.chmod(at(tree, "no-dot").path, 0o440)
    os.chmod(at(tree, "a").path, 0o750)
    os.utime(at(tree, ".hidden").path, ns=(0, 1_234_567_891_234 * 10**6))
    os.utime(at(tree, "empty file").path, ns=(0, -(10**9)))
    packed(tree, at(here, "set.har"), format=format)
    unpacked(at(here, "set.har"), at(here, "back"))
    for name in ("a/0001.txt", "no-dot", "a", ".hidden", "empty file"):
        was, now = (root.store.stat(at(root, name).path) for root in (tree, at(here, "back")))
        assert (now.mode, now.is_executable) == (was.mode, was.is_executable)
        assert now.mtime_ms == was.mtime_ms or was.is_folder


@pytest.mark.parametrize("format", FORMATS)
def test_same_tree_is_packed_to_the_same_bytes(tree, here, format):
    packed(tree, at(here, "one.har"), format=format, shard_size="4K", name="x")
    for folder in ("a", "a/empty", ""):  # a folder's time changes when something in it is created or removed
        os.utime(at(tree, folder).path, (1, 1))
    packed(tree, at(here, "two.har"), format=format, shard_size="4K", name="x")
    one, two = seen(at(here, "one.har")), seen(at(here, "two.har"))
    assert one == two and len(one) > 2


def test_symlinks_are_packed_as_their_targets(tree, here):
    os.symlink("0001.txt", at(tree, "a/link").path)
    os.symlink("a", at(tree, "again").path)
    packed(tree, at(here, "set"))
    unpacked(at(here, "set"), at(here, "back"))
    back = seen(at(here, "back"))
    assert back["a/link"] == b"cat\n" and back["again/0001.txt"] == b"cat\n"


@pytest.mark.parametrize(
    ("link", "leads", "reason"),
    [
        ("nowhere", "missing", "broken symlink"),
        ("a/up", "..", "would never end"),
        ("set", "../set", "leads to the target"),
        ("above", "../..", "a link"),
    ],
)
def test_symlink_that_cannot_be_followed_is_an_error(tree, here, link, leads, reason):
    at(here, "set").store.make_folder(at(here, "set").path)
    os.symlink(leads, at(tree, link).path)
    with pytest.raises(PathError, match=reason):
        packed(tree, at(here, "set"))
    assert list(here.store.list(at(here, "set").path)) == []


def test_packing_a_named_pipe_is_an_error(tree, here):
    os.mkfifo(at(tree, "pipe").path)
    with pytest.raises(PathError, match="neither a file nor a folder"):
        packed(tree, at(here, "set"))


def test_part_left_by_a_copy_is_not_packed(tree, here):
    (at(tree, "a").store).write(at(tree, "a/.pai-part-0123456789abcdef").path, [b"half"])
    packed(tree, at(here, "set"))
    assert not [row for row in index_of(at(here, "set"))[1] if "pai-part" in row[0]]


def test_an_empty_folder_is_packed_too(here):
    plant(here, {"nothing/": None})
    made = packed(at(here, "nothing"), at(here, "set"))
    assert (made.files, made.shards) == (0, 0)
    unpacked(at(here, "set"), at(here, "back"))
    assert seen(at(here, "back")) == {} and here.store.stat(at(here, "back").path).is_folder


@pytest.mark.parametrize("format", FORMATS[:3])
def test_name_that_is_not_utf_8_is_restored(here, tmp_path, format):
    folder = os.fsencode(at(here, "tree").path)
    os.mkdir(folder)
    with open(folder + b"/\xff\xfe.bin", "wb") as file:
        file.write(b"odd")
    packed(at(here, "tree"), at(here, "set"), format=format)
    unpacked(at(here, "set"), at(here, "back"))
    assert os.listdir(os.fsencode(at(here, "back").path)) == [b"\xff\xfe.bin"]


def test_file_larger_than_the_shard_size_gets_its_own_shard(here):
    plant(at(here, "tree"), {"a": b"1", "big": bytes(3 << 20), "c": b"3"})
    packed(at(here, "tree"), at(here, "set"), shard_size="1M")
    head, rows = index_of(at(here, "set"))
    assert [row[1] for row in rows] == [0, 1, 2]
    assert head["shards"][1]["size"] == 512 + (3 << 20) + 1024


def member(name, size=0):
    return PackMember(name, "/" + name, False, size, 0, 0o644, split(name)[0])


def test_files_of_a_sample_stay_together():
    wanted = [member(f"{number:03d}.{end}", 10) for number in range(50) for end in ("cls", "jpg", "json")]
    shards = list(cut(wanted, 100, lambda one: one.size))
    assert [one for shard in shards for one in shard] == wanted
    assert {len(shard) for shard in shards} == {9, 6}
    assert all(len({split(one.name)[0] for one in shard}) == len(shard) / 3 for shard in shards)


def test_sample_that_is_too_large_for_a_shard_is_split():
    wanted = [member(f"frame.{number}.png", 10) for number in range(50)]
    assert {len(shard) for shard in cut(wanted, 100, lambda one: one.size)} == {10}


def test_number_of_files_in_a_shard_is_limited():
    wanted = (member(str(number)) for number in range(2 * MOST + 5))
    assert [len(shard) for shard in cut(wanted, 100, lambda one: one.size)] == [MOST, MOST, 5]


def test_names_are_split_like_in_webdataset():
    assert split("a.b/c.seg.png") == ("a.b/c", "seg.png")
    assert split("README") == ("README", "")
    assert split("a/.hidden.txt") == ("a/.hidden.txt", "")


class Once(Watch):
    """Calls ``act`` once when more than 1 MiB has moved."""

    def __init__(self, act):
        super().__init__()
        self._act, self._moved = act, 0

    def moved(self, count):
        self._moved += count
        if self._moved > 1 << 20 and self._act:
            act, self._act = self._act, None
            act()


@pytest.mark.parametrize("size", [(8 << 20) + 1, (8 << 20) - 1, 5])
@pytest.mark.parametrize("format", FORMATS)
def test_a_file_that_changes_while_it_is_read_is_an_error_and_leaves_nothing(here, size, format):
    plant(at(here, "tree"), {"a": b"1", "big": bytes(8 << 20)})
    change = Once(lambda: os.truncate(at(here, "tree/big").path, size))
    with pytest.raises(PathError, match="big: it changed while it was packed"):
        packed(at(here, "tree"), at(here, "set.har"), change, format=format)
    assert list(here.store.list(at(here, "set.har").path)) == []


def test_interrupted_pack_leaves_nothing_and_keeps_the_old_set(here):
    plant(at(here, "tree"), {"a": b"1", "big": bytes(8 << 20)})
    plant(at(here, "old"), {"x": b"old"})
    packed(at(here, "old"), at(here, "set"))
    before = seen(at(here, "set"))
    watch = Once(lambda: watch.stop())
    with pytest.raises(Interrupted):
        packed(at(here, "tree"), at(here, "set"), watch, replace=True)
    assert seen(at(here, "set")) == before
    assert len(list(here.store.list(at(here, "set").path))) == len(before)


def test_existing_set_is_replaced_only_on_request(tree, here):
    packed(tree, at(here, "set"), shard_size="4K")
    plant(at(here, "other"), {"only": b"this"})
    with pytest.raises(PathError, match="--replace"):
        packed(at(here, "other"), at(here, "set"))
    packed(at(here, "other"), at(here, "set"), replace=True)
    assert shards_of(at(here, "set")) == ["other-*-000000.tar"]
    unpacked(at(here, "set"), at(here, "back"))
    assert seen(at(here, "back")) == {"only": b"this"}


def test_folder_with_other_files_is_never_packed_into(tree, here):
    plant(at(here, "mine"), {"thesis.txt": b"years"})
    for replace in (False, True):
        with pytest.raises(PathError, match=r"thesis\.txt"):
            packed(tree, at(here, "mine"), replace=replace)
    assert seen(at(here, "mine")) == {"thesis.txt": b"years"}


def test_invalid_sources_targets_names_and_formats_are_refused(tree, here):
    plant(here, {"file": b"x"})
    with pytest.raises(PathError, match="not a folder"):
        packed(at(here, "file"), at(here, "set"))
    with pytest.raises(PathError, match="not a folder"):
        packed(tree, at(here, "file"))
    with pytest.raises(NotFound):
        packed(at(here, "missing"), at(here, "set"))
    for inside in (tree, at(tree, "a/set")):
        with pytest.raises(PathError, match="into itself"):
            packed(tree, inside)
    for name in ("", "a/b", ".hidden"):
        with pytest.raises(ConfigError, match="--name"):
            packed(tree, at(here, "set"), name=name)
    with pytest.raises(ConfigError, match=r"no format named 'zip' \(known: tar"):
        packed(tree, at(here, "set"), format="zip")
    assert here.store.stat(at(here, "set").path) is None


@pytest.mark.parametrize("format", ["tfrecord", "sequencefile"])
def test_file_that_is_too_large_for_a_format_is_refused(here, format):
    plant(here, {"tree/huge": b""})
    os.truncate(at(here, "tree/huge").path, 2 << 30)
    with pytest.raises(PathError, match="only be packed as tar"):
        packed(at(here, "tree"), at(here, "set"), format=format)


def test_shard_size_accepts_common_notations(here):
    def size(text):
        return packing.packing_rules(at(here, "tree"), "tar", text).shard_size

    assert [size(text) for text in ("256M", "1.5g", "64KiB", "64kb", "17")] == [
        256 << 20, 3 << 29, 64 << 10, 64 << 10, 17,
    ]  # fmt: skip
    for text in ("0", "-1", "M", "many", "1X", "", "0.1"):
        with pytest.raises(ConfigError, match="--shard-size needs bytes or a size"):
            size(text)


def test_unpacking_again_continues_with_what_is_missing(tree, here):
    packed(tree, at(here, "set"), shard_size="4K")
    unpacked(at(here, "set"), at(here, "back"))
    os.unlink(at(here, "back/no-dot").path)
    plant(at(here, "back"), {"a/0001.txt": b"changed"})
    again = unpacked(at(here, "set"), at(here, "back"))
    assert (again.files, again.skipped) == (2, 8)
    assert seen(at(here, "back")) == TREE


@pytest.fixture
def ready(tree, here):
    """A packed set in several shards."""
    packed(tree, at(here, "set"), shard_size="4K", name="x")
    return at(here, "set")


def rewrite_index(place, change):
    """Rewrite the index with a change."""
    head, rows = index_of(place)
    lines = change(head, rows) or [head, *rows]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    plant(place, {indexes.NAME: text.encode()})


def assert_refused(source, here, message):
    with pytest.raises(PaiError, match=message):
        packing.unpack(source, at(here, "back"), Rules(), Watch())
    assert here.store.stat(at(here, "back").path) is None


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "a/../../evil", "a//b", "./a", "a\0b", "", "a/."])
def test_escaping_file_name_is_refused_before_anything_is_written(ready, here, name):
    def change(head, rows):
        rows[-1][0] = name

    rewrite_index(ready, change)
    assert_refused(ready, here, "which leads out of its folder")


@pytest.mark.parametrize("name", ["../evil/", "/evil/", "/"])
def test_escaping_folder_name_is_refused(ready, here, name):
    def change(head, rows):
        rows[0][0] = name

    rewrite_index(ready, change)
    assert_refused(ready, here, "which leads out of its folder")


def test_escaping_shard_name_is_refused(ready, here):
    def change(head, rows):
        head["shards"][0]["name"] = "../x"

    rewrite_index(ready, change)
    assert_refused(ready, here, "line 1 is damaged")


def test_duplicate_name_or_name_of_both_file_and_folder_is_refused(ready, here):
    def twice(head, rows):
        rows[-1][0] = rows[-2][0]

    def both(head, rows):
        rows[-1][0] = "a"

    text = seen(ready)[indexes.NAME]
    for change, message in ((twice, "twice"), (both, "as a file and as a folder")):
        plant(ready, {indexes.NAME: text})
        rewrite_index(ready, change)
        assert_refused(ready, here, message)


@pytest.mark.parametrize(
    "row",
    [
        ["x"], [1, 0, 0, 0, 420, 0, None], ["x", 99, 0, 0, 420, 0, None], ["x", 0, 10**9, 5, 420, 0, None],
        ["x", 0, -1, 1, 420, 0, None], ["x", 0, 0, 0, 99999, 0, None], ["x", 0, 0, 0, 420, "now", None],
        ["x", 0, 0, 0, 420, 0, "crc"], ["x", 0, 0, 0, 420, 2**70, None], "xy", None, {}, ["\ud800/", 420],
    ],
)  # fmt: skip
def test_error_names_a_damaged_line_of_the_index(ready, here, row):
    def change(head, rows):
        rows[3] = row

    rewrite_index(ready, change)
    assert_refused(ready, here, "line 5 is damaged")


def test_unsupported_or_damaged_index_is_refused(ready, here):
    def newer(head, rows):
        head["version"] = 2

    def cut_off(head, rows):
        rows.pop()

    text = seen(ready)[indexes.NAME]
    for change, message in (
        (newer, "unsupported index version 2: this openpai-tasks reads version 1"),
        (cut_off, "9 files are listed of 10"),
        (lambda head, rows: ["not ours"], "not an index of packed files"),
        (lambda head, rows: [{**head, "format": "zip"}, *rows], "no format named 'zip'"),
        (lambda head, rows: [{**head, "shards": 3}, *rows], "line 1 is damaged"),
    ):
        plant(ready, {indexes.NAME: text})
        rewrite_index(ready, change)
        assert_refused(ready, here, message)
    plant(ready, {indexes.NAME: b""})
    assert_refused(ready, here, "not an index of packed files")
    plant(ready, {indexes.NAME: b'{"what"'})
    assert_refused(ready, here, "not an index of packed files")


def test_truncated_or_missing_shard_is_refused_before_anything_is_written(ready, here):
    path = ready.join(names_in(ready)[2]).path
    os.truncate(path, os.stat(path).st_size - 1)
    assert_refused(ready, here, r"x-\w+-000001\.tar: it has \d+ of \d+ bytes; truncated or changed")
    os.unlink(path)
    assert_refused(ready, here, r"x-\w+-000001\.tar: a shard of the index is missing")


def test_folder_without_an_index_is_refused(ready, here):
    os.unlink(ready.join(indexes.NAME).path)
    assert_refused(ready, here, r"has no index\.jsonl")
    assert_refused(at(here, "missing"), here, "no such file or folder")


@pytest.mark.parametrize("format", FORMATS)
def test_damaged_byte_fails_only_its_own_file(tree, here, format):
    packed(tree, at(here, "set.har"), format=format, name="x")
    row = next(row for row in index_of(at(here, "set.har"))[1] if row[0] == "a/0002.jpg")
    path = next(
        entry.path for entry in here.store.list(at(here, "set.har").path) if entry.name.startswith("x-")
    )
    with open(path, "r+b") as file:
        file.seek(row[2] + 7)
        file.write(b"!")
    copied = packing.unpack(at(here, "set.har"), at(here, "back"), Rules(), Watch())
    (failure,) = copied.failed
    assert failure.path == "/a/0002.jpg" and "damaged" in failure.reason
    assert seen(at(here, "back")) == {name: data for name, data in TREE.items() if name != "a/0002.jpg"}


def test_a_set_is_not_unpacked_into_itself(ready):
    with pytest.raises(PathError, match="into itself"):
        packing.unpack(ready, ready, Rules(), Watch())


def test_index_is_read_back_from_pieces_of_any_size():
    index = Index("tar", [Shard("x-000000.tar", 10**6)])
    rand = random.Random(1)
    for number in range(3000):
        index.add(
            Row(f"é\n{number}", 0, number, rand.randrange(9), 0o644, rand.randrange(10**12), number % 7 - 1)
        )
        index.add_folder(f"f{number}", 0o755)
    text = b"".join(indexes.encode(index))
    for size in (7, 1000, len(text)):
        again = indexes.read((text[at : at + size] for at in range(0, len(text), size)), "x")
        assert [again[number] for number in range(3000)] == [index[number] for number in range(3000)]
        assert list(again.folders) == list(index.folders)


def test_names_take_little_memory():
    names = Names(f"folder/{number:08d}.jpg" for number in range(100_000))
    held = len(names._text) + names._ends.itemsize * len(names._ends)
    assert held < 100_000 * 30
    assert names[99_999] == "folder/00099999.jpg" and names[1:3] == [
        "folder/00000001.jpg",
        "folder/00000002.jpg",
    ]


def test_location_that_ends_with_a_dot_is_packed_like_its_folder(tree, here):
    content = Location(tree.store, tree.path, tree.url, is_content=True)
    assert packed(content, at(here, "set")).files == 10
    assert shards_of(at(here, "set")) == ["tree-*-000000.tar"]


def test_a_data_set_on_a_real_hdfs_is_read_by_ranges(tree, hdfs, monkeypatch):
    url = f"hdfs://root@{hdfs.name_node}/packed"
    packed(tree, locate(url, None), name="x")
    read, asked = HdfsStore.read, []

    def counted(self, path, offset=0, length=None):
        asked.append(length)
        return read(self, path, offset, length)

    dataset = PackedDataset(url)
    monkeypatch.setattr(HdfsStore, "read", counted)
    assert dataset["a/0002.jpg"].data == TREE["a/0002.jpg"]
    assert asked == [len(TREE["a/0002.jpg"])]
    again = pickle.loads(pickle.dumps(dataset))
    assert {item.name: item.data for item in again} == {
        name: data for name, data in TREE.items() if data is not None
    }
    assert len(asked) == 2  # one request for all: they are adjacent
