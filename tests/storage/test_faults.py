"""Machine and network faults during a copy: it ends with the right file, or with none and a reason."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import time

import pyhdfs
import pytest

from openpai_tasks.net.retry import RetryPolicy
from openpai_tasks.storage import retry
from openpai_tasks.storage.copying.copy import copy
from openpai_tasks.storage.copying.plan import plan_copy
from openpai_tasks.storage.hdfs.native import rpc
from openpai_tasks.storage.hdfs.store import HdfsStore
from openpai_tasks.storage.local.store import LocalStore
from openpai_tasks.storage.location import Location
from tests.sdk.sshd_server import refusing_port
from tests.storage.gateway import Fault, Gateway
from tests.storage.relay import TO_CLIENT, TO_SERVER, Relay
from tests.storage.relay import Fault as Mishap

MEGABYTE = 1 << 20
SIZE = 3 * MEGABYTE + 17
QUICK = RetryPolicy(3, 0.02)


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENPAI_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(retry, "FIRST_PAUSE", 0.01)


@pytest.fixture
def store(hdfs, request):
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    store = HdfsStore([hdfs.name_node], "root", root=f"/{name}", retries=QUICK, timeout=20)
    store.make_folder("/")
    yield store
    store.close()


@pytest.fixture
def bad_connection(hdfs, monkeypatch):
    """Data nodes are reached through a faulty relay."""
    with contextlib.ExitStack() as stack:

        def make(act, way, at, times=1) -> Relay:
            host, port = hdfs.data_address
            relay = stack.enter_context(Relay(f"{host}:{port}", [Mishap(act, way, at, times)]))
            monkeypatch.setattr(rpc, "_address", lambda node: relay.address)
            return relay

        yield make


def at(store, path: str) -> Location:
    return Location(store, str(path), str(path))


def noise(path, size: int = SIZE) -> bytes:
    content = os.urandom(size)
    path.write_bytes(content)
    return content


def assert_arrived(store, path: str, content: bytes) -> None:
    """Check that the file is there, and nothing else."""
    assert b"".join(store.read(path)) == content
    assert [entry.name for entry in store.list("/")] == [path.strip("/")]


LINES = [("cut", 0), ("cut", 20), ("cut", 70_000), ("cut", 2 * MEGABYTE), ("flip", 2 * MEGABYTE), ("drip", 0)]


@pytest.mark.parametrize("act, place", LINES)
def test_download_is_retried_after_a_fault_on_the_data_node_connection(
    store, bad_connection, tmp_path, act, place
):
    size = 5000 if act == "drip" else SIZE
    content = noise(tmp_path / "f", size)
    store.write("/f", [content], size)
    relay = bad_connection(act, TO_CLIENT, place)
    (tmp_path / "to").mkdir()
    assert copy(plan_copy([at(store, "/f")], at(LocalStore(), tmp_path / "to"))).failed == ()
    assert (tmp_path / "to/f").read_bytes() == content and os.listdir(tmp_path / "to") == ["f"]
    assert not relay.faults


@pytest.mark.parametrize("act, place", LINES)
def test_upload_is_retried_after_a_fault_on_the_data_node_connection(
    store, bad_connection, tmp_path, act, place
):
    content = noise(tmp_path / "f", 5000 if act == "drip" else SIZE)
    relay = bad_connection(act, TO_SERVER, place)
    assert copy(plan_copy([at(LocalStore(), tmp_path / "f")], at(store, "/"))).failed == ()
    assert not relay.faults
    assert_arrived(store, "/f", content)


@pytest.mark.parametrize("is_upload", [False, True])
def test_data_node_that_stops_responding_is_given_up_in_time(
    hdfs, store, bad_connection, tmp_path, is_upload
):
    content = noise(tmp_path / "f")
    store.write("/g", [content], SIZE)
    bad_connection("stall", TO_SERVER if is_upload else TO_CLIENT, MEGABYTE, times=99)
    hasty = HdfsStore([hdfs.name_node], "root", root=store.root, timeout=5, retries=QUICK)
    start = time.monotonic()
    items = (
        plan_copy([at(LocalStore(), tmp_path / "f")], at(hasty, "/"))
        if is_upload
        else plan_copy([at(hasty, "/g")], at(LocalStore(), tmp_path))
    )
    assert copy(items).failed == ()
    assert time.monotonic() - start < 45
    assert (b"".join(store.read("/f")) if is_upload else (tmp_path / "g").read_bytes()) == content
    hasty.close()


def test_dead_name_node_in_the_list_is_skipped(hdfs, store, tmp_path):
    content = noise(tmp_path / "f")
    hosts = [f"127.0.0.1:{refusing_port()}", hdfs.name_node]
    there = HdfsStore(hosts, "root", root=store.root, retries=QUICK)
    assert copy(plan_copy([at(LocalStore(), tmp_path / "f")], at(there, "/"))).failed == ()
    assert_arrived(there, "/f", content)
    there.close()


def test_name_node_that_dies_between_two_requests_is_replaced_by_the_next(hdfs, store, tmp_path):
    content = noise(tmp_path / "f")
    with Gateway(hdfs.name_node) as first:
        hosts = [first.host, hdfs.name_node]
        there = HdfsStore(hosts, "root", root=store.root, retries=QUICK)
        assert copy(plan_copy([at(LocalStore(), tmp_path / "f")], at(there, "/"))).failed == ()
        assert first.asked
    assert copy(plan_copy([at(there, "/f")], at(LocalStore(), tmp_path / "back"))).failed == ()
    assert (tmp_path / "back").read_bytes() == content
    there.close()


def pai(*args: str) -> tuple[int, dict, str]:
    """Run the command line; return its exit code, its JSON result and its stderr."""
    program = "import sys; from openpai_tasks.__main__ import main; sys.exit(main())"
    command = [sys.executable, "-c", program, "storage.copy", *args, "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


@pytest.fixture
def small_disk(tmp_path):
    """A disk of four megabytes."""
    (tmp_path / "disk").mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(tmp_path / "disk")]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    yield tmp_path / "disk"
    subprocess.run(["umount", str(tmp_path / "disk")], check=True)


@pytest.mark.root
def test_full_disk_is_reported_and_leaves_no_incomplete_file(hdfs, store, tmp_path, small_disk):
    store.write("/f", [os.urandom(6 * MEGABYTE)], 6 * MEGABYTE)
    store.write("/small", [b"fits"], 4)
    source = f"webhdfs://root@{hdfs.name_node}{store.root}/*"
    code, result, _ = pai("--workers", "1", source, f"{small_disk}/")  # it is full while `/f` is there
    assert code != 0 and result["files"] == 1
    assert [failure["reason"].split(": ")[-1] for failure in result["failed"]] == ["no space left on device"]
    assert os.listdir(small_disk) == ["small"]


def set_quota(hdfs, store, size):
    client = pyhdfs.HdfsClient(hdfs.name_node, user_name="root")
    client._put(store.root, "SETQUOTA", storagespacequota=size)


def test_exceeded_quota_is_reported_and_leaves_no_file(hdfs, store, tmp_path):
    set_quota(hdfs, store, MEGABYTE)
    noise(tmp_path / "f")
    code, result, _ = pai(str(tmp_path / "f"), f"webhdfs://root@{hdfs.name_node}{store.root}/")
    assert code != 0 and "quota" in result["failed"][0]["reason"].lower()
    assert "\n" not in result["failed"][0]["reason"]
    assert list(store.list("/")) == []


def test_command_succeeds_after_an_upload_was_cut_once(hdfs, store, tmp_path):
    content = noise(tmp_path / "f")
    with Gateway(hdfs.name_node, faults=[Fault("CREATE", "cut", MEGABYTE, is_upload=True)]) as gateway:
        code, result, _ = pai(str(tmp_path / "f"), f"webhdfs://root@{gateway.host}{store.root}/")
    assert (code, result["files"], result["failed"]) == (0, 1, [])
    assert_arrived(store, "/f", content)


def test_quota_that_is_exceeded_during_the_upload_is_reported(hdfs, store, tmp_path):
    """The first block fits, the second does not."""
    layout = store._new_layout()
    store._layout = dataclasses.replace(layout, shape=dataclasses.replace(layout.shape, block=MEGABYTE))
    set_quota(hdfs, store, 2 * MEGABYTE)
    noise(tmp_path / "f")
    copied = copy(plan_copy([at(LocalStore(), tmp_path / "f")], at(store, "/")))
    assert "quota" in copied.failed[0].reason.lower() and "\n" not in copied.failed[0].reason
    assert list(store.list("/")) == []
