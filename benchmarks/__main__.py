"""Run the benchmarks: ``python -m benchmarks [TOPIC ...]``; exits with 1 if a goal is missed."""

from __future__ import annotations

import argparse
import importlib
import itertools
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks import report, results
from benchmarks.plot import plot
from benchmarks.side_by_side import ResultRow, run

DOCS = Path(__file__).resolve().parent.parent / "docs"
TOPICS = ("startup", "objects", "logs", "copying", "hdfs", "mount", "packing")
TOPICS += ("notebooks", "jobs", "executor", "metrics", "portal", "slurm", "kubernetes", "afar")
"""Modules with a function ``comparisons``."""
WRITE = "keep the results of these topics, and write docs/performance.md from those of all"


def measured(topics: list[str], rounds: int | None) -> Iterator[tuple[str, list[ResultRow]]]:
    for topic in topics:
        found, began = list[ResultRow](), time.monotonic()
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            for comparison in importlib.import_module(f"benchmarks.{topic}").comparisons(Path(folder)):
                rows = run(comparison, rounds).rows()
                print(report.table(rows), "", sep="\n", file=sys.stderr, flush=True)
                found += rows
        print(f"{topic}: {time.monotonic() - began:.0f} s\n", file=sys.stderr, flush=True)
        yield topic, found


def write(found: Mapping[str, list[ResultRow]]) -> None:
    """Keep the results of these topics, and write the page of all; what follows its plot is kept."""
    kept = results.replace({topic: results.measured_now(rows) for topic, rows in found.items()}, TOPICS)
    page = DOCS / "performance.md"
    notes = page.read_text(encoding="utf-8").partition(".svg)\n")[2].strip() if page.exists() else ""
    page.write_text(report.page(kept, TOPICS, notes), encoding="utf-8")
    rows = [row for result in kept.values() for row in result.rows]
    (DOCS / "performance.svg").write_text(plot(rows), encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Speed beside named peers.")
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help=f"default: all ({', '.join(TOPICS)})")
    parser.add_argument("--rounds", type=int, help="how often each contender runs (default: 3 to 25)")
    parser.add_argument("--write", action="store_true", help=WRITE)
    args = parser.parse_args()
    if unknown := [topic for topic in args.topics if topic not in TOPICS]:
        parser.error(f"unknown topic {unknown[0]!r}: choose from {', '.join(TOPICS)}")
    if args.rounds is not None and args.rounds < 1:
        parser.error(f"--rounds {args.rounds}: at least 1")
    found = dict(measured(args.topics or list(TOPICS), args.rounds))
    rows = list(itertools.chain.from_iterable(found.values()))
    print(report.table(rows))
    print(f"\n{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
    if args.write:
        write(found)
    return int(not all(row.is_met for row in rows))


if __name__ == "__main__":
    sys.exit(main())
