"""S3: copies to and from a server on loopback, beside rclone.

Each client is a process, timed with its start. The server is rclone's, for all of them.
"""

from __future__ import annotations

import filecmp
import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.side_by_side import OURS, Comparison, Turn
from tests.storage import object_servers
from tests.storage.stores import s3_data

ROOT = Path(__file__).resolve().parent.parent
FILES, SMALL, LARGE = 2000, 4096, 512 << 20
GOALS = {"small": 1.5, "large": 1.2}
COPY = """
import json, sys
from openpai_tasks.storage.copying.copy import copy
from openpai_tasks.storage.copying.plan import plan_copy
from openpai_tasks.storage.local.store import LocalStore
from openpai_tasks.storage.location import Location, open_storage
from openpai_tasks.storage.store import StorageSpec
way, here, there, data = json.loads(sys.argv[1])
local = Location(LocalStore(), here, here)
remote = Location(open_storage(StorageSpec("lab", "objects", "s3", data)), there, there)
copied = copy(plan_copy([local], remote) if way == "up" else plan_copy([remote], local))
sys.exit(copied.failed[0].reason if copied.failed else 0)
"""


def comparisons(
    folder: Path, files: int = FILES, small: int = SMALL, large: int = LARGE
) -> Iterator[Comparison]:
    if reason := object_servers.missing("rclone"):
        print(f"no S3: {reason}", file=sys.stderr)
        return
    server = object_servers.Server("rclone")
    for name, count, size in (("small", files, small), ("large", 1, large)):
        plant(folder / name, count, size)
        shutil.copytree(folder / name, server.data / object_servers.BUCKET / name)
    server.start()
    try:
        for name, amount, unit in (("small", files, "files"), ("large", large >> 20, "MiB")):
            what = f"{files} files of {small >> 10} KiB" if name == "small" else f"{large >> 20} MiB"
            for way in ("up", "down"):
                turns = {who: copying(who, way, folder / name, server) for who in (OURS, "rclone")}
                yield Comparison(f"S3 {what} {way}", turns, {"rclone": GOALS[name]}, amount, unit, rounds=3)
    finally:
        server.stop()


def plant(folder: Path, files: int, size: int) -> None:
    folder.mkdir()
    for number in range(files):
        with open(folder / f"{number:05}", "wb") as out:
            for start in range(0, size, 1 << 20):
                out.write(os.urandom(min(1 << 20, size - start)))


def copying(who: str, way: str, source: Path, server: object_servers.Server) -> Turn:
    """Return a turn that copies the folder to a new one on the server, or from there."""
    bucket = server.data / object_servers.BUCKET

    def turn() -> float:
        name = f"{source.name}-{secrets.token_hex(4)}"
        here, there = (source, name) if way == "up" else (source.with_name(name), source.name)
        start = time.perf_counter()
        subprocess.run(command(who, way, here, there, server), check=True, env=environment())
        seconds = time.perf_counter() - start
        arrived = bucket / name if way == "up" else here
        compared = filecmp.dircmp(source, arrived)
        assert not (compared.left_only or compared.diff_files), f"{who} did not copy everything"
        shutil.rmtree(arrived)
        return seconds

    return turn


def command(who: str, way: str, here: Path, there: str, server: object_servers.Server) -> list[str]:
    data = s3_data(server, "")
    if who == OURS:
        return [sys.executable, "-c", COPY, json.dumps([way, str(here), f"/{there}", data])]
    login = f"access_key_id={data['accessKeyId']},secret_access_key={data['secretAccessKey']}"
    remote = f":s3,provider=Other,{login},endpoint='{data['endpoint']}':{data['bucket']}/{there}"
    return [object_servers.rclone(), "copy", *([str(here), remote] if way == "up" else [remote, str(here)])]


def environment() -> dict[str, str]:
    variables = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    return variables | {"PYTHONPATH": str(ROOT), "RCLONE_CONFIG": os.devnull}
