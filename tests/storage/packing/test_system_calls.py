"""Packed files are read, packed and unpacked with few system calls per file."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter

import pytest

pytestmark = pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")

FILES, FOLDERS = 400, 4
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
    packing.unpack(place(source), place(target), Rules(), Watch())
"""
MARK = "the-work-begins"


@pytest.fixture
def tree(tmp_path):
    for number in range(FILES):
        path = tmp_path / "tree" / str(number % FOLDERS) / f"{number}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(number.to_bytes(2, "big") * 100)
    return tmp_path


def calls(folder, work, before="", root="/"):
    """Return how often each system call is made by ``work``, which runs after ``before``."""
    code = "\n".join([PRELUDE.format(root=root), before, f"os.path.exists({MARK!r})", work])
    trace = folder / "trace"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = ["strace", "-f", "-o", str(trace), "-e", "trace=file,desc", sys.executable, "-c", code]
    subprocess.run(command, check=True, cwd=folder, env=environment)
    lines = trace.read_text(errors="replace").partition(MARK)[2].splitlines()
    return Counter(found[1] for line in lines if (found := re.match(r"\d+ +(\w+)\(", line)))


def test_a_random_read_is_one_system_call(tree):
    before = (
        f"pack({str(tree / 'tree')!r}, {str(tree / 'set')!r})\nfound = PackedDataset({str(tree / 'set')!r})"
    )
    found = calls(tree, "for number in range(len(found)): found[number * 7 % len(found)]", before)
    assert found["pread64"] == FILES
    assert found.total() < FILES + 20


@pytest.mark.parametrize("is_confined", [False, True])
def test_packing_a_file_takes_five_system_calls(tree, is_confined):
    """One for its listing; then it is opened, read, looked at again and closed."""
    root, below = (str(tree), "") if is_confined else ("/", str(tree))
    found = calls(tree, f"pack({below + '/tree'!r}, {below + '/set'!r})", root=root)
    assert found["openat"] < FILES + 200
    assert found.total() < 5 * FILES + 900


@pytest.mark.parametrize("is_confined", [False, True])
def test_unpacking_a_file_takes_six_system_calls(tree, is_confined):
    """It is read from its shard, created, written, given its time, closed and renamed."""
    root, below = (str(tree), "") if is_confined else ("/", str(tree))
    before = f"pack({below + '/tree'!r}, {below + '/set'!r})"
    found = calls(tree, f"unpack({below + '/set'!r}, {below + '/back'!r})", before, root)
    assert found["renameat"] + found["renameat2"] == FILES
    assert found.total() < 6 * FILES + 500
