"""Packing small files, unpacking them and reading single ones, beside tar, other packers and plain files.

Our turns and those of Python packages run in this process, as start-up has its own topic. ``ours`` is all of
``storage.pack`` and ``storage.unpack``: shards are verified, files are compared with their CRC32C, and each
appears complete or not at all.
"""

from __future__ import annotations

import importlib.util
import random
import shutil
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from benchmarks.copying import check_same, make_tree
from benchmarks.side_by_side import OURS, Comparison, Turn

FILES, SIZE = 20_000, 4096
SHARD = "32M"

Work = Callable[[Path, Path], None]
"""Packs or unpacks the first path into the second one, a new folder."""
Reader = Callable[[Path, Path], Callable[[list[str]], Iterable[bytes]]]
"""Opens the plain files or a packed set; returns what reads the files with these names."""


def comparisons(folder: Path, files: int = FILES) -> Iterator[Comparison]:
    tree = make_tree(folder / "tree", files, SIZE)
    amount, of_files = float(files), f"{files:,} files of {SIZE >> 10} KiB"
    turns = {name: _packing(name, work, tree) for name, work in _installed(PACKERS).items()}
    yield Comparison(f"pack {of_files}", turns, {"tar": 3.0}, amount, "files")
    turns = {name: _unpacking(name, work, tree) for name, work in _installed(UNPACKERS).items()}
    yield Comparison(f"unpack {of_files}", turns, {"tar": 1.5}, amount, "files", rounds=3)
    turns = {name: _reading(name, read, tree, True) for name, read in RANDOM_READERS.items()}
    yield Comparison(f"read {of_files} at random", turns, {"plain files": 1.9}, amount, "files")
    turns = {name: _reading(name, read, tree, False) for name, read in _installed(READERS).items()}
    yield Comparison(f"read {of_files} in order", turns, {}, amount, "files")


def pack_ours(tree: Path, target: Path) -> None:
    from openpai_tasks.sdk.files import packing
    from openpai_tasks.sdk.files.operations import locate_all
    from openpai_tasks.sdk.files.storages import ClusterStorages
    from openpai_tasks.settings.config import load_settings
    from openpai_tasks.storage.copying.progress import Watch

    source, packed = locate_all([str(tree), str(target)], ClusterStorages(load_settings()))
    packing.pack(source, packed, packing.packing_rules(source, "tar", SHARD), Watch())


def unpack_ours(packed: Path, target: Path) -> None:
    from openpai_tasks.sdk.files import packing
    from openpai_tasks.sdk.files.operations import locate_all
    from openpai_tasks.sdk.files.storages import ClusterStorages
    from openpai_tasks.settings.config import load_settings
    from openpai_tasks.storage.copying.copy import Rules
    from openpai_tasks.storage.copying.progress import Watch

    places = locate_all([str(packed), str(target)], ClusterStorages(load_settings()))
    packing.unpack(*places, Rules(), Watch())


def pack_by_tar(tree: Path, target: Path) -> None:
    subprocess.run(["tar", "-C", tree, "-cf", target / "all.tar", "."], check=True)


def unpack_by_tar(packed: Path, target: Path) -> None:
    subprocess.run(["tar", "-C", target, "-xf", packed / "all.tar"], check=True)


def pack_by_tarfile(tree: Path, target: Path) -> None:
    with tarfile.open(target / "all.tar", "w") as file:
        file.add(tree, ".")


def unpack_by_tarfile(packed: Path, target: Path) -> None:
    with tarfile.open(packed / "all.tar") as file:
        file.extractall(target, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))


def pack_by_tfrecord(tree: Path, target: Path) -> None:
    from tfrecord.writer import TFRecordWriter

    writer = TFRecordWriter(str(target / "all.tfrecord"))
    for name in names_in(tree):
        writer.write({"name": (name.encode(), "byte"), "content": ((tree / name).read_bytes(), "byte")})
    writer.close()


def pack_by_webdataset(tree: Path, target: Path) -> None:
    import webdataset

    with webdataset.ShardWriter(f"{target}/%06d.tar", maxsize=32 << 20, verbose=0) as writer:
        for name in names_in(tree):
            writer.write({"__key__": name.removesuffix(".bin"), "bin": (tree / name).read_bytes()})


PACKERS: Mapping[str, Work] = {
    OURS: pack_ours,
    "tar": pack_by_tar,
    "tarfile": pack_by_tarfile,
    "tfrecord": pack_by_tfrecord,
    "webdataset": pack_by_webdataset,
}
UNPACKERS: Mapping[str, Work] = {OURS: unpack_ours, "tar": unpack_by_tar, "tarfile": unpack_by_tarfile}


def read_ours(tree: Path, packed: Path) -> Callable[[list[str]], Iterable[bytes]]:
    from openpai_tasks.sdk.files.dataset import PackedDataset

    dataset = PackedDataset(packed)
    numbers = {name: number for number, name in enumerate(dataset.names)}

    def read(names: list[str]) -> Iterable[bytes]:
        rows = [numbers[name] for name in names]
        is_in_order = rows == sorted(rows)
        return (sample.data for sample in dataset) if is_in_order else (dataset[row].data for row in rows)

    return read


def read_plain_files(tree: Path, packed: Path) -> Callable[[list[str]], Iterable[bytes]]:
    def read(names: list[str]) -> Iterator[bytes]:
        for path in [f"{tree}/{name}" for name in names]:
            with open(path, "rb") as file:
                yield file.read()

    return read


def read_by_tarfile(tree: Path, packed: Path) -> Callable[[list[str]], Iterable[bytes]]:
    with tarfile.open(packed / "all.tar") as file:
        members = {member.name.removeprefix("./"): member for member in file.getmembers()}

    def read(names: list[str]) -> Iterator[bytes]:
        with tarfile.open(packed / "all.tar") as file:
            for name in names:
                yield file.extractfile(members[name]).read()

    return read


def read_by_tfrecord(tree: Path, packed: Path) -> Callable[[list[str]], Iterable[bytes]]:
    from tfrecord.reader import tfrecord_loader

    rows = tfrecord_loader(str(packed / "all.tfrecord"), None, {"content": "byte"})
    return lambda names: (bytes(row["content"]) for row in rows)


def read_by_webdataset(tree: Path, packed: Path) -> Callable[[list[str]], Iterable[bytes]]:
    import webdataset

    rows = webdataset.WebDataset(sorted(map(str, packed.glob("*.tar"))), shardshuffle=False)
    return lambda names: (row["bin"] for row in rows)


RANDOM_READERS: Mapping[str, Reader] = {
    OURS: read_ours,
    "plain files": read_plain_files,
    "tarfile": read_by_tarfile,
}
READERS: Mapping[str, Reader] = {
    **RANDOM_READERS,
    "tfrecord": read_by_tfrecord,
    "webdataset": read_by_webdataset,
}


def _installed(contenders: Mapping[str, Callable]) -> dict[str, Callable]:
    """Return those whose program or package is installed."""
    missing = {name for name in ("tfrecord", "webdataset") if importlib.util.find_spec(name) is None}
    missing |= {name for name in ("tar",) if shutil.which(name) is None}
    return {name: contender for name, contender in contenders.items() if name not in missing}


def _packing(name: str, pack: Work, tree: Path) -> Turn:
    """Return a turn that packs; the other comparisons unpack or read its result, and check it."""

    def turn() -> float:
        target = _new_folder(tree.parent / "packed" / name)
        return _timed(pack, tree, target)

    return turn


def _unpacking(name: str, unpack: Work, tree: Path) -> Turn:
    packed = _packed(name, tree)

    def turn() -> float:
        target = _new_folder(tree.parent / "unpacked" / name)
        seconds = _timed(unpack, packed, target)
        check_same(tree, target)
        shutil.rmtree(target)
        return seconds

    return turn


def _reading(name: str, reader: Reader, tree: Path, is_random: bool) -> Turn:
    packed = tree if name == "plain files" else _packed(name, tree)
    names = names_in(tree)
    if is_random:
        random.Random(len(names)).shuffle(names)
    contents = [(tree / each).read_bytes() for each in names]

    def turn() -> float:
        read = reader(tree, packed)
        start = time.perf_counter()
        found = list(read(names))
        seconds = time.perf_counter() - start
        if found != contents:
            raise RuntimeError(f"{name} read other bytes than were packed")
        return seconds

    return turn


def names_in(tree: Path) -> list[str]:
    return sorted(str(path.relative_to(tree)) for path in tree.glob("*/*"))


def _packed(name: str, tree: Path) -> Path:
    """Return the set of this contender, made when it is first needed."""
    target = tree.parent / "packed" / name
    if not target.exists():
        PACKERS[name](tree, _new_folder(target))
    return target


def _new_folder(path: Path) -> Path:
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return path


def _timed(work: Work, source: Path, target: Path) -> float:
    start = time.perf_counter()
    work(source, target)
    return time.perf_counter() - start
