"""Packed files are read, packed and unpacked with few system calls per file."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter

import pytest

from tests.needs import needs

pytestmark = needs("strace")

FEW, MANY = 100, 400
PRELUDE = """
import os, sys
from openpai_tasks.sdk.files import packing
from openpai_tasks.sdk.files.dataset import PackedDataset
from openpai_tasks.storage.copying.copy import Rules
from openpai_tasks.storage.copying.progress import Watch
from openpai_tasks.storage.local.store import LocalStore
from openpai_tasks.storage.location import Location

def place(path):
    return Location(LocalStore({root!r}), path, path)

def pack(source, target):
    packing.pack(place(source), place(target), packing.packing_rules(place(source), "tar", "1G"), Watch())

def unpack(source, target):
    packing.unpack(place(source), place(target), Rules(workers=1), Watch())

# Load the modules, which is not counted.
one = f"{below}/one-{{os.getpid()}}"
pack("{below}/one", one + "-packed")
unpack(one + "-packed", one + "-unpacked")
"""
MARK = "the-work-begins"


@pytest.fixture
def folder(tmp_path):
    """A folder with the trees `one`, `few` and `many`."""
    for name, files in (("one", 1), ("few", FEW), ("many", MANY)):
        for number in range(files):
            path = tmp_path / name / f"{number}.bin"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(number.to_bytes(2, "big") * 100)
    return tmp_path


def calls(folder, work, before="", root="/"):
    """Return how often each system call is made by ``work``, which runs after ``before``."""
    below = "" if root == str(folder) else str(folder)
    code = "\n".join([PRELUDE.format(root=root, below=below), before, f"os.path.exists({MARK!r})", work])
    trace = folder / "trace"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = ["strace", "-f", "-o", str(trace), "-e", "trace=file,desc", sys.executable, "-c", code]
    subprocess.run(command, check=True, cwd=folder, env=environment)
    lines = trace.read_text(errors="replace").partition(MARK)[2].splitlines()
    return Counter(found[1] for line in lines if (found := re.match(r"\d+ +(\w+)\(", line)))


def test_a_random_read_is_one_system_call(folder):
    packed = str(folder / "packed")
    before = f"pack({str(folder / 'many')!r}, {packed!r})\nfound = PackedDataset({packed!r})"
    found = calls(folder, "for number in range(len(found)): found[number * 7 % len(found)]", before)
    assert found["pread64"] == MANY
    assert found.total() < MANY + 20


PACK = "pack({tree!r}, {tree!r} + '-packed')"
UNPACK = "unpack({tree!r} + '-packed', {tree!r} + '-unpacked')"


def calls_per_file(folder, is_confined, work, before=""):
    """Return the calls that each further file takes; each thread also opens the folder, once."""
    root, below = (str(folder), "") if is_confined else ("/", str(folder))
    trees = [f"{below}/{name}" for name in ("few", "many")]
    few, many = (calls(folder, work.format(tree=tree), before.format(tree=tree), root) for tree in trees)
    return Counter({name: (many[name] - few[name]) / (MANY - FEW) for name in many})


@pytest.mark.parametrize("is_confined", [False, True])
def test_packing_a_file_takes_five_system_calls(folder, is_confined):
    """One for its listing; then it is opened, read, looked at again and closed."""
    found = calls_per_file(folder, is_confined, PACK)
    assert found["openat"] < 1.3
    assert found.total() < 5.6, found


@pytest.mark.parametrize("is_confined", [False, True])
def test_unpacking_a_file_takes_six_system_calls(folder, is_confined):
    """It is read from its shard, created, written, given its time, closed and renamed."""
    found = calls_per_file(folder, is_confined, UNPACK, before=PACK)
    assert found["renameat"] + found["renameat2"] == 1
    assert found.total() < 6.6, found
