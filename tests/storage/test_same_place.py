"""One location under two names: nothing is copied into itself, and no copy deletes its own source."""

from __future__ import annotations

import dataclasses
import subprocess

import pytest

from openpai_tasks.errors import PathError
from openpai_tasks.sdk.files import packing
from openpai_tasks.storage.copying import walk
from openpai_tasks.storage.copying.copy import Rules, copy
from openpai_tasks.storage.copying.plan import CopyItem, plan_copy, plan_sync
from openpai_tasks.storage.copying.progress import Watch
from openpai_tasks.storage.hdfs.store import HdfsStore
from openpai_tasks.storage.hosts import resolved_addresses
from openpai_tasks.storage.local.store import LocalStore
from openpai_tasks.storage.location import Location
from tests.storage.gateway import Gateway
from tests.storage.trees import at, plant, seen

DELETE = Rules(delete=True)
INTO_ITSELF = "cannot be copied into itself"
LOSES_SOURCE = "deleting there would remove the source"


@pytest.fixture
def mounts(here):
    """``mount(folder, place)`` shows a folder at a second place."""
    made = []

    def mount(folder, place):
        done = subprocess.run(["mount", "--bind", f"{here.path}/{folder}", f"{here.path}/{place}"])
        if done.returncode:
            pytest.skip("nothing can be mounted here")
        made.append(f"{here.path}/{place}")

    yield mount
    for place in reversed(made):
        subprocess.run(["umount", place], check=True)


@pytest.fixture
def named(hdfs, request):
    """``named(path, way)``: the same folder of HDFS by IP address, by host name, or through a gateway."""
    port, root = hdfs.name_node.partition(":")[2], f"/{request.node.name}"
    with Gateway(hdfs.name_node) as gateway:
        ways = {
            "number": HdfsStore([hdfs.name_node], "root", root=root),
            "name": HdfsStore([f"localhost:{port}"], "root", root=root),
            "nodes": HdfsStore([f"localhost:{port}", "localhost:9"], "root", root=root),
            "gateway": HdfsStore([gateway.host], "root", root=root, prefix="/webhdfs/api/v1"),
            "whole": HdfsStore([f"localhost:{port}"], "root"),
        }
        plant(Location(ways["number"], "/", "hdfs"), {"own/sub/f": b"f", "own/g": b"g", "other/": None})

        def place(path, way="number"):
            return Location(ways[way], root + path if way == "whole" else path, f"{way}{path}")

        yield place
        ways["number"].remove("/", recursive=True)
        for store in ways.values():
            store.close()


@pytest.mark.parametrize("way", ["name", "nodes", "gateway", "whole"])
def test_hdfs_folder_is_recognized_under_another_address(named, way):
    with pytest.raises(PathError, match=INTO_ITSELF):
        plan_copy([named("/own")], named("/own/x", way))
    with pytest.raises(PathError, match=INTO_ITSELF):
        plan_copy([named("/own", way)], named("/own/x"))
    with pytest.raises(PathError, match=INTO_ITSELF):
        plan_sync(named("/own"), named("/own", way))
    with pytest.raises(PathError, match="packed into itself"):
        packing.pack(
            named("/own"), named("/own/x", way), packing.packing_rules(named("/own"), "tar", "1M"), Watch()
        )
    with pytest.raises(PathError, match=LOSES_SOURCE):
        copy(plan_sync(named("/own/sub"), named("/own", way)), DELETE)
    assert seen(named("/own")) == {"sub/f": b"f", "g": b"g"}
    assert copy(plan_copy([named("/own")], named("/other", way))).failed == ()
    assert seen(named("/other")) == {"sub/f": b"f", "g": b"g"}


@pytest.mark.parametrize("way", ["name", "gateway"])
def test_copy_on_hdfs_does_not_enter_folders_that_it_created(named, way):
    source = named("/own")
    into = named("/own/sub/deep", way)
    copied = copy([CopyItem(source, source.store.stat(source.path), into)])
    assert ["this copy has made it" in failure.reason for failure in copied.failed] == [True]
    assert seen(into) == {"sub/f": b"f", "g": b"g"}


@pytest.mark.root
@pytest.mark.parametrize("target", ["there/x", "there", "there/in/x"])
def test_folder_that_is_mounted_twice_is_recognized(here, mounts, target):
    plant(here, {"own/in/f": b"f", "there/": None})
    mounts("own", "there")
    with pytest.raises(PathError, match=INTO_ITSELF):
        plan_sync(at(here, "own"), at(here, target))
    with pytest.raises(PathError, match=LOSES_SOURCE):
        copy(plan_sync(at(here, "own/in"), at(here, "there")), DELETE)
    assert seen(at(here, "own")) == {"in/f": b"f"}


@pytest.mark.root
def test_subfolder_that_is_mounted_elsewhere_is_recognized(here, mounts):
    plant(here, {"own/in/deep/f": b"f", "there/": None, "apart/g": b"g"})
    mounts("own/in", "there")
    with pytest.raises(PathError, match=INTO_ITSELF):
        plan_copy([at(here, "own")], at(here, "there/x"))
    with pytest.raises(PathError, match=LOSES_SOURCE):
        copy(plan_sync(at(here, "there/deep"), at(here, "own")), DELETE)
    assert copy(plan_sync(at(here, "apart"), at(here, "there")), DELETE).removed == 1
    assert seen(at(here, "own")) == {"in/g": b"g"}


@pytest.mark.root
def test_copy_does_not_enter_folders_that_it_created(here, mounts):
    plant(here, {"own/in/f": b"f", "there/": None})
    mounts("own/in", "there")
    source = at(here, "own")
    copied = copy([CopyItem(source, source.store.stat(source.path), at(here, "there/x"))])
    assert ["this copy has made it" in failure.reason for failure in copied.failed] == [True]
    assert seen(at(here, "there")) == {"f": b"f", "x/in/f": b"f"}


def test_inode_number_of_another_file_system_is_no_match(here):
    plant(here, {"own/in/f": b"f"})
    made = walk.CreatedFolders(LocalStore(), LocalStore(), f"{here.path}/there", preview=False)
    entry = LocalStore().stat(f"{here.path}/own/in")
    made.note(f"{here.path}/own/in")
    assert made.has(entry)
    made.note(f"{here.path}/own", entry)
    assert not made.has(entry) and not made.has(dataclasses.replace(entry, id=""))


def test_servers_are_recognized_by_their_ip_addresses():
    here, there = resolved_addresses("smb://127.0.0.1:445/a/b", above=False), "smb://localhost:445/a/b/c"
    assert here == {"127.0.0.1:445/a/b"}
    assert here & resolved_addresses(there, above=True) and not here & resolved_addresses(there, above=False)
    assert not here & resolved_addresses("smb://localhost:446/a/b/c", above=True)
    assert resolved_addresses("s3:///bucket/a", above=True) == set()
