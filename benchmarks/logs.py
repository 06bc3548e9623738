"""How long the output of a job takes to be labelled and filtered, beside `cat`: python benchmarks/logs.py

Files of short lines, of one line without an end, and of carriage returns only. Each is read as the pieces of
a log are, and written to a pipe; `cat` and ours take turns, so that a busy machine disturbs all alike. Four
times the file must take about four times as long, whatever is in it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from openpai_tasks.sdk.logs.output import Chunk, add_labels, strip_control_characters  # noqa: E402

PIECE = 1 << 16
SHAPES = {
    "short lines": b"a line of output, as most are\n",
    "one line": b"a line of output without an end",
    "returns": b" 42%|####      | 420/1000 [00:42<00:58]\r",
}
WAYS = ("cat", "labelled", "plain")
GROWTH = 4
TARGET = 1.5
"""As much more than the file's growth may the time grow."""


def chunks(file: Path) -> Iterator[Chunk]:
    with file.open("rb") as opened:
        while piece := opened.read(PIECE):
            yield Chunk("worker-0", piece)


def pour(way: str, file: Path) -> float:
    """Seconds for the file to go through a pipe."""
    begin = time.perf_counter()
    if way == "cat":
        with subprocess.Popen(["cat", str(file)], stdout=subprocess.PIPE) as cat:
            subprocess.run(["cat"], stdin=cat.stdout, stdout=subprocess.DEVNULL, check=True)
        return time.perf_counter() - begin
    source = chunks(file) if way == "labelled" else strip_control_characters(chunks(file))
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as cat:
        assert cat.stdin
        for data in add_labels(source):
            cat.stdin.write(data)
    return time.perf_counter() - begin


def measure(shape: bytes, size: int, runs: int) -> dict[str, float]:
    """The least seconds of each way."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "log")
        file.write_bytes(shape * (size // len(shape)))
        rounds = [{way: pour(way, file) for way in WAYS} for _ in range(runs + 1)][1:]
    return {way: min(row[way] for row in rounds) for way in WAYS}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=16)
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    worst = 0.0
    for name, shape in SHAPES.items():
        small = measure(shape, given.megabytes << 20, given.runs)
        large = measure(shape, GROWTH * given.megabytes << 20, given.runs)
        for way in WAYS:
            growth = large[way] / small[way] / GROWTH
            worst = max(worst, growth if way != "cat" else 0.0)
            ratio = large[way] / large["cat"]
            print(f"{name:12} {way:9} {large[way]:6.2f} s  {ratio:6.1f} x cat  growth {growth:.2f}")
    return int(worst > TARGET)


if __name__ == "__main__":
    sys.exit(main())
