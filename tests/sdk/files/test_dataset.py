"""Packed files as a data set: by number, by name, in order, in other processes, and by ranges only."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import subprocess
import sys
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import openpai_tasks
from openpai_tasks.errors import NotFound, PathError
from openpai_tasks.sdk.files import packing
from openpai_tasks.sdk.files.dataset import PackedDataset, Sample
from openpai_tasks.storage.copying.progress import Watch
from openpai_tasks.storage.local.store import LocalStore
from openpai_tasks.storage.location import Location
from openpai_tasks.storage.packing import packed_set
from tests.processes import open_files
from tests.storage.trees import plant

FORMATS = ("tar", "tfrecord", "sequencefile")
COUNT = 60
CONTENT = {
    **{f"train/{number:04d}.jpg": bytes([number]) * (100 + number) for number in range(COUNT)},
    **{f"train/{number:04d}.txt": f"label {number}".encode() for number in range(COUNT)},
}
TREE = {**CONTENT, "train/0003.jpg": b"", "README": b"read me", "empty/": None}
NAMES = ["README", *sorted(CONTENT)]


def packed(tree, target, **options):
    rules = packing.packing_rules(
        tree, options.pop("format", "tar"), options.pop("shard_size", "8K"), **options
    )
    packing.pack(tree, target, rules, Watch())


def here(path):
    return Location(LocalStore(), str(path), str(path))


@pytest.fixture(params=FORMATS)
def folder(request, tmp_path):
    """A set in several shards."""
    plant(here(tmp_path / "tree"), TREE)
    packed(here(tmp_path / "tree"), here(tmp_path / "set"), format=request.param)
    return tmp_path / "set"


@pytest.fixture
def reads(monkeypatch):
    """The number of bytes of every range that is read from a shard, open or not."""
    found = []
    real, pread = LocalStore.read, os.pread

    def counted(self, path, offset=0, length=None):
        if not path.endswith(".jsonl"):
            found.append(length)
        return real(self, path, offset, length)

    def counted_pread(handle, length, offset):
        found.append(length)
        return pread(handle, length, offset)

    monkeypatch.setattr(LocalStore, "read", counted)
    monkeypatch.setattr(os, "pread", counted_pread)
    return found


def test_items_are_found_by_number_and_name(folder):
    dataset = PackedDataset(folder)
    assert len(dataset) == 2 * COUNT + 1
    assert dataset[0] == Sample("README", b"read me") == ("README", b"read me")
    assert dataset[-1] == Sample(f"train/{COUNT - 1:04d}.txt", f"label {COUNT - 1}".encode())
    assert dataset[-len(dataset)] == dataset[0]
    assert dataset["train/0007.txt"].data == b"label 7"
    assert dataset["train/0003.jpg"].data == b""
    assert [sample.name for sample in dataset[1:4]] == NAMES[1:4] and dataset[5:5] == []
    assert dataset[::-40] == [dataset[-1], dataset[-41], dataset[-81], dataset[-121]]
    assert "README" in dataset and "train" not in dataset and 3 not in dataset
    assert list(dataset.names) == NAMES


def test_missing_items_raise_built_in_exceptions(folder):
    dataset = PackedDataset(folder)
    for number in (len(dataset), -len(dataset) - 1):
        with pytest.raises(IndexError):
            dataset[number]
    with pytest.raises(KeyError):
        dataset["missing"]
    with pytest.raises(TypeError):
        dataset[1.5]


def test_all_items_come_in_the_order_of_their_names(folder):
    items = list(PackedDataset(str(folder)))
    assert {item.name: item.data for item in items} == {name: TREE[name] for name in NAMES}
    assert [item.name for item in items] == NAMES


def test_grouped_files_of_a_sample_are_one_item(folder):
    dataset = PackedDataset(folder, group=True)
    assert len(dataset) == COUNT + 1
    assert dataset[8] == {"__key__": "train/0007", "jpg": bytes([7]) * 107, "txt": b"label 7"}
    assert dataset["train/0007"] == dataset[8] and dataset[0] == {"__key__": "README", "": b"read me"}
    assert list(dataset) == dataset[:] and dataset.names[8] == "train/0007"
    with pytest.raises(KeyError):
        dataset["train/0007.jpg"]


def test_reading_an_item_reads_only_its_range(folder, reads):
    dataset = PackedDataset(folder)
    reads.clear()
    assert dataset["train/0009.jpg"].data == bytes([9]) * 109
    assert reads == [109]
    dataset["train/0003.jpg"]
    assert reads == [109]  # an empty item causes no read


def test_adjacent_items_are_read_together(tmp_path, reads):
    plant(here(tmp_path / "tree"), TREE)
    packed(here(tmp_path / "tree"), here(tmp_path / "set"), shard_size="1G")
    dataset = PackedDataset(tmp_path / "set")
    reads.clear()
    assert dataset.__getitems__([5, 9, 6, 5]) == [dataset[5], dataset[9], dataset[6], dataset[5]]
    assert len(reads) == 1 + 4
    reads.clear()
    assert len(list(dataset)) == len(dataset)
    assert len(reads) == 1


def test_large_files_are_read_in_bounded_ranges(tmp_path, reads):
    size = 3 << 20
    plant(here(tmp_path / "tree"), {f"{number}.bin": bytes([number]) * size for number in range(7)})
    packed(here(tmp_path / "tree"), here(tmp_path / "set"), shard_size="1G")
    dataset = PackedDataset(tmp_path / "set")
    reads.clear()
    assert [item.data == bytes([number]) * size for number, item in enumerate(dataset)] == [True] * 7
    assert len(reads) == 4 and max(reads) <= 8 << 20


def test_damaged_or_missing_shard_is_an_error(folder):
    dataset = PackedDataset(folder)
    shard = sorted(folder.glob("tree-*"))[0]
    content = bytearray(shard.read_bytes())
    at = content.index(b"read me")
    content[at] ^= 1
    shard.write_bytes(content)
    with pytest.raises(PathError, match="'README' in it is damaged"):
        dataset[0]
    assert dataset[1].name == NAMES[1]
    shard.write_bytes(content[:-1])
    with pytest.raises(PathError, match="truncated or changed"):
        PackedDataset(folder)
    shard.write_bytes(content[: at + 3])
    with pytest.raises(PathError, match="it was truncated"):
        dataset[0]
    shard.unlink()
    with pytest.raises(NotFound):
        dataset[0]
    with pytest.raises(NotFound):
        PackedDataset(folder / "elsewhere")


def test_shard_that_is_repaired_meanwhile_is_read_again(folder):
    dataset = PackedDataset(folder)
    shard = sorted(folder.glob("tree-*"))[0]
    intact = shard.read_bytes()
    shard.write_bytes(intact.replace(b"read me", b"read ME"))
    with pytest.raises(PathError, match="'README' in it is damaged"):
        dataset[0]
    (folder / "intact").write_bytes(intact)
    (folder / "intact").rename(shard)
    assert dataset[0].data == b"read me"


def open_in(folder):
    """Return how many files of the folder this process has open."""
    return sum(target.startswith(str(folder)) for _, target in open_files(Path("/proc/self")))


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="only Linux shows what is open")
def test_only_a_few_shards_stay_open(folder, monkeypatch):
    monkeypatch.setattr(packed_set, "MOST_OPEN", 1)
    dataset = PackedDataset(folder)
    assert len({*dataset._index.shard}) > 1
    with ThreadPoolExecutor(4) as pool:
        items = list(pool.map(dataset.__getitem__, [*range(len(dataset))] * 3))
    assert items == list(dataset) * 3
    assert open_in(folder) == 1
    del dataset
    assert open_in(folder) == 0


def test_shards_without_an_index_are_a_dataset_too(folder):
    (folder / "index.jsonl").unlink()
    one = sorted(folder.glob("tree-*"))[0]
    assert PackedDataset(f"{folder}/tree-*")["train/0007.txt"].data == b"label 7"
    assert 0 < len(PackedDataset(one)) < len(NAMES)


def test_dataset_is_public_and_small_when_pickled(folder):
    assert openpai_tasks.PackedDataset is PackedDataset
    dataset = PackedDataset(folder)
    assert repr(str(folder)) in repr(dataset)
    state = pickle.dumps(dataset)
    assert len(state) < 100 * len(dataset)
    assert pickle.loads(state)[3] == dataset[3]


def test_relative_path_stays_valid_after_a_change_of_directory(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    dataset = PackedDataset("set")
    monkeypatch.chdir("/")
    assert pickle.loads(pickle.dumps(dataset))[0] == dataset[0]


def read_all(dataset):
    """Read every item, in another process."""
    return [dataset[number] for number in range(len(dataset))]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_dataset_is_read_in_other_processes(tmp_path, method):
    plant(here(tmp_path / "tree"), TREE)
    packed(here(tmp_path / "tree"), here(tmp_path / "set"))
    dataset = PackedDataset(tmp_path / "set")
    first = dataset[0]  # so that it is open already
    with multiprocessing.get_context(method).Pool(2) as pool:
        for found in pool.map(read_all, [dataset, dataset]):
            assert found == list(dataset) and found[0] == first


def test_a_forked_process_opens_its_own_connections(folder):
    dataset = PackedDataset(folder)
    dataset[0]
    opened = dataset._opened
    child = multiprocessing.get_context("fork").Process(
        target=lambda: os._exit(int(dataset[0] is None or dataset._opened is opened))
    )
    child.start()
    child.join()
    assert child.exitcode == 0 and dataset._opened is opened


@pytest.mark.parametrize("group", [False, True])
def test_workers_of_torch_share_the_items(folder, monkeypatch, group):
    """The worker info comes from a fake torch module, so that torch need not be installed."""
    dataset = PackedDataset(folder, group=group)
    whole = list(dataset)
    for workers in (1, 2, 7, 200):
        shares = []
        for number in range(workers):
            info = types.SimpleNamespace(id=number, num_workers=workers)
            torch = types.SimpleNamespace(get_worker_info=lambda info=info: info)
            monkeypatch.setitem(sys.modules, "torch.utils.data", torch)
            shares.append(list(dataset))
        assert [item for share in shares for item in share] == whole
        assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_numpy_is_not_loaded(folder):
    code = "import sys, openpai_tasks as o; o.PackedDataset(sys.argv[1])[0]; print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_dataset_is_read_from_a_cluster_by_its_url(cluster, monkeypatch, tmp_path):
    monkeypatch.setenv("OPENPAI_HOME", str(cluster.home))
    monkeypatch.chdir(cluster.project)
    plant(here(Path(cluster.project) / "tree"), TREE)
    cluster.ok("storage.pack", "tree", "pai://local/home/set", "--shard-size", "8K")
    dataset = PackedDataset("pai://local/home/set")
    assert dataset.url == "pai://local/home/set" and list(dataset.names) == NAMES
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(read_all, [dataset]) == list(dataset)
