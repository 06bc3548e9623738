"""Copies from this machine to the embedded cluster's storage, beside rclone, rsync and cp."""

from __future__ import annotations

import filecmp
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.side_by_side import OURS, Comparison, Turn
from benchmarks.startup import ROOT

Command = Callable[[Path, Path], list[str | Path]]
"""The command line that copies the contents of one folder to another one."""

PEERS: Mapping[str, Command] = {
    "rclone": lambda source, target: ["rclone", "--quiet", "copy", source, target],
    "rsync": lambda source, target: ["rsync", "-a", f"{source}/", f"{target}/"],
    "cp": lambda source, target: ["cp", "-r", "--preserve=timestamps", f"{source}/.", target],
}
SKIPPING = ("rclone", "rsync")
"""The peers that skip unchanged files."""


@dataclass(frozen=True)
class Sizes:
    """How much is copied."""

    small: int = 5_000
    unchanged: int = 20_000
    large: int = 1 << 30


def comparisons(folder: Path, sizes: Sizes | None = None) -> Iterator[Comparison]:
    sizes = sizes or Sizes()
    pai = [sys.executable, "-m", "openpai_tasks"]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"PYTHONPATH": str(ROOT), "OPENPAI_HOME": str(folder / "home")}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment.get('PATH', '')}"
    runner = Runner(folder, environment)
    try:
        runner.run([*pai, "cluster.start"])
        runner.run([*pai, "storage.listdir", "pai://local/home/"])  # creates the user's folder
        yield from _compared(runner, pai, sizes)
    finally:
        runner.run([*pai, "cluster.stop"])


def _compared(runner: Runner, pai: list[str], sizes: Sizes) -> Iterator[Comparison]:
    def copied(source: Path, target: Path) -> list[str | Path]:
        return [*pai, "storage.copy", f"{source}/.", f"pai://local/home/{target.name}"]

    def synced(source: Path, target: Path) -> list[str | Path]:
        return [*pai, "storage.sync", source, f"pai://local/home/{target.name}"]

    peers = {name: command for name, command in PEERS.items() if shutil.which(name, path=runner.path)}
    small = make_tree(runner.folder / "small", sizes.small, 4096)
    contenders = {OURS: copied, **peers}
    turns = {name: runner.fresh(name, command, small) for name, command in contenders.items()}
    what = f"copy {sizes.small:,} files of 4 KiB to the embedded storage"
    yield Comparison(what, turns, {"rclone": 1.2}, sizes.small, "files")

    large = make_tree(runner.folder / "large", 1, sizes.large)
    turns = {name: runner.fresh(name, command, large) for name, command in contenders.items()}
    what = f"copy a file of {sizes.large >> 20:,} MiB to the embedded storage"
    yield Comparison(what, turns, {"rclone": 1.2}, sizes.large / (1 << 20), "MiB", rounds=3)
    shutil.rmtree(large)

    many = make_tree(runner.folder / "many", sizes.unchanged, 100)
    contenders = {OURS: synced, **{name: peers[name] for name in SKIPPING if name in peers}}
    turns = {name: runner.again(name, command, many) for name, command in contenders.items()}
    what = f"sync {sizes.unchanged:,} unchanged files with the embedded storage"
    yield Comparison(what, turns, {"rclone": 1.0}, sizes.unchanged, "files")


class Runner:
    """Runs the commands, and checks what arrived."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.folder, self._environment = folder, environment
        self.path = environment["PATH"]

    def run(self, command: list[str | Path] | list[str]) -> float:
        start = time.perf_counter()
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        subprocess.run(command, cwd=self.folder, env=self._environment, check=True, **quiet)
        return time.perf_counter() - start

    def fresh(self, name: str, command: Command, source: Path) -> Turn:
        """Return a turn that copies to a folder that does not exist yet."""
        target = self._target(name, source)

        def turn() -> float:
            if name != OURS:
                target.mkdir(parents=True)
            seconds = self.run(command(source, target))
            check_same(source, target)
            shutil.rmtree(target)
            return seconds

        return turn

    def again(self, name: str, command: Command, source: Path) -> Turn:
        """Return a turn that repeats a copy."""
        target = self._target(name, source)
        target.mkdir(parents=True)
        self.run(command(source, target))
        check_same(source, target)
        return lambda: self.run(command(source, target))

    def _target(self, name: str, source: Path) -> Path:
        if name != OURS:
            return self.folder / "targets" / name / source.name
        (home,) = (self.folder / "home" / "local").glob("storage/home/*")
        return home / source.name


def make_tree(folder: Path, count: int, size: int) -> Path:
    """Create files of random bytes, 100 in each folder."""
    for number in range(count):
        place = folder / f"{number // 100:04}"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{number:06}.bin").write_bytes(os.urandom(size))
    return folder


def check_same(source: Path, target: Path) -> None:
    """Raise unless both folders have the same files."""
    names = {path.relative_to(source) for path in source.rglob("*")}
    if names != {path.relative_to(target) for path in target.rglob("*")}:
        raise RuntimeError(f"{target}: not the same names as in {source}")
    for name in names:
        if (source / name).is_file() and not filecmp.cmp(source / name, target / name, shallow=False):
            raise RuntimeError(f"{target / name} differs from its source")
