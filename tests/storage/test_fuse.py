"""A storage as a folder of this machine: mounted for real."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import signal
from functools import partial
from pathlib import Path

import pytest

from openpai_tasks.errors import PathError
from openpai_tasks.sdk.files import mounting
from openpai_tasks.storage.location import ClusterStore, Location, open_storage
from openpai_tasks.storage.store import StorageSpec
from tests.needs import needs
from tests.storage import object_servers
from tests.storage.relay import Fault, Relay
from tests.storage.stores import STORES, s3_data
from tests.storage.trees import at, plant, seen

pytestmark = [pytest.mark.root, needs("fusermount3")]  # /dev/fuse may be root's

TREE = {
    "a/big.bin": os.urandom((5 << 20) + 17),
    "a/empty": b"",
    "b c/é.txt": b"odd",
    "none/": None,
}


@contextlib.contextmanager
def mounted(place, folder, write=False):
    said, before = [], children()
    mounting.mount_in_background(place, str(folder), write, said.append)
    (child,) = children() - before
    try:
        yield said
    finally:
        mounting.unmount(str(folder))
        os.waitpid(child, 0)


@pytest.mark.parametrize("kind", ["local", "hdfs", "s3"])
def test_programs_read_and_change_files_of_any_storage(kind, tmp_path, here):
    with STORES[kind](tmp_path) as there:
        plant(at(there, "data"), TREE)
        mnt = at(here, "mnt")
        with mounted(at(there, "data"), mnt.path, write=True):
            assert seen(mnt) == TREE
            with open(f"{mnt.path}/a/big.bin", "rb") as file:
                for offset in (4 << 20, 1000, (5 << 20) + 10):
                    assert os.pread(file.fileno(), 100, offset) == TREE["a/big.bin"][offset : offset + 100]
            with open(f"{mnt.path}/new", "w+b") as file:
                file.write(b"x" * 3_000_000)
                file.seek(1)
                file.write(b"yz")
                file.seek(0)
                assert file.read(4) == b"xyzx"
            with open(f"{mnt.path}/new", "ab") as file:
                file.write(b"end")
            os.truncate(f"{mnt.path}/b c/é.txt", 2)
            os.mkdir(f"{mnt.path}/made")
            os.rename(f"{mnt.path}/new", f"{mnt.path}/made/moved")
            os.unlink(f"{mnt.path}/a/empty")
            os.rmdir(f"{mnt.path}/none")
            with pytest.raises(OSError, match="Directory not empty"):
                os.rmdir(f"{mnt.path}/a")
            with pytest.raises(OSError, match="not supported"):
                os.chmod(f"{mnt.path}/made/moved", 0o600)
        new = b"xyz" + b"x" * 2_999_997 + b"end"
        assert seen(at(there, "data")) == {
            "a/big.bin": TREE["a/big.bin"],
            "b c/é.txt": TREE["b c/é.txt"][:2],
            "made/moved": new,
        }
        assert os.listdir(mnt.path) == []


def test_mount_is_read_only_and_private_and_refused_where_something_is(here, tmp_path):
    plant(at(here, "data"), {"x": b"1"})
    plant(at(here, "full"), {"y": b"2"})
    place, mnt = at(here, "data"), at(here, "mnt").path
    with mounted(place, mnt) as said:
        assert said == [
            f"mounted {place.url} at {mnt}, read-only; unmount it with `pai storage.unmount {mnt}`"
        ]
        for change in (os.unlink, partial(os.truncate, length=0)):
            with pytest.raises(OSError) as raised:
                change(f"{mnt}/x")
            assert raised.value.errno == errno.EROFS
        with pytest.raises(FileNotFoundError):
            os.stat(f"{mnt}/none")
        with pytest.raises(PathError, match=r"mounted at .* already; unmount it with `pai storage.unmount"):
            mounting.mount_in_background(place, mnt, False, print)
    for target, reason in (
        (at(here, "full").path, "is not empty"),
        (at(here, "data/x").path, "which is in it"),
        (at(here, "no/folder").path, "No such file or directory"),
    ):
        with pytest.raises(PathError, match=reason):
            mounting.mount_in_background(place, target, False, print)
    with pytest.raises(PathError, match="is a file; only folders"):
        mounting.mount_in_background(at(here, "data/x"), mnt, False, print)
    storages = Location(ClusterStore("lab", ["home"]), "/", "pai://lab/")
    with pytest.raises(PathError, match="pai://lab/ holds storages, not files; mount one of them"):
        mounting.mount_in_background(storages, mnt, False, print)
    with pytest.raises(PathError, match="no storage is mounted there"):
        mounting.unmount(mnt)


def test_lost_connection_is_an_io_error_and_the_mount_recovers(here, tmp_path):
    if reason := object_servers.missing("s3rver"):
        pytest.skip(f"no S3: {reason}")
    server = object_servers.shared("s3rver")
    with Relay(server.host) as relay:
        data = {**s3_data(server, tmp_path.name), "endpoint": f"http://{relay.host}"}
        store = open_storage(StorageSpec("lab", "objects", "s3", data))
        place, mnt = Location(store, "/", "pai://lab/objects/"), at(here, "mnt").path
        plant(place, {"x": b"1"})
        with mounted(place, mnt):
            assert os.listdir(mnt) == ["x"]
            relay.faults.append(Fault("cut", old=b"GET", times=10_000))
            with pytest.raises(OSError) as raised:
                os.listdir(mnt)
            assert raised.value.errno == errno.EIO
            relay.faults.clear()
            with open(f"{mnt}/x", "rb") as file:
                assert file.read() == b"1"


def test_folder_of_a_killed_mount_is_mounted_again(here):
    plant(at(here, "data"), {"x": b"1"})
    mnt, before = at(here, "mnt").path, children()
    mounting.mount_in_background(at(here, "data"), mnt, False, lambda line: None)
    (child,) = children() - before
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with mounted(at(here, "data"), mnt):
        assert os.listdir(mnt) == ["x"]


def test_reason_of_a_failed_mount_is_reported(here):
    plant(at(here, "data"), {"x": b"1"})
    place = dataclasses.replace(at(here, "data"), url="x" * 5000)  # longer than the options of a mount may be
    with pytest.raises(
        PathError, match=r"mnt was not mounted: fuse: mount failed: .+; .* ended with code \d+$"
    ):
        mounting.mount_in_background(place, at(here, "mnt").path, False, print)


def test_folder_that_takes_the_name_of_another_has_its_own_files(here, monkeypatch):
    monkeypatch.setattr("openpai_tasks.storage.fuse.FRESH_SECONDS", 60.0)
    plant(at(here, "data"), {"old/x": b"1", "new/x": b"longer", "new/y": b"2"})
    mnt = at(here, "mnt").path
    with mounted(at(here, "data"), mnt, write=True):
        assert os.path.getsize(f"{mnt}/old/x") == 1 and not os.path.exists(f"{mnt}/old/y")
        os.rename(f"{mnt}/old", f"{mnt}/older")
        os.rename(f"{mnt}/new", f"{mnt}/old")
        assert Path(f"{mnt}/old/x").read_bytes() == b"longer" and Path(f"{mnt}/old/y").read_bytes() == b"2"


@pytest.mark.parametrize("kind", ["local", "s3"])
def test_open_file_is_written_to_its_folder_under_the_new_name(kind, tmp_path, here):
    with STORES[kind](tmp_path) as there:
        plant(at(there, "data"), {"old/x": b"1"})
        mnt = at(here, "mnt").path
        with mounted(at(there, "data"), mnt, write=True):
            with open(f"{mnt}/old/log", "w") as file:
                print("one", file=file, flush=True)
                os.rename(f"{mnt}/old", f"{mnt}/new")
                print("two", file=file)
            assert Path(f"{mnt}/new/log").read_text() == "one\ntwo\n"
        assert seen(at(there, "data")) == {"new/x": b"1", "new/log": b"one\ntwo\n"}


def children():
    return {
        int(pid) for file in Path("/proc/self/task").glob("*/children") for pid in file.read_text().split()
    }
