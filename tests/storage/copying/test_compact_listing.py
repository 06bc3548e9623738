"""The listing of a folder that is kept in memory while it is compared with another folder."""

from __future__ import annotations

import subprocess
import sys

import pytest

from openpai_tasks.storage.copying.compact_listing import CompactListing
from openpai_tasks.storage.store import Digest, Entry
from tests.memory import measurable

ENTRIES = [
    Entry("a", "/d/a", False, 1 << 50, 1_700_000_000_123),
    Entry("a b", "/d/a b", False, 0, -1, is_whole_second=True),
    Entry("folder", "/d/folder", True),
    Entry("link", "/d/link", False, is_link=True),
    Entry("pipe", "/d/pipe", False, is_special=True),
    Entry("\udcff no text", "/d/\udcff no text", False, 3),
    Entry("ünï\ncode", "/d/ünï\ncode", False, 7, 9, digest=Digest("md5", "a/b c"), is_arrival=True),
]


@pytest.mark.parametrize("entry", ENTRIES, ids=range(len(ENTRIES)))
def test_entry_is_returned_unchanged(entry):
    assert CompactListing("/d", ENTRIES).pop(entry.name) == entry


def test_entries_that_were_not_popped_remain_in_order():
    listing = CompactListing("/d", reversed(ENTRIES))
    assert listing.pop("none") is listing.pop("lin") is listing.pop("") is None
    listing.pop("a"), listing.pop("pipe")
    listing.drop_popped()
    assert list(listing) == [ENTRIES[1], ENTRIES[2], ENTRIES[3], ENTRIES[6], ENTRIES[5]]
    assert len(listing) == 5 and listing.pop("a") is None


def test_name_that_is_listed_twice_leaves_no_entry_once_popped():
    listing = CompactListing("/d", [Entry("x", "/d/x", False, 5), Entry("x", "/d/x", True)])
    assert listing.pop("x") == Entry("x", "/d/x", False, 5)
    listing.drop_popped()
    assert not listing


@measurable
def test_large_folder_takes_little_memory():
    code = """if True:
        from openpai_tasks.storage.copying.compact_listing import CompactListing
        from openpai_tasks.storage.store import Entry
        from tests.memory import peak_of
        before = peak_of("self")
        names = (f"image-{number:08d}.jpg" for number in range(100_000))
        entries = (Entry(name, f"/data/images/{name}", False, 123_456, 1_700_000_000_123) for name in names)
        listing = CompactListing("/data/images", entries)
        print((peak_of("self") - before) // len(listing))"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 150  # bytes for each
