"""What is held of a folder while it is compared with another one."""

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
def test_an_entry_comes_back_as_it_was(entry):
    assert CompactListing("/d", ENTRIES).pop(entry.name) == entry


def test_what_nobody_took_is_left_by_name():
    held = CompactListing("/d", reversed(ENTRIES))
    assert held.pop("none") is held.pop("lin") is held.pop("") is None
    held.pop("a"), held.pop("pipe")
    held.drop_popped()
    assert list(held) == [ENTRIES[1], ENTRIES[2], ENTRIES[3], ENTRIES[6], ENTRIES[5]]
    assert len(held) == 5 and held.pop("a") is None


def test_a_name_that_is_listed_twice_leaves_nothing():
    held = CompactListing("/d", [Entry("x", "/d/x", False, 5), Entry("x", "/d/x", True)])
    assert held.pop("x") == Entry("x", "/d/x", False, 5)
    held.drop_popped()
    assert not held


@measurable
def test_a_folder_of_many_takes_little_memory():
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
