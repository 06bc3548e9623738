"""Hadoop reads our archives, and we read Hadoop's."""

from __future__ import annotations

import os
from urllib.parse import quote_plus

import pytest

from openpai_tasks.errors import PathError
from openpai_tasks.sdk import files
from openpai_tasks.storage.packing.packed_set import open_set
from tests.storage.packing.test_packing import names_in, packed, unpacked
from tests.storage.stores import STORES, local
from tests.storage.trees import at, plant, seen

TREE = {
    "a/0001.cls": b"7",
    "a/0001.jpg": bytes(range(256)) * 20,
    "b c/\u00e9 \u732b+%.txt": b"odd",
    "b c/none/": None,
    "empty": b"",
}
FACTS = quote_plus("1700000000123 416 ann users")
THEIRS = f"""%2F dir {FACTS} 0 0 sub hello.txt
%2Fhello.txt file part-0 0 5 {FACTS}
%2Fsub dir {FACTS} 0 0 b%2B.bin none
%2Fsub%2Fb%2B.bin file part-0 5 3 {FACTS}
%2Fsub%2Fnone dir {FACTS} 0 0
"""
THEIR_FILES = {"hello.txt": b"hello", "sub/b+.bin": b"abc", "sub/none/": None}


def hadoop_hash(name):
    found = 0
    for character in name:
        found = (31 * found + ord(character)) % 2**32
    return found % 2**31


def plant_theirs(root, text=THEIRS, version="3"):
    """Write an archive as `hadoop archive` does: a line of an index ends with a space."""
    lines = [f"{line} \n" for line in text.splitlines()]
    names = ("/", "/hello.txt", "/sub", "/sub/b+.bin", "/sub/none")
    ordered = [line for _, line in sorted(zip(map(hadoop_hash, names), lines, strict=False))]
    hashes = sorted(map(hadoop_hash, names))
    index = "".join(ordered)
    master = f"{version} \n{hashes[0]} {hashes[-1]} 0 {len(index)} \n"
    made = {"_index": index.encode(), "_masterindex": master.encode(), "part-0": b"helloabc"}
    plant(at(root, "theirs.har"), made)
    return at(root, "theirs.har")


class NoClusters:
    def cluster_url(self, path):
        return ""


def content(url):
    return b"".join(files.read_files([files.locate(url, NoClusters())]))


def read_folder(folder):
    with local(folder) as place:
        return seen(place)


def test_hadoop_reads_our_archive_and_one_of_its_own_kind(here, hdfs, tmp_path):
    """The second one checks what the other tests take for Hadoop's format."""
    plant(at(here, "tree"), TREE)
    with STORES["hdfs"](tmp_path) as there:
        packed(at(here, "tree"), at(there, "ours.har"), format="har", shard_size="4K")
        plant_theirs(there)
        folder = there.store.address("/").rpartition("//")[2].partition("/")[2].strip("/")
        (tmp_path / "out").mkdir()
        hdfs.shell("-get", f"har:///{folder}/ours.har", f"har:///{folder}/theirs.har", str(tmp_path / "out"))
        assert read_folder(tmp_path / "out/ours.har") == TREE
        assert read_folder(tmp_path / "out/theirs.har") == THEIR_FILES
        url = f"har://webhdfs-root@{hdfs.name_node}/{folder}/ours.har"
        found = files.list_files([files.locate(f"{url}/b c", NoClusters())])
        assert {each.url for each in found} == {f"{url}/b c/\u00e9 \u732b+%.txt", f"{url}/b c/none"}
        assert content(f"{url}/a/0001.jpg") == TREE["a/0001.jpg"]


def test_archive_of_hadoop_is_unpacked_with_modes_and_times(here):
    theirs = plant_theirs(here)
    unpacked(theirs, at(here, "back"))
    assert seen(at(here, "back")) == THEIR_FILES
    entry = here.store.stat(at(here, "back/hello.txt").path)
    assert (entry.mtime_ms, entry.mode) == (1700000000123, 0o640)
    assert content(f"har://{theirs.path}/sub/b+.bin") == b"abc"


def test_older_archives_are_read(here):
    plain = "/ dir none 0 0 hello.txt\n/hello.txt file part-0 0 5\n"
    unpacked(plant_theirs(here, plain, version="1"), at(here, "back"))
    assert seen(at(here, "back")) == {"hello.txt": b"hello"}


@pytest.mark.parametrize(
    ("text", "version", "reason"),
    [
        (THEIRS, "4", "not a Hadoop archive of version 1, 2 or 3"),
        (THEIRS, "", "not a Hadoop archive"),
        (f"%2Fx file part-7 0 5 {FACTS}", "3", "line 1 of _index is damaged, or its part is missing"),
        (f"%2Fx file part-0 5 4 {FACTS}", "3", "line 1 of _index is damaged, or its part is missing or too"),
        (f"%2Fx file part-0 -1 4 {FACTS}", "3", "line 1"),
        (f"%2Fx link part-0 0 4 {FACTS}", "3", "line 1"),
        ("%2Fx", "3", "line 1"),
        (f"%2F..%2Fevil file part-0 0 4 {FACTS}", "3", r"\.\./evil.*refused"),
    ],
)
def test_damaged_or_hostile_archive_is_refused(here, text, version, reason):
    with pytest.raises(PathError, match=reason):
        open_set(plant_theirs(here, text, version))


def test_archive_is_replaced_by_another_format_and_back(here):
    plant(at(here, "tree"), TREE)
    target = at(here, "set.har")
    for format in ("har", "tar", "har"):
        packed(at(here, "tree"), target, format=format, replace=True)
        assert ("_index" in names_in(target)) is (format == "har")
        unpacked(target, at(here, f"back-{format}"))
    assert len(names_in(target)) == 4
    assert seen(at(here, "back-har")) == TREE
    os.unlink(at(here, "set.har/index.jsonl").path)  # as Hadoop sees it
    unpacked(target, at(here, "again"))
    assert seen(at(here, "again")) == TREE


def test_folder_of_another_name_and_a_name_that_is_not_utf_8_are_refused(here):
    plant(at(here, "tree"), {"x": b""})
    with pytest.raises(PathError, match=r"ends with \.har: .*storage\.pack .*/tree .*/set\.har --format har"):
        packed(at(here, "tree"), at(here, "set"), format="har")
    open(os.fsencode(at(here, "tree").path) + b"/\xff", "wb").close()
    with pytest.raises(PathError, match="cannot hold a name that is not UTF-8"):
        packed(at(here, "tree"), at(here, "set.har"), format="har")
    assert list(here.store.list(at(here, "set.har").path)) == []


@pytest.mark.parametrize("url", ["har://", "har:///x", "har://lab/home/x.har", "har://hdfs-host"])
def test_invalid_address_of_an_archive_is_an_error(url):
    with pytest.raises(PathError, match=f"invalid address {url!r}: expected har://hdfs-HOST"):
        files.locate(url, NoClusters())
