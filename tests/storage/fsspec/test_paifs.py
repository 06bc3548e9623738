"""``pai://`` as fsspec, pandas and pyarrow use it, on the embedded cluster."""

from __future__ import annotations

import contextlib
import gc
import gzip
import io
import os
import pickle

import fsspec
import pytest

from openpai_tasks.storage.parts import PART
from tests.needs import require

ROOT = "pai://local/home/"


@pytest.fixture
def fs(cluster, monkeypatch):
    """The file system of a user whose embedded cluster is running; its storage is emptied after the test."""
    monkeypatch.setenv("OPENPAI_HOME", str(cluster.home))
    monkeypatch.chdir(cluster.project)
    fsspec.get_filesystem_class("pai").clear_instance_cache()
    system = fsspec.filesystem("pai")
    yield system
    for found in system.ls(ROOT, detail=False):
        system.rm(found, recursive=True)


def test_file_is_written_and_read_back(fs):
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


def test_failing_with_block_leaves_no_file(fs):
    with pytest.raises(ZeroDivisionError), fs.open(f"{ROOT}half", "wb") as file:
        file.write(b"half")
        raise ZeroDivisionError
    assert fs.ls(ROOT) == []


class Opened:
    """Closes a file at its end, whatever happens, as pandas does."""

    def __init__(self, file):
        self.file = file

    def __enter__(self):
        return self.file

    def __exit__(self, kind, error, trace):
        self.file.close()


@contextlib.contextmanager
def opened(file):
    try:
        yield file
    finally:
        file.close()


WAYS = {
    "fsspec.open": lambda fs, path: fsspec.open(path, "wb"),
    "fsspec.open text": lambda fs, path: fsspec.open(path, "w"),
    "fsspec.open gzip": lambda fs, path: fsspec.open(path, "wt", compression="gzip"),
    "open": lambda fs, path: fs.open(path, "wb"),
    "open text": lambda fs, path: fs.open(path, "w", encoding="utf-8"),
    "open gzip": lambda fs, path: fs.open(path, "wb", compression="gzip"),
    "open gzip text": lambda fs, path: fs.open(path, "wt", compression="gzip"),
    "another block": lambda fs, path: Opened(fs.open(path, "wb")),
    "a generator": lambda fs, path: opened(fs.open(path, "wb")),
    "closing": lambda fs, path: contextlib.closing(fs.open(path, "w")),
}


def fill(file):
    file.write("half" if isinstance(file, io.TextIOBase) else b"half")


@pytest.mark.parametrize("way", WAYS)
def test_failing_block_leaves_no_file_however_the_file_is_opened(fs, way):
    with pytest.raises(ZeroDivisionError), WAYS[way](fs, f"{ROOT}half") as file:
        fill(file)
        raise ZeroDivisionError
    assert fs.ls(ROOT) == []
    with WAYS[way](fs, f"{ROOT}half") as file:
        fill(file)
    content = fs.cat(f"{ROOT}half")
    assert (gzip.decompress(content) if "gzip" in way else content) == b"half"


def test_file_that_is_written_while_handling_an_error_is_kept(fs):
    early = fs.open(f"{ROOT}early", "wb")
    try:
        raise ZeroDivisionError
    except ZeroDivisionError:
        early.write(b"early")
        early.close()
        with fsspec.open(f"{ROOT}late", "wb") as file:
            file.write(b"late")

    class Reports:
        def __enter__(self):
            return self

        def __exit__(self, *error):
            with fsspec.open(f"{ROOT}report", "wb") as file:
                file.write(b"report")

    with pytest.raises(ZeroDivisionError), Reports():
        raise ZeroDivisionError
    assert sorted(fs.ls(ROOT, detail=False)) == [f"local/home/{name}" for name in ("early", "late", "report")]


@pytest.mark.parametrize("mode, compression", [("wb", None), ("w", None), ("wb", "gzip"), ("w", "gzip")])
def test_file_that_is_never_closed_is_not_written(fs, mode, compression):
    file = fs.open(f"{ROOT}half", mode, compression=compression)
    fill(file)
    with pytest.warns(RuntimeWarning, match="half: never closed"):
        del file
        gc.collect()
    assert fs.ls(ROOT) == []


def test_a_table_that_cannot_be_written_leaves_no_file(fs):
    require("pandas")
    import pandas

    class Bad:
        def __str__(self):
            raise ZeroDivisionError

    frame = pandas.DataFrame({"x": [*range(200_000), Bad()]})
    for name, compression in (("t.csv", None), ("t.csv.gz", "gzip")):
        with pytest.raises(ZeroDivisionError):
            frame.to_csv(f"{ROOT}{name}", compression=compression, chunksize=1000)
    assert fs.ls(ROOT) == []


def test_failing_block_in_a_transaction_drops_only_its_own_file(fs):
    with fs.transaction:
        with contextlib.suppress(ZeroDivisionError), fs.open(f"{ROOT}a", "wb") as file:
            file.write(b"a")
            raise ZeroDivisionError
        fs.pipe(f"{ROOT}b", b"b")
    assert fs.ls(ROOT, detail=False) == ["local/home/b"]


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


def test_file_system_operations_of_fsspec_work(fs):
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


def test_errors_are_the_built_in_ones_that_libraries_expect(fs):
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


def test_folders_are_transferred_with_put_and_get(fs, tmp_path):
    (tmp_path / "d" / "e").mkdir(parents=True)
    (tmp_path / "d" / "e" / "f").write_bytes(b"f")
    fs.put(str(tmp_path / "d"), f"{ROOT}d", recursive=True)
    fs.get(f"{ROOT}d", str(tmp_path / "back"), recursive=True)
    assert (tmp_path / "back" / "e" / "f").read_bytes() == b"f"
    part = f"{ROOT}d/{PART}0123456789abcdef"
    fs.pipe(part, b"half")
    assert fs.exists(part) and fs.find(ROOT) == [f"{ROOT}d/e/f".removeprefix("pai://")]
    fs.rm(part)


def test_file_system_can_be_pickled(fs):
    fs.pipe(f"{ROOT}f", b"f")
    assert pickle.loads(pickle.dumps(fs)).cat(f"{ROOT}f") == b"f"


def test_pandas_reads_and_writes(fs):
    require("pandas")
    import pandas

    frame = pandas.DataFrame({"x": [1, 2], "y": ["a", "b"]})
    frame.to_csv(f"{ROOT}t.csv", index=False)
    assert pandas.read_csv(f"{ROOT}t.csv").equals(frame)
    assert fs.cat(f"{ROOT}t.csv") == b"x,y\n1,a\n2,b\n"


def test_pyarrow_reads_and_writes(fs):
    require("pyarrow")
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


def test_many_files_are_opened_by_a_pattern_and_by_number(fs):
    for number in range(3):
        fs.pipe(f"{ROOT}parts/{number}.csv", f"x\n{number}\n".encode())
    fs.pipe(f"{ROOT}parts/notes.txt", b"")
    with fsspec.open_files(f"{ROOT}parts/*.csv", "rt") as files:
        assert [file.read() for file in files] == ["x\n0\n", "x\n1\n", "x\n2\n"]
    with fsspec.open_files(f"{ROOT}out/part-*.bin", "wb", num=2) as files:
        for number, file in enumerate(files):
            file.write(bytes([number]))
    assert fs.cat(f"{ROOT}out/*") == {
        "local/home/out/part-0.bin": b"\0",
        "local/home/out/part-1.bin": b"\1",
    }
    assert fs.glob(f"{ROOT}**/*.csv") == [f"local/home/parts/{number}.csv" for number in range(3)]


def test_a_tree_is_walked_and_a_range_is_read(fs):
    fs.pipe({f"{ROOT}w/a/x": b"0123456789", f"{ROOT}w/y": b"y"})
    assert list(fs.walk(f"{ROOT}w")) == [("local/home/w", ["a"], ["y"]), ("local/home/w/a", [], ["x"])]
    assert fs.cat_file(f"{ROOT}w/a/x", start=2, end=5) == b"234"
    assert fs.cat_file(f"{ROOT}w/a/x", start=-3) == b"789"
    paths = [f"{ROOT}w/a/x"] * 2
    assert fs.cat_ranges(paths, [0, 5], [2, 7]) == [b"01", b"56"]
    assert fs.tail(f"{ROOT}w/a/x", 4) == b"6789" and fs.head(f"{ROOT}w/a/x", 2) == b"01"


@pytest.mark.parametrize("kind", ["readahead", "bytes", "all", "blockcache", "background", "none", "mmap"])
def test_every_cache_type_reads_the_same_content(fs, kind):
    content = os.urandom(300_000)
    fs.pipe(f"{ROOT}f", content)
    with fs.open(f"{ROOT}f", "rb", block_size=10_000, cache_type=kind) as file:
        for start, count in ((0, 10), (299_990, 100), (150_000, 30_000), (149_990, 20), (5, 0)):
            file.seek(start)
            assert file.read(count) == content[start : start + count]
        file.seek(0)
        assert file.read() == content


def test_mapper_for_chunked_data_works(fs):
    chunks = fsspec.get_mapper(f"{ROOT}array.zarr")
    chunks["0.0"] = b"chunk"
    chunks[".zgroup"] = b"{}"
    assert sorted(chunks) == [".zgroup", "0.0"] and chunks["0.0"] == b"chunk" and "1.0" not in chunks
    del chunks["0.0"]
    assert list(chunks) == [".zgroup"]


def test_local_cache_works(fs, tmp_path):
    fs.pipe(f"{ROOT}f", b"cached")
    with fsspec.open(f"simplecache::{ROOT}f", simplecache={"cache_storage": str(tmp_path)}) as file:
        assert file.read() == b"cached"
    assert fsspec.open_local(f"simplecache::{ROOT}f", simplecache={"cache_storage": str(tmp_path)})


@pytest.mark.parametrize("mode", ["wb", "wt"])
@pytest.mark.parametrize("cache", ["simplecache", "filecache", "blockcache"])
def test_file_written_through_a_cache_is_complete_or_absent(fs, tmp_path, cache, mode):
    options = {cache: {"cache_storage": str(tmp_path / "cache")}}
    content = "some\n" * 1000 if mode == "wt" else os.urandom(300_000)
    with fsspec.open(f"{cache}::{ROOT}new/f", mode, **options) as file:
        file.write(content)
    assert fs.cat(f"{ROOT}new/f") == (content.encode() if mode == "wt" else content)

    with pytest.raises(ZeroDivisionError), fsspec.open(f"{cache}::{ROOT}new/half", mode, **options) as file:
        file.write(content)
        raise ZeroDivisionError
    assert fs.ls(f"{ROOT}new", detail=False) == ["local/home/new/f"]
    with pytest.raises(FileNotFoundError), fsspec.open(f"{cache}::{ROOT}new/half", "rb", **options) as file:
        file.read()


def test_cache_with_check_files_sees_a_new_file(fs, tmp_path):
    options = {"filecache": {"cache_storage": str(tmp_path), "check_files": True}}
    for content in (b"first", b"second one"):
        fs.pipe(f"{ROOT}f", content)
        with fsspec.open(f"filecache::{ROOT}f", "rb", **options) as file:
            assert file.read() == content


def test_cached_file_can_be_written_while_another_block_fails(fs, tmp_path):
    class Reports:
        def __enter__(self): ...

        def __exit__(self, *error):
            cached = {"cache_storage": str(tmp_path)}
            with fsspec.open(f"simplecache::{ROOT}report", "wb", simplecache=cached) as file:
                file.write(b"what went wrong")

    with pytest.raises(ZeroDivisionError), Reports():
        raise ZeroDivisionError
    assert fs.cat(f"{ROOT}report") == b"what went wrong"


def test_a_compressed_text_is_read_by_lines(fs):
    with fsspec.open(f"{ROOT}t.gz", "wt", compression="gzip", encoding="utf-8") as file:
        file.write("é\nb\n")
    with fsspec.open(f"{ROOT}t.gz", "rt", compression="infer", encoding="utf-8") as file:
        assert list(file) == ["é\n", "b\n"]


def test_open_file_can_be_pickled(fs):
    fs.pipe(f"{ROOT}f", b"0123456789")
    with fs.open(f"{ROOT}f", "rb") as file:
        file.seek(4)
        twin = pickle.loads(pickle.dumps(file))
    assert twin.read(3) == b"456"
    opener = pickle.loads(pickle.dumps(fsspec.open(f"{ROOT}f", "rb")))
    with opener as file:
        assert file.read(2) == b"01"


def test_forked_child_opens_its_own_connections(fs):
    fs.pipe(f"{ROOT}f", b"f")
    before = fs._book
    child = os.fork()
    if child == 0:
        os._exit(0 if fs._book is not before and fs.cat(f"{ROOT}f") == b"f" else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert fs._book is before


def test_opening_a_folder_is_an_error(fs):
    fs.mkdir(f"{ROOT}d")
    with pytest.raises(IsADirectoryError):
        fs.open(f"{ROOT}d", "rb")


def test_numpy_arrays_are_read_from_an_open_file(fs):
    import numpy

    with fs.open(f"{ROOT}a.npz", "wb") as file:
        numpy.savez(file, a=numpy.arange(10), b=numpy.ones((3, 3)))
    with fs.open(f"{ROOT}a.npz", "rb") as file, numpy.load(file) as found:
        assert found["a"].tolist() == list(range(10)) and found["b"].shape == (3, 3)


def test_pandas_reads_a_parquet_file_and_its_columns(fs):
    require("pandas", "pyarrow")
    import pandas

    frame = pandas.DataFrame({"x": range(1000), "y": [str(number) for number in range(1000)]})
    frame.to_parquet(f"{ROOT}t.parquet")
    assert pandas.read_parquet(f"{ROOT}t.parquet", columns=["x"])["x"].sum() == 499_500
