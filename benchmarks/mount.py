"""A large file read through ``storage.mount``, beside ``storage.copy`` of it, on S3 and HDFS on loopback.

Both end with the file on this machine and are timed with the start of their processes; each turn mounts anew.
The file is so large that these starts hardly count.
"""

from __future__ import annotations

import filecmp
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.hdfs import ours
from benchmarks.objects import environment
from benchmarks.side_by_side import OURS, Comparison, Turn
from tests.storage import hdfs_jars, object_servers
from tests.storage.hdfs_server import Hdfs
from tests.storage.stores import s3_data

LARGE = 1 << 30
COPY = "storage.copy"
GOAL = 1 / 0.7
NAME = "file.bin"
PROGRAM = """
import json, sys
from openpai_tasks.sdk.files import mounting
from openpai_tasks.storage.copying.copy import copy
from openpai_tasks.storage.copying.plan import plan_copy
from openpai_tasks.storage.local.store import LocalStore
from openpai_tasks.storage.location import Location, open_storage
from openpai_tasks.storage.store import StorageSpec
who, kind, data, here = json.loads(sys.argv[1])
store = open_storage(StorageSpec("lab", "files", kind, data, user="root"))
if who == "ours":
    mounting.mount_in_background(Location(store, "/", "/"), here, False, lambda _: None)
else:
    copied = copy(plan_copy([Location(store, "/file.bin", "file.bin")], Location(LocalStore(), here, here)))
    sys.exit(copied.failed[0].reason if copied.failed else 0)
"""


def comparisons(folder: Path, large: int = LARGE) -> Iterator[Comparison]:
    if not (shutil.which("fusermount3") and os.access("/dev/fuse", os.W_OK)):
        print("no comparison of mounts: FUSE is missing", file=sys.stderr)
        return
    with open(folder / NAME, "wb") as out:
        for _ in range(large >> 20):
            out.write(os.urandom(1 << 20))
    if reason := object_servers.missing("rclone"):
        print(f"no S3: {reason}", file=sys.stderr)
    else:
        server = object_servers.Server("rclone")
        os.environ["RCLONE_ETAG_HASH"] = "none"  # otherwise it hashes the whole file for each range
        server.start()
        del os.environ["RCLONE_ETAG_HASH"]
        shutil.copy(folder / NAME, server.data / object_servers.BUCKET)
        try:
            yield compared("S3", "s3", s3_data(server, ""), folder, large)
        finally:
            server.stop()
    if reason := hdfs_jars.missing():
        print(f"no comparison with HDFS: {reason}", file=sys.stderr)
        return
    name_node = Hdfs(heap="1g", jvm=()).start()
    try:
        host, port = name_node.name_node.split(":")
        ours("up", str(folder / NAME), f"/{NAME}", name_node.name_node)
        yield compared("HDFS", "hdfs", {"namenode": host, "port": port, "path": "/"}, folder, large)
    finally:
        name_node.stop()


def compared(title: str, kind: str, data: dict[str, Any], folder: Path, large: int) -> Comparison:
    turns = {who: reading(who, kind, data, folder) for who in (OURS, COPY)}
    what = f"{title}: {large >> 20} MiB through a mount"
    return Comparison(what, turns, {COPY: GOAL}, large >> 20, "MiB", rounds=3)


def reading(who: str, kind: str, data: dict[str, Any], folder: Path) -> Turn:
    """Return a turn that gets the file, by a copy or through a new mount."""
    mount, target = folder / "mount", folder / "got"

    def turn() -> float:
        target.mkdir()
        here = str(mount if who == OURS else target / NAME)
        start = time.perf_counter()
        words = json.dumps([who, kind, data, here])
        subprocess.run([sys.executable, "-c", PROGRAM, words], check=True, env=environment())
        if who == OURS:
            subprocess.run(["cp", mount / NAME, target / NAME], check=True)
        seconds = time.perf_counter() - start
        if who == OURS:
            subprocess.run(["fusermount3", "-u", mount], check=True)
        assert filecmp.cmp(folder / NAME, target / NAME, shallow=False), f"{who} did not get the file"
        shutil.rmtree(target)
        return seconds

    return turn
