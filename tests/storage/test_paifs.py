"""``pai://`` as fsspec, pandas and pyarrow use it, on the embedded cluster."""

from __future__ import annotations

import os
import pickle

import fsspec
import pytest

from openpai_tasks.storage.transfer import PART

ROOT = "pai://local/home/"


@pytest.fixture
def fs(cluster, monkeypatch):
    """The file system of a user whose embedded cluster is running, and a folder of the test's own."""
    monkeypatch.setenv("OPENPAI_HOME", str(cluster.home))
    monkeypatch.chdir(cluster.project)
    fsspec.get_filesystem_class("pai").clear_instance_cache()
    system = fsspec.filesystem("pai")
    yield system
    for found in system.ls(ROOT, detail=False):
        system.rm(found, recursive=True)


def test_a_file_is_written_and_read(fs):
    with fsspec.open(f"{ROOT}a/b.txt", "wb") as file:
        file.write(b"one\n")
        file.write(b"two\n")
        assert not fs.exists(f"{ROOT}a/b.txt")
    with fsspec.open(f"{ROOT}a/b.txt", "rt") as file:
        assert file.readlines() == ["one\n", "two\n"]
    assert fs.cat(f"{ROOT}a/b.txt") == b"one\ntwo\n"
    assert fs.ls(f"{ROOT}a", detail=False) == ["local/home/a/b.txt"]


def test_reading_seeks_and_reads_ahead(fs):
    content = os.urandom(3_000_000)
    fs.pipe(f"{ROOT}big", content)
    with fs.open(f"{ROOT}big", "rb", block_size=100_000) as file:
        for start in (0, 2_999_990, 1_234_567, 5):
            file.seek(start)
            assert file.read(1000) == content[start : start + 1000]
        before = file.cache.miss_count
        file.seek(1_000_000)
        for _ in range(100):
            file.read(1000)
        assert file.cache.miss_count - before <= 3
        file.seek(-4, os.SEEK_END)
        assert file.read() == content[-4:]


def test_a_block_that_fails_leaves_no_file(fs):
    with pytest.raises(ZeroDivisionError), fs.open(f"{ROOT}half", "wb") as file:
        file.write(b"half")
        raise ZeroDivisionError
    assert fs.ls(ROOT) == []


def test_a_transaction_is_all_or_nothing(fs):
    with pytest.raises(ZeroDivisionError), fs.transaction:
        with fs.open(f"{ROOT}a", "wb") as file:
            file.write(b"a")
        raise ZeroDivisionError
    assert fs.ls(ROOT) == []
    with fs.transaction:
        with fs.open(f"{ROOT}a", "wb") as file:
            file.write(b"a")
        assert not fs.exists(f"{ROOT}a")
    assert fs.cat(f"{ROOT}a") == b"a"


def test_the_verbs_of_fsspec_work(fs):
    fs.makedirs(f"{ROOT}d/e")
    with pytest.raises(FileExistsError):
        fs.mkdir(f"{ROOT}d")
    fs.makedirs(f"{ROOT}d", exist_ok=True)
    fs.pipe({f"{ROOT}d/1": b"1", f"{ROOT}d/e/2": b"22"})
    assert fs.find(f"{ROOT}d") == ["local/home/d/1", "local/home/d/e/2"]
    assert fs.glob(f"{ROOT}d/*") == ["local/home/d/1", "local/home/d/e"]
    assert fs.du(f"{ROOT}d") == 3 and fs.isdir(f"{ROOT}d/e") and fs.isfile(f"{ROOT}d/1")
    fs.cp(f"{ROOT}d/1", f"{ROOT}d/copy")
    fs.mv(f"{ROOT}d/copy", f"{ROOT}d/moved")
    assert fs.cat(f"{ROOT}d/moved") == b"1" and not fs.exists(f"{ROOT}d/copy")
    assert fs.modified(f"{ROOT}d/1").year >= 2024
    fs.rm(f"{ROOT}d", recursive=True)
    assert fs.ls(ROOT) == [] and fs.ls("pai://local/", detail=False) == ["local/home"]


def test_errors_are_those_that_libraries_look_for(fs):
    for act in (fs.info, fs.cat, fs.ls):
        with pytest.raises(FileNotFoundError):
            act(f"{ROOT}none")
    with pytest.raises(FileNotFoundError):
        fs.info("pai://local/none/x")
    with pytest.raises(PermissionError):
        fs.rm(ROOT, recursive=True)
    with pytest.raises(NotImplementedError):
        fs.open(f"{ROOT}x", "ab")
    fs.touch(f"{ROOT}x")
    with pytest.raises(FileExistsError):
        fs.open(f"{ROOT}x", "xb")


def test_files_come_and_go_by_put_and_get(fs, tmp_path):
    (tmp_path / "d" / "e").mkdir(parents=True)
    (tmp_path / "d" / "e" / "f").write_bytes(b"f")
    fs.put(str(tmp_path / "d"), f"{ROOT}d", recursive=True)
    fs.get(f"{ROOT}d", str(tmp_path / "back"), recursive=True)
    assert (tmp_path / "back" / "e" / "f").read_bytes() == b"f"
    assert not [name for name in fs.find(ROOT) if PART in name]


def test_it_can_be_sent_to_another_process(fs):
    fs.pipe(f"{ROOT}f", b"f")
    assert pickle.loads(pickle.dumps(fs)).cat(f"{ROOT}f") == b"f"


def test_pandas_reads_and_writes(fs):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"x": [1, 2], "y": ["a", "b"]})
    frame.to_csv(f"{ROOT}t.csv", index=False)
    assert pandas.read_csv(f"{ROOT}t.csv").equals(frame)
    assert fs.cat(f"{ROOT}t.csv") == b"x,y\n1,a\n2,b\n"


def test_pyarrow_reads_and_writes(fs):
    pytest.importorskip("pyarrow")
    from pyarrow import dataset, parquet, table
    from pyarrow.fs import FSSpecHandler, PyFileSystem

    numbers = table({"x": list(range(1000)), "part": ["a", "b"] * 500})
    arrow = PyFileSystem(FSSpecHandler(fs))
    parquet.write_table(numbers, "local/home/t.parquet", filesystem=arrow)
    assert parquet.read_table("local/home/t.parquet", columns=["x"], filesystem=arrow) == numbers.select(
        ["x"]
    )
    dataset.write_dataset(
        numbers, "local/home/parts", format="parquet", partitioning=["part"], filesystem=arrow
    )
    assert dataset.dataset("local/home/parts", filesystem=arrow, partitioning=["part"]).count_rows() == 1000
