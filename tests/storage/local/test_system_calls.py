"""The number of system calls that a small file costs; time would depend on the machine."""

from __future__ import annotations

import collections
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import needs

CALL = re.compile(r"^\d+\s+(\w+)\(", re.MULTILINE)
STATS = ("stat", "lstat", "fstat", "newfstatat", "statx")
SCRIPT = """if True:
    import sys
    from openpai_tasks.storage.copying.copy import Rules, copy
    from openpai_tasks.storage.copying.plan import plan_sync
    from openpai_tasks.storage.local import store
    from openpai_tasks.storage.local.store import LocalStore
    from openpai_tasks.storage.location import Location
    store.umask = lambda second: 0o022  # which would be read once a second
    source, root, times = sys.argv[1:]
    target = Location(LocalStore(root), "/data", "pai://lab/home/data")
    for _ in range(int(times)):
        copied = copy(plan_sync(Location(LocalStore(), source, source), target), Rules(workers=1))
    print(copied.files, copied.skipped, len(copied.failed))
"""


@pytest.fixture(scope="module")
def strace() -> str:
    needs.require("strace")
    found = needs.find("strace")
    if subprocess.run([found, "true"], capture_output=True).returncode:
        pytest.skip("strace may not follow processes here")
    return found


class Counted:
    """Runs a copy of some files, and counts its system calls."""

    def __init__(self, strace: str, folder: Path) -> None:
        self._strace, self._folder = strace, folder

    def calls(self, files: int, times: int) -> tuple[collections.Counter[str], str]:
        """Return the calls by name, and what the last of the copies did."""
        source, root = self._folder / f"source-{files}", self._folder / f"root-{files}-{times}"
        source.mkdir(exist_ok=True)
        root.mkdir()
        for number in range(files):
            (source / f"{number:04}.txt").write_text(f"content {number}")
        log = self._folder / "log"
        command = [self._strace, "-f", "-o", log, "-e", "trace=file,desc", sys.executable, "-c", SCRIPT]
        done = subprocess.run(
            [*command, source, root, str(times)], capture_output=True, text=True, check=True
        )
        return collections.Counter(CALL.findall(log.read_text())), done.stdout.strip()


@pytest.fixture
def counted(strace, tmp_path) -> Counted:
    return Counted(strace, tmp_path)


def test_a_small_file_takes_few_system_calls(counted):
    few, _ = counted.calls(64, 1)
    many, result = counted.calls(320, 1)
    assert result == "320 0 0"
    each = {name: (many[name] - few[name]) / 256 for name in many}
    assert sum(each.values()) < 16  # on files and descriptors
    assert each["openat"] < 2.1 and each.get("readlink", 0) + each.get("readlinkat", 0) < 0.1
    assert sum(each.get(name, 0) for name in STATS) < 4.1


def test_an_unchanged_file_takes_a_stat_on_each_side(counted):
    again = []
    for files in (64, 320):
        (once, _), (twice, result) = counted.calls(files, 1), counted.calls(files, 2)
        assert result == f"0 {files} 0"
        again.append(twice.total() - once.total())
    assert (again[1] - again[0]) / 256 < 2.1
