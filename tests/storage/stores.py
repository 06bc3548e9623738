"""Every kind of store that the contract holds for: a name, and what makes an empty one.

A row is a function that is given a folder for what it needs and yields the Location of an empty folder;
what it starts, it ends. It calls ``pytest.skip`` with the reason where its parts are missing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from openpai_tasks.storage.local import LocalStore
from openpai_tasks.storage.location import Location, open_place
from openpai_tasks.storage.store import Place
from tests.storage import hdfs_jars, hdfs_server


@contextlib.contextmanager
def local(folder: Path) -> Iterator[Location]:
    """Any folder of this machine."""
    yield Location(LocalStore(), str(folder.resolve()), str(folder.resolve()))


@contextlib.contextmanager
def embedded(folder: Path) -> Iterator[Location]:
    """The embedded cluster's storage: a folder of the user's own in a folder of this machine."""
    place = Place("local", "home", "local", {"path": str(folder)}, user="ann", share=False)
    yield Location(open_place(place), "/", "pai://local/home/")


@contextlib.contextmanager
def mounted(folder: Path) -> Iterator[Location]:
    """A share that the mount map knows."""
    mounts = (("10.0.0.1:/exports", str(folder)),)
    (folder / "data").mkdir()
    place = Place("lab", "data", "nfs", {"server": "10.0.0.1", "path": "/exports/data"}, mounts=mounts)
    yield Location(open_place(place), "/", "pai://lab/data/")


@contextlib.contextmanager
def hdfs(folder: Path) -> Iterator[Location]:
    """A folder of a real HDFS, which is started for the first test that wants it."""
    if reason := hdfs_jars.missing():
        pytest.skip(f"no HDFS: {reason}")
    host, port = hdfs_server.shared().name_node.split(":")
    data = {"namenode": host, "port": port, "path": f"/{folder.name}"}
    store = open_place(Place("lab", "hdfs", "hdfs", data, user="root"))
    store.make_folder("/")
    yield Location(store, "/", "pai://lab/hdfs/")
    store.remove("/", recursive=True)
    store.close()


STORES: dict[str, Any] = {"local": local, "embedded": embedded, "mounted": mounted, "hdfs": hdfs}
