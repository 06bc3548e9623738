"""A real pair of name nodes: the active one is found, also after a failover."""

from __future__ import annotations

import filecmp
import os

import pytest

from openpai_tasks.storage.copying.copy import copy
from openpai_tasks.storage.copying.plan import Errand
from openpai_tasks.storage.copying.walk import walk
from openpai_tasks.storage.hdfs.store import HdfsStore
from openpai_tasks.storage.local.store import LocalStore
from openpai_tasks.storage.location import Location
from tests.storage import hdfs_jars
from tests.storage.hdfs_server import HdfsPair

NAMES = [f"{number}.bin" for number in range(20)]


@pytest.fixture
def pair():
    if reason := hdfs_jars.missing():
        pytest.skip(f"no HDFS: {reason}")
    pair = HdfsPair().start()
    yield pair
    pair.stop()


def test_files_are_read_after_the_active_name_node_died(pair, tmp_path):
    (tmp_path / "sent").mkdir()
    for number, name in enumerate(NAMES):
        (tmp_path / "sent" / name).write_bytes(os.urandom(100_000 if number < 3 else 0))
    store, here = HdfsStore(pair.name_nodes, "root"), LocalStore()
    there = Location(store, "/data", "hdfs")

    pair.activate("two")  # the first name node in the list is on standby
    sent = Location(here, str(tmp_path / "sent"), "sent")
    assert copy([Errand(sent, here.stat(sent.path), there)]).files == len(NAMES)

    pair.kill_name_node("two")
    pair.activate("one")
    assert [found.name for found in walk(there)] == sorted(NAMES)
    back = Location(here, str(tmp_path / "back"), "back")
    done = copy([Errand(there, store.stat("/data"), back)])
    assert (done.files, done.failed) == (len(NAMES), ())
    assert filecmp.cmpfiles(sent.path, back.path, NAMES, shallow=False) == (NAMES, [], [])
    store.close()
