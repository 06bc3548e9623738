"""Copies to and from a real HDFS on loopback, beside other clients.

``ours`` is the whole copy: every byte verified by HDFS's checksums, written under another name and renamed.
``ours, WebHDFS`` is the same copy without the native protocol, as behind a gateway.
Every client is a process, timed with its start. The jars come from ``python -m tests.storage.hdfs_jars``.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.copying import check_same, make_tree
from benchmarks.side_by_side import OURS, Comparison, Turn
from benchmarks.startup import ROOT

if TYPE_CHECKING:
    from openpai_tasks.storage.hdfs.store import HdfsStore
    from tests.storage.hdfs_server import Hdfs

THREADS = 8
WEB = "ours, WebHDFS"
HDFSCLI = f"hdfscli, {THREADS} threads"
GOALS = {
    ("large", "up"): {"curl": 1.10, "hdfs dfs": 1.0},
    ("large", "down"): {"curl": 1.10, "hdfs dfs": 1.0},
    ("small", "up"): {"PyHDFS": 1 / 2.5, HDFSCLI: 1.0},
    ("small", "down"): {"PyHDFS": 1 / 4, HDFSCLI: 1.0},
}


def comparisons(folder: Path) -> Iterator[Comparison]:
    from tests.storage import hdfs_jars
    from tests.storage.hdfs_server import Hdfs

    if reason := hdfs_jars.missing():
        print(f"no comparison with HDFS: {reason}", file=sys.stderr)
        return
    server = Hdfs(heap="1g", jvm=()).start()
    try:
        yield from compared(server, folder)
    finally:
        server.stop()


def compared(server: Hdfs, folder: Path, large: int = 512, files: int = 1000) -> Iterator[Comparison]:
    """Yield a comparison for each row of the goals; ``large`` is in MiB."""
    sources = {"large": make_tree(folder / "large", 1, large << 20)}
    sources["small"] = make_tree(folder / "small", files, 4096)
    installed = clients()
    for (what, way), goals in GOALS.items():
        copies = Copies(server, folder, sources[what])
        names = [name for name in installed if name != "curl" or what == "large"]
        turns = {name: copies.turn(name, way) for name in names}
        amount, unit = (large, "MiB") if what == "large" else (files, "files")
        title = f"HDFS: {amount:,} {'MiB' if what == 'large' else 'files of 4 KiB'} {way}"
        yield Comparison(title, turns, goals, amount, unit, rounds=3)


def clients() -> list[str]:
    """Return the clients that are installed; print the others."""
    is_there = {name: True for name in (*CLIENTS, "hdfs dfs")}
    is_there[HDFSCLI] = importlib.util.find_spec("hdfs") is not None
    is_there |= {name: _program(name) is not None for name in ("curl", "rclone")}
    if missing := [name for name, is_installed in is_there.items() if not is_installed]:
        print(f"not installed, left out: {'; '.join(missing)}", file=sys.stderr)
    return [name for name, is_installed in is_there.items() if is_installed]


class Copies:
    """Copies of one folder by several clients; what arrived is checked after the clock has stopped."""

    _numbers = itertools.count(1)

    def __init__(self, server: Hdfs, folder: Path, source: Path) -> None:
        self._server, self._folder, self._source = server, folder, source

    def turn(self, client: str, way: str) -> Turn:
        def up() -> float:
            there, back = self._new()
            seconds = self._run(client, "up", self._source, there)
            ours("down", str(back), there, self._server.name_node)
            self._check(there, back)
            return seconds

        def down() -> float:
            there, back = self._new()
            ours("up", str(self._source), there, self._server.name_node)
            seconds = self._run(client, "down", back, there)
            self._check(there, back)
            return seconds

        return up if way == "up" else down

    def _new(self) -> tuple[str, Path]:
        number = next(self._numbers)
        return f"/{self._source.name}-{number}", self._folder / f"back-{number}"

    def _run(self, client: str, way: str, here: Path, there: str) -> float:
        line = command(client, way, str(here), there, self._server)
        environment = {**os.environ, "HADOOP_USER_NAME": "root", "PYTHONPATH": str(ROOT)}
        start = time.perf_counter()
        subprocess.run(line, check=True, stderr=subprocess.DEVNULL, env=environment)
        return time.perf_counter() - start

    def _check(self, there: str, back: Path) -> None:
        import pyhdfs

        check_same(self._source, back)
        shutil.rmtree(back)
        pyhdfs.HdfsClient(hosts=self._server.name_node, user_name="root").delete(there, recursive="true")


def command(client: str, way: str, here: str, there: str, server: Hdfs) -> list[str]:
    """Return the command line of one copy of a folder."""
    from tests.storage.hdfs_server import SHELL

    if client == "curl":
        return _curl(way, here, f"http://{server.name_node}/webhdfs/v1{there}")
    if client == "rclone":
        remote = f":hdfs,namenode='{server.rpc}',username=root:{there}"
        ends = (here, remote) if way == "up" else (remote, here)
        return [_program(client) or client, "--config", "", "copyto", *ends]
    if client == "hdfs dfs":
        verb = ["-put", here, there] if way == "up" else ["-get", there, here]
        return [*server._command(SHELL), *verb]
    return [sys.executable, "-m", "benchmarks.hdfs", client, way, here, there, server.name_node]


def _curl(way: str, here: str, url: str) -> list[str]:
    """Return the commands that copy the only file of the folder of a large one."""
    name = "0000/000000.bin"
    if way == "down":
        target = f"{url}/{name}?user.name=root&op=OPEN"
        return ["curl", "-sfL", "--create-dirs", "-o", f"{here}/{name}", target]
    step = f"curl -sf -X PUT -o /dev/null -w '%{{redirect_url}}' '{url}/{name}?user.name=root&op=CREATE'"
    return ["sh", "-c", f'curl -sf -H Expect: -T "$0" "$({step})"', f"{here}/{name}"]


def _program(name: str) -> str | None:
    """Return the program, of the system or of this environment."""
    return shutil.which(name) or shutil.which(name, path=str(Path(sys.executable).parent))


def ours(way: str, here: str, there: str, host: str) -> None:
    from openpai_tasks.storage.hdfs.store import HdfsStore

    _copy(HdfsStore([host], "root"), way, here, there)


def ours_by_webhdfs(way: str, here: str, there: str, host: str) -> None:
    from openpai_tasks.storage.hdfs.store import HdfsStore

    class WebStore(HdfsStore):
        def _opened(self, real: str, is_new: bool) -> bool:
            return False

    _copy(WebStore([host], "root"), way, here, there)


def _copy(store: HdfsStore, way: str, here: str, there: str) -> None:
    from openpai_tasks.storage.copying.copy import copy
    from openpai_tasks.storage.copying.plan import plan_copy
    from openpai_tasks.storage.local.store import LocalStore
    from openpai_tasks.storage.location import Location

    local, remote = Location(LocalStore(), here, here), Location(store, there, there)
    copied = copy(plan_copy([local], remote) if way == "up" else plan_copy([remote], local))
    if copied.failed:
        sys.exit(copied.failed[0].reason)


def pyhdfs_one_by_one(way: str, here: str, there: str, host: str) -> None:
    import pyhdfs

    client = pyhdfs.HdfsClient(hosts=host, user_name="root")
    if way == "up":
        for folder, _, names in os.walk(here):
            for name in names:
                below = os.path.relpath(os.path.join(folder, name), here)
                client.copy_from_local(f"{here}/{below}", f"{there}/{below}")
        return
    for folder, _, names in client.walk(there):
        os.makedirs(here + folder.removeprefix(there), exist_ok=True)
        for name in names:
            client.copy_to_local(f"{folder}/{name}", f"{here}{folder.removeprefix(there)}/{name}")


def hdfscli(way: str, here: str, there: str, host: str) -> None:
    import hdfs

    client = hdfs.InsecureClient(f"http://{host}", user="root")
    if way == "up":
        client.upload(there, here, n_threads=THREADS)
    else:
        client.download(there, here, n_threads=THREADS)


CLIENTS: dict[str, Callable[[str, str, str, str], None]] = {
    OURS: ours,
    WEB: ours_by_webhdfs,
    "PyHDFS": pyhdfs_one_by_one,
    HDFSCLI: hdfscli,
}


if __name__ == "__main__":
    CLIENTS[sys.argv[1]](*sys.argv[2:])
