"""The same `storage.copy` again after it was killed anywhere: the same tree, and nothing beside it."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest

from openpai_tasks.storage.copying.resume import LARGE

KILLS = 50
SIGNALS = {signal.SIGKILL: -9, signal.SIGINT: 130, signal.SIGTERM: 143}
LINE = ("storage.copy", "big", "pai://local/home/big")


def contents(folder: Path) -> dict[str, bytes | None]:
    """Everything below the folder, hidden or not."""
    return {
        str(path.relative_to(folder)): None if path.is_dir() else path.read_bytes()
        for path in folder.rglob("*")
    }


def bytes_in(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:  # renamed meanwhile
            continue
    return total


@pytest.fixture
def source(cluster) -> Path:
    """A folder of small files and a few large ones."""
    folder, chance = cluster.project / "big", random.Random(1)
    for name in ("a", "b/c", "b/d"):
        (folder / name).mkdir(parents=True)
        for number in range(30):
            (folder / name / f"{number}.txt").write_bytes(chance.randbytes(chance.randrange(20_000)))
    for name, size in {"b/once": 6 << 20, "first": LARGE, "b/second": LARGE + 12_345}.items():
        (folder / name).write_bytes(chance.randbytes(size))
    (folder / "empty").mkdir()
    return folder


@pytest.mark.timeout(900)
def test_copy_that_is_killed_at_random_points_ends_with_the_same_tree(cluster, source):
    """Some copies end before they are killed: then the tree is compared, and copied anew."""
    seed = random.randrange(1 << 32)
    print("seed", seed)
    chance, wanted, size = random.Random(seed), contents(source), bytes_in(source)
    cluster.ok("storage.makedir", "pai://local/home/big")
    (home,) = (cluster.home / "local" / "storage" / "home").iterdir()
    kills = 0
    while kills < KILLS:
        (number,) = chance.choices(list(SIGNALS), (3, 1, 1))
        copying = cluster.start("pai", *LINE)  # `inv` has two exit codes for Ctrl-C
        most = bytes_in(home) + chance.randrange(size // 3)
        while copying.poll() is None and bytes_in(home) < most:
            time.sleep(0.005)
        copying.send_signal(number)
        out, err = copying.communicate(timeout=100)
        assert copying.returncode in (0, SIGNALS[number], -number), (number, out, err)
        kills += copying.returncode != 0
        if kills % 10 == 5:
            assert "pai-part" not in cluster.ok("storage.tree", "pai://local/home").out
        if copying.returncode == 0:
            assert contents(home) == {"big": None} | {f"big/{name}": data for name, data in wanted.items()}
            cluster.run("sh", "-c", f"rm -rf '{home}'/*")
    assert cluster.ok(*LINE).out.endswith("; target: pai://local/home/big\n")
    assert contents(home) == {"big": None} | {f"big/{name}": data for name, data in wanted.items()}
    assert cluster.ok(*LINE, "-o", "json").json()["files"] == 0


def test_clean_removes_what_a_killed_copy_left_below_a_folder(cluster):
    folder = cluster.project / "killed"
    with open(cluster.project / "huge", "wb") as file:
        file.truncate(4 << 30)
    copying = cluster.start("inv", "storage.copy", "huge", "killed/below/")
    while not bytes_in(folder) > 1 << 20:
        assert copying.poll() is None
        time.sleep(0.002)
    copying.send_signal(signal.SIGSTOP)
    (part,) = folder.rglob(".pai-part-*")
    kept = f"kept: {part}: a copy is writing it\n0 unfinished files, 0 B removed\n"
    assert cluster.ok("storage.clean", "killed").out == kept
    copying.send_signal(signal.SIGKILL)
    copying.communicate()
    foreign = folder / f".pai-part-{int(time.time()):08x}00000000"
    foreign.touch()
    would = cluster.ok("storage.clean", "killed", "--preview").out
    assert f"would be removed: {part}\n" in would and part.exists()
    assert f"kept: {foreign}: a copy on another machine may be writing it" in would
    shown = cluster.ok("storage.clean", "killed", "-o", "json").json()
    assert shown["removed"] == [str(part)] and len(shown["kept"]) == 1
    assert [path.name for path in folder.rglob(".pai-part-*")] == [foreign.name]
    assert cluster.inv("storage.clean", "killed", "--state", "FAILED").code == 120
