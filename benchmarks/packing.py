"""Packing many small files and reading them back, beside other packers: python benchmarks/packing.py

Every packer and every reader is a process of its own, timed with its start; they take turns, so that a busy
machine disturbs all alike, and every byte that a reader found is checked. ``ours`` is the whole of
``storage.pack``: shards with an index, each verified, renamed into place together; ``PackedDataset`` compares
every file with its CRC32C. ``files`` reads what was not packed at all. The files are the same in every run.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

SMALL = 4096
IN_FOLDER = 1000
SHARD = 32 << 20
FORMATS = ("tar", "tfrecord", "sequencefile")
TAR = "tar cf"
BASES = {"pack": TAR, "read all": "tarfile", "read at random": "tarfile"}  # whom all are compared with


def packed_by_us(format: str) -> Callable[[str, str], None]:
    def pack(source: str, target: str) -> None:
        from openpai_tasks.sdk.files import packing
        from openpai_tasks.storage.copying.progress import Watch
        from openpai_tasks.storage.local.store import LocalStore
        from openpai_tasks.storage.location import Location

        tree, place = (Location(LocalStore(), path, path) for path in (source, target))
        packing.pack(tree, place, packing.packing_rules(tree, format, str(SHARD)), Watch())

    return pack


def pack_by_tarfile(source: str, target: str) -> None:
    with tarfile.open(f"{target}/all.tar", "w") as file:
        for name in _names(source):
            file.add(f"{source}/{name}", name)


def pack_by_tfrecord(source: str, target: str) -> None:
    from tfrecord.writer import TFRecordWriter

    writer = TFRecordWriter(f"{target}/all.tfrecord")
    for name in _names(source):
        content = Path(source, name).read_bytes()
        writer.write({"name": (name.encode(), "byte"), "content": (content, "byte")})
    writer.close()


def pack_by_webdataset(source: str, target: str) -> None:
    import webdataset

    with webdataset.ShardWriter(f"{target}/%06d.tar", maxsize=SHARD, verbose=0) as writer:
        for name in _names(source):
            writer.write({"__key__": name.removesuffix(".bin"), "bin": Path(source, name).read_bytes()})


PACKERS: dict[str, Callable[[str, str], None]] = {
    **{f"ours, {format}": packed_by_us(format) for format in FORMATS},
    "tarfile": pack_by_tarfile,
    "tfrecord": pack_by_tfrecord,
    "webdataset": pack_by_webdataset,
}


def read_ours(target: str, is_random: bool) -> Iterable[bytes]:
    from openpai_tasks.sdk.files.dataset import PackedDataset

    dataset = PackedDataset(target)
    if is_random:
        return (dataset[number].data for number in _shuffled(range(len(dataset))))
    return (sample.data for sample in dataset)


def read_by_tarfile(target: str, is_random: bool) -> Iterator[bytes]:
    with tarfile.open(f"{target}/all.tar") as file:
        members = _shuffled(file.getmembers()) if is_random else file
        for member in members:
            if member.isfile():
                yield file.extractfile(member).read()


def read_by_tfrecord(target: str, is_random: bool) -> Iterator[bytes]:
    from tfrecord.reader import tfrecord_loader

    for row in tfrecord_loader(f"{target}/all.tfrecord", None, {"content": "byte"}):
        yield bytes(row["content"])


def read_by_webdataset(target: str, is_random: bool) -> Iterator[bytes]:
    import webdataset

    for sample in webdataset.WebDataset(sorted(map(str, Path(target).glob("*.tar"))), shardshuffle=False):
        yield sample["bin"]


def read_files(source: str, is_random: bool) -> Iterator[bytes]:
    for name in _shuffled(_names(source)) if is_random else _names(source):
        yield Path(source, name).read_bytes()


READERS: dict[str, Callable[[str, bool], Iterable[bytes]]] = {
    **{f"ours, {format}": read_ours for format in FORMATS},
    "tarfile": read_by_tarfile,
    "tfrecord": read_by_tfrecord,
    "webdataset": read_by_webdataset,
    "files": read_files,
}
IN_ORDER_ONLY = ("tfrecord", "webdataset")
PACKAGES = ("tfrecord", "webdataset")


class Bench:
    """The files, the sets of every packer, and the seconds of every turn so far."""

    def __init__(self, folder: Path, files: int, without: list[str]) -> None:
        self._folder, self._source = folder, folder / "source"
        self._total = _plant(self._source, files)
        missing = [name for name in PACKAGES if not importlib.util.find_spec(name)]
        self._left_out = {*without, *missing}
        self.seconds: dict[tuple[str, str], list[tuple[float, float]]] = {}

    def round(self, keep: bool) -> None:
        """Everybody packs once and reads once, in order and at random."""
        for name in self._taking_part([*PACKERS, TAR]):
            target = self._set_of(name)
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir()
            self._turn("pack", name, keep, self._source, target)
        for what in ("read all", "read at random"):
            for name in self._taking_part(READERS):
                if what == "read all" or name not in IN_ORDER_ONLY:
                    place = self._source if name == "files" else self._set_of(name)
                    found = self._turn(what, name, keep, place)
                    if found != self._total:
                        sys.exit(f"{what}, {name}: other bytes than were packed ({found})")

    def report(self) -> None:
        """The medians of both times, and how many times those of whom all are compared with."""
        print(f"load {', '.join(f'{load:.1f}' for load in os.getloadavg())} on {os.cpu_count()} processors")
        medians = {
            key: tuple(map(statistics.median, zip(*row, strict=True))) for key, row in self.seconds.items()
        }
        for (what, name), (median, busy) in medians.items():
            base, base_busy = medians[what, BASES[what]]
            print(
                f"{what:15} {name:19} {median:7.2f} s {median / base:6.2f} x {BASES[what]:8}"
                f" {busy:7.2f} s of a processor {busy / base_busy:6.2f} x"
            )

    def _taking_part(self, all_of_them: Iterable[str]) -> list[str]:
        return [name for name in all_of_them if name not in self._left_out]

    def _set_of(self, name: str) -> Path:
        return self._folder / name.replace(" ", "-")

    def _turn(self, what: str, name: str, keep: bool, *paths: Path) -> str:
        start, busy = time.perf_counter(), _busy()
        said = subprocess.run(
            command(what, name, *map(str, paths)), check=True, stdout=subprocess.PIPE, text=True
        ).stdout
        if keep:
            row = time.perf_counter() - start, _busy() - busy
            self.seconds.setdefault((what, name), []).append(row)
        return said.strip()


def command(what: str, name: str, *paths: str) -> list[str]:
    """The command line of one turn."""
    if name == TAR:
        source, target = paths
        return ["tar", "-C", source, "-cf", f"{target}/all.tar", "."]
    return [sys.executable, __file__, "--turn", what, name, *paths]


def turn(what: str, name: str, *paths: str) -> None:
    """What the process of one packer or reader does; a reader says what it has found."""
    if what == "pack":
        PACKERS[name](*paths)
    else:
        print(_summed(READERS[name](*paths, what == "read at random")))


def _busy() -> float:
    """Seconds of a processor that the processes that have ended took: other people's do not count."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _summed(contents: Iterable[bytes]) -> str:
    """How many there are and what is in them, in whatever order they come."""
    count = total = 0
    for content in contents:
        count, total = count + 1, total ^ zlib.crc32(content)
    return f"{count} {total:08x}"


def _plant(folder: Path, files: int) -> str:
    """Files of the same bytes in the same folders, each run; what a reader has to find in them."""
    dice = random.Random(files)
    for number in range(files):
        path = folder / f"{number // IN_FOLDER:03}" / f"{number:06}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(dice.randbytes(SMALL))
    return _summed(read_files(str(folder), False))


def _names(folder: str) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in Path(folder).glob("*/*"))


def _shuffled(items: Iterable) -> list:
    found = list(items)
    random.Random(len(found)).shuffle(found)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=20_000, help=f"how many, of {SMALL} bytes")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--without", action="append", default=[], help="who is left out; repeat for more")
    parser.add_argument("--turn", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.turn:
        turn(*args.turn)
        return 0
    if {*BASES.values()} & {*args.without} or not shutil.which("tar"):
        sys.exit("tar and tarfile take part: all are compared with them")
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), args.files, args.without)
        for number in range(args.rounds + 1):  # the first only warms up
            bench.round(keep=number > 0)
    bench.report()
    return 0


if __name__ == "__main__":
    sys.exit(main())
