"""``pai://`` in fsspec never loses a file: moves and copies onto itself, and names with wildcards."""

from __future__ import annotations

import os
import socket

import pytest

from openpai_tasks.errors import NotFound
from openpai_tasks.net.retry import RetryPolicy
from openpai_tasks.storage.fsspec.filesystem import ClusterFileSystem
from openpai_tasks.storage.hdfs.store import HdfsStore
from openpai_tasks.storage.local.store import LocalStore
from openpai_tasks.storage.location import Location
from openpai_tasks.storage.store import StorageSpec
from tests.storage import pfs_server
from tests.storage.stores import s3
from tests.storage.trees import plant, seen

ROOT = "pai://lab/one/"


class Book:
    """A cluster whose storages are these stores; the user is root."""

    def __init__(self, stores):
        self.stores = stores

    def storages(self, cluster):
        return tuple(self.stores)

    def opened(self, cluster, storage):
        if storage not in self.stores:
            raise NotFound(f"no storage named {storage!r}", 404)
        return StorageSpec(cluster, storage, "local", {}, user="root"), self.stores[storage]

    def cluster_url(self, path):
        return ""


class StoresFileSystem(ClusterFileSystem):
    cachable = False

    def __init__(self, stores):
        super().__init__()
        self.stores = stores

    def make_book(self):
        return Book(self.stores)


@pytest.fixture
def place(tmp_path):
    (tmp_path / "one").mkdir()
    return Location(LocalStore(str(tmp_path / "one")), "/", ROOT)


@pytest.fixture
def fs(place, tmp_path):
    """Storages of one cluster: ``one`` by three names, ``other``, and a read-only one."""
    (tmp_path / "other").mkdir()
    one, twin = place.store, LocalStore(place.store.root)
    other, fixed = LocalStore(str(tmp_path / "other")), LocalStore(str(tmp_path / "other"), read_only=True)
    return StoresFileSystem({"one": one, "0": one, "twin": twin, "other": other, "fixed": fixed})


TREE = {"keep.bin": b"keep", "root.y": b"y", "d/f": b"f", "d/e/g": b"g", "z/z/z": b"z", "t/": None}
ITSELF = [
    ("one/keep.bin", "one/keep.bin"),
    ("one/keep.bin", "0/keep.bin"),
    ("one/keep.bin", "twin/keep.bin"),
    ("one/${PAI_USER_NAME}.y", "one/root.y"),
    ("one//d/f", "one/d/f"),
    ("one/d/./f", "one/d/f"),
    ("one/d/f", "one/d/"),
    ("one/./d", "one/d"),
    ("one/d", "one/d/"),
    ("one/d", "one/d/sub"),
    ("one/d", "twin/d/e/sub"),
    ("one/z/z", "one/z"),
    ("one/z/z", "twin/z/"),
    (["one/keep.bin", "one/d"], "one/"),
    (["one/d"], ["twin/d"]),
]


def named(paths):
    return [f"pai://lab/{path}" for path in paths] if isinstance(paths, list) else f"pai://lab/{paths}"


@pytest.mark.parametrize("verb", ["mv", "cp"])
@pytest.mark.parametrize("source, target", ITSELF, ids=str)
def test_path_is_not_moved_or_copied_onto_or_into_itself(fs, place, verb, source, target):
    plant(place, TREE)
    with pytest.raises(OSError, match=r"are the same|into itself"):
        getattr(fs, verb)(named(source), named(target), recursive=True)
    assert seen(place) == TREE


@pytest.fixture
def twins(hdfs, request):
    """One folder of HDFS as two storages, by the number and by the name of its name node."""
    port, root = hdfs.name_node.partition(":")[2], f"/{request.node.name}"
    stores = {"one": HdfsStore([hdfs.name_node], "root", root=root)}
    stores["twin"] = HdfsStore([f"localhost:{port}"], "root", root=root)
    yield StoresFileSystem(stores)
    stores["one"].remove("/", recursive=True)
    for store in stores.values():
        store.close()


def test_path_is_not_moved_onto_itself_by_another_host_name_of_hdfs(twins):
    place = Location(twins.stores["one"], "/", ROOT)
    plant(place, {"keep.bin": b"keep", "d/e/g": b"g"})
    with pytest.raises(OSError, match="are the same"):
        twins.mv(f"{ROOT}keep.bin", "pai://lab/twin/keep.bin")
    with pytest.raises(OSError, match="are the same"):
        twins.cp(f"{ROOT}keep.bin", "pai://lab/twin/")
    with pytest.raises(OSError, match="into itself"):
        twins.mv(f"{ROOT}d", "pai://lab/twin/d/e", recursive=True)
    assert seen(place) == {"keep.bin": b"keep", "d/e/g": b"g"}
    twins.mv(f"{ROOT}keep.bin", "pai://lab/twin/d/e/g")
    twins.mv(f"{ROOT}d", f"{ROOT}new", recursive=True)
    assert seen(place) == {"new/e/g": b"keep"}


@pytest.mark.parametrize("to", ["one", "twin", "other"])
def test_files_and_folders_are_moved(fs, to):
    root = f"pai://lab/{to}/"
    for name in ("f", "d/x", "d/e/y", "old", "g1", "g2"):
        fs.pipe(ROOT + name, name.encode())
    fs.mv(f"{ROOT}f", f"{root}new/name")
    fs.mv(f"{ROOT}d", f"{root}moved", recursive=True)
    fs.pipe(f"{root}taken", b"before")
    fs.mv(f"{ROOT}old", f"{root}taken")
    fs.mkdir(f"{root}into")
    fs.mv(f"{ROOT}g?", f"{root}into")
    assert fs.cat(f"{root}taken") == b"old" and fs.cat(f"{root}new/name") == b"f"
    assert fs.find(f"{root}moved") == [f"lab/{to}/moved/e/y", f"lab/{to}/moved/x"]
    assert fs.find(f"{root}into") == [f"lab/{to}/into/g1", f"lab/{to}/into/g2"]
    assert not [name for name in ("f", "d", "old", "g1", "g2") if fs.exists(ROOT + name)]


def test_move_within_a_storage_is_a_rename(fs, place):
    plant(place, {"d/f": b"f"})
    number = os.stat(f"{place.store.root}/d/f").st_ino
    fs.mv(f"{ROOT}d", f"{ROOT}e", recursive=True)
    assert os.stat(f"{place.store.root}/e/f").st_ino == number


def test_moved_folders_are_merged_and_impossible_moves_change_nothing(fs, place):
    plant(place, {"d/x": b"x", "d/y": b"new", "t/d/y": b"old", "t/d/z": b"z", "file": b"file"})
    fs.mv(f"{ROOT}d", f"{ROOT}t", recursive=True)
    assert seen(place) == {"t/d/x": b"x", "t/d/y": b"new", "t/d/z": b"z", "file": b"file"}
    with pytest.raises(IsADirectoryError, match="recursive=True moves it"):
        fs.mv(f"{ROOT}t", f"{ROOT}u")
    with pytest.raises(NotADirectoryError):
        fs.mv(f"{ROOT}t", f"{ROOT}file", recursive=True)
    with pytest.raises(IsADirectoryError):
        fs.mv([f"{ROOT}file"], [f"{ROOT}t"])
    with pytest.raises(OSError, match="could be removed with it"):
        fs.mv(f"{ROOT}t/d/", f"{ROOT}t", recursive=True)
    with pytest.raises(ValueError, match="copy it"):
        fs.mv(f"{ROOT}t", f"{ROOT}u", recursive=True, maxdepth=1)
    with pytest.raises(PermissionError, match="never moved"):
        fs.mv(ROOT, "pai://lab/other/u", recursive=True)
    with pytest.raises(FileNotFoundError):
        fs.mv(f"{ROOT}none", f"{ROOT}u")
    assert seen(place) == {"t/d/x": b"x", "t/d/y": b"new", "t/d/z": b"z", "file": b"file"}


def test_source_of_an_incomplete_move_is_kept(fs, place):
    plant(place, {"d/x": b"x", "d/y": b"y"})
    os.mkfifo(f"{place.store.root}/d/pipe")
    with pytest.raises(OSError, match="was not moved: /d/pipe: neither a file nor a folder"):
        fs.mv(f"{ROOT}d", "pai://lab/other/d", recursive=True)
    with pytest.raises(PermissionError, match="read-only"):
        fs.mv(f"{ROOT}d/x", "pai://lab/fixed/x")
    os.remove(f"{place.store.root}/d/pipe")
    assert seen(place) == {"d/x": b"x", "d/y": b"y"}


def test_folders_of_a_bucket_are_moved(tmp_path):
    with s3(tmp_path) as bucket:
        system = StoresFileSystem({"one": bucket.store})
        plant(bucket, {"d/e/x": b"x", "d/y": b"y", "f": b"f"})
        system.mv(f"{ROOT}d", f"{ROOT}new", recursive=True)
        system.mv(f"{ROOT}f", f"{ROOT}new/y")
        assert seen(bucket) == {"new/e/x": b"x", "new/y": b"f"}


def test_file_is_not_downloaded_onto_itself(fs, place):
    plant(place, {"f": b"kept"})
    with pytest.raises(OSError, match="are the same"):
        fs.get(f"{ROOT}f", f"{place.store.root}/f")
    assert seen(place) == {"f": b"kept"}


def test_existing_name_with_wildcards_is_not_a_pattern(fs, place):
    tree = {"a[1].txt": b"b", "a1.txt": b"1", "d[1]/x": b"bx", "d1/x": b"1x", "q?": b"?", "qq": b"q"}
    plant(place, tree)
    assert fs.cat(f"{ROOT}a[1].txt") == b"b" and fs.glob(f"{ROOT}d[1]/*") == ["lab/one/d[1]/x"]
    assert fs.glob(f"{ROOT}a[12].txt") == ["lab/one/a1.txt"] and len(fs.glob(f"{ROOT}q?")) == 1
    fs.cp(f"{ROOT}d[1]", f"{ROOT}copy", recursive=True)
    assert fs.cat(f"{ROOT}copy/x") == b"bx"
    for path in ("a[1].txt", "d[1]/*", "q?", "copy"):
        fs.rm(ROOT + path, recursive=True)
    assert seen(place) == {"a1.txt": b"1", "d1/x": b"1x", "d[1]/": None, "qq": b"q"}
    fs.rm(f"{ROOT}*", recursive=True)
    assert seen(place) == {}
    with pytest.raises(PermissionError):
        fs.rm(ROOT, recursive=True)


@pytest.mark.parametrize("ask", ["exists", "isfile", "isdir", "lexists"])
def test_unreachable_storage_raises_instead_of_returning_false(ask):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # and never listens
        store = HdfsStore([f"127.0.0.1:{silent.getsockname()[1]}"], "root", retries=RetryPolicy(1, 0.2))
        with pytest.raises(ConnectionError):
            getattr(StoresFileSystem({"one": store}), ask)(f"{ROOT}f")
        store.close()


def test_exists_isfile_and_isdir_are_right(fs, place):
    plant(place, {"f": b"f", "d/": None})
    assert fs.exists(f"{ROOT}f") and fs.isfile(f"{ROOT}f") and not fs.isdir(f"{ROOT}f")
    assert fs.isdir(f"{ROOT}d") and not fs.isfile(f"{ROOT}d")
    for path in (f"{ROOT}none", f"{ROOT}f/none", "pai://lab/none/x"):
        assert not (fs.exists(path) or fs.isfile(path) or fs.isdir(path))


@pytest.mark.parametrize("size", [10, 20])
def test_reader_does_not_mix_two_versions_of_a_file(fs, place, size):
    fs.pipe(f"{ROOT}f", b"x" * 10)
    place.store.set_mtime("/f", 1_000_000)  # the clock of a file system may tick only every 4 ms
    with fs.open(f"{ROOT}f", block_size=4) as file:
        assert file.read(2) == b"xx"
        fs.pipe(f"{ROOT}f", b"y" * size)
        with pytest.raises(OSError, match="was changed while it was read"):
            file.read()
    assert fs.cat(f"{ROOT}f") == b"y" * size


@pytest.mark.parametrize("name", ["same", "folder"])
def test_what_two_kinds_of_stores_share_is_never_moved_onto_itself(name):
    server = pfs_server.shared()
    place = server.home / f"moves-{name}-{os.getpid()}"
    (place / "folder").mkdir(parents=True, exist_ok=True)
    for path in (place / "same", place / "folder" / "file"):
        path.write_text("kept")
    fs = StoresFileSystem({"here": LocalStore(str(place)), "there": server.store()})
    here, there = f"pai://lab/here/{name}", f"pai://lab/there/home/{server.user}/{place.name}/{name}"
    for source, target in ((here, there), (there, here)):
        with pytest.raises(OSError, match="they are the same place"):
            fs.mv(source, target, recursive=True)
    assert [path.read_text() for path in (place / "same", place / "folder" / "file")] == ["kept"] * 2
    assert sorted(os.listdir(place)) == ["folder", "same"]
    fs.mv(f"pai://lab/here/{name}", f"{there}-new", recursive=True)
    assert (place / f"{name}-new").exists() and not (place / name).exists()
