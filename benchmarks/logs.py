"""Logs: followed through a pipe, beside `cat`; filtered and labelled, at the same speed however long."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.side_by_side import OURS, Comparison, Turn
from openpai_tasks.sdk.logs.output import Chunk, add_labels, strip_control_characters

ROOT = Path(__file__).resolve().parent.parent
MB = 1_000_000
PIECE = 1 << 16
SHAPES = {
    "short lines": b"a line of output, as most are\n",
    "one line": b"a line of output without an end",
    "returns": b" 42%|####      | 420/1000 [00:42<00:58]\r",
}
GROWTH = 4
SOCKET = """
import os, socket, sys
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
if not os.fork():
    server.accept()[0].sendfile(open(sys.argv[1], "rb"))
    os._exit(0)
server.close()
while piece := client.recv(1 << 18):
    os.write(1, piece)
"""
"""What a server and a client on loopback can do at best."""


def comparisons(folder: Path, followed: int = 200, filtered: int = 16) -> Iterator[Comparison]:
    """Yield comparisons; both sizes are megabytes."""
    yield from following(folder, followed)
    for shape, line in SHAPES.items():
        small, large = (
            write(folder / f"{shape} {size}", line, size) for size in (filtered, GROWTH * filtered)
        )
        for way in ("labelled", "plain"):
            turns = {OURS: filtering(way, [large]), "as small logs": filtering(way, [small] * GROWTH)}
            what = f"log of {shape}, {way}"
            yield Comparison(what, turns, {"as small logs": 1.5}, GROWTH * filtered, "MB")


def following(folder: Path, size: int) -> Iterator[Comparison]:
    log = write(folder / "log", SHAPES["short lines"], size)
    pai = [sys.executable, "-m", "openpai_tasks"]
    variables = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    variables |= {"PYTHONPATH": str(ROOT), "OPENPAI_HOME": str(folder / "home")}

    def command(*words: str) -> None:
        line = [*pai, *words]
        subprocess.run(line, cwd=folder, env=variables, check=True, stdout=subprocess.DEVNULL)

    try:
        command("cluster.start")
        command("job.sub", f"cat {log}", "--job-name", "big")
        command("job.wait", "big")
        turns: dict[str, Turn] = {
            OURS: receiving([*pai, "job.logs", "big", "--follow"], log, variables),
            "pipe (cat to cat)": receiving(["sh", "-c", 'cat "$0" | cat', str(log)], log, variables),
            "bare socket": receiving([sys.executable, "-c", SOCKET, str(log)], log, variables),
        }
        yield Comparison(f"follow a log of {size} MB", turns, {"pipe (cat to cat)": 1.31}, size, "MB")
    finally:
        command("cluster.stop")


def receiving(line: list[str], log: Path, variables: dict[str, str]) -> Turn:
    """Return a turn that measures the time from the first byte to the last."""

    def turn() -> float:
        with subprocess.Popen(
            line, cwd=log.parent, env=variables, stdout=subprocess.PIPE, bufsize=0
        ) as child:
            assert child.stdout
            size, begin = len(child.stdout.read(1) or b""), time.perf_counter()
            while piece := child.stdout.read(PIECE):
                size += len(piece)
            seconds = time.perf_counter() - begin
        assert not child.returncode and size == log.stat().st_size, f"{line} gave {size} bytes"
        return seconds

    return turn


def filtering(way: str, logs: list[Path]) -> Turn:
    def turn() -> None:
        for log in logs:
            source = strip_control_characters(chunks(log)) if way == "plain" else chunks(log)
            assert sum(map(len, add_labels(source))) >= log.stat().st_size

    return turn


def chunks(log: Path) -> Iterator[Chunk]:
    with log.open("rb") as opened:
        while piece := opened.read(PIECE):
            yield Chunk("worker-0", piece)


def write(log: Path, line: bytes, size: int) -> Path:
    log.write_bytes(line * (size * MB // len(line)))
    return log
