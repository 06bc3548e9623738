"""Run the benchmarks: ``python -m benchmarks [TOPIC ...]``; exits with 1 if a goal is missed."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks import report
from benchmarks.plot import plot
from benchmarks.side_by_side import Outcome, run

DOCS = Path(__file__).resolve().parent.parent / "docs"
TOPICS = ("startup", "objects", "logs", "copying", "hdfs", "packing")
TOPICS += ("notebooks", "jobs", "executor", "metrics")
"""Modules with a function ``comparisons``."""


def outcomes(topics: list[str], rounds: int) -> Iterator[Outcome]:
    for topic in topics:
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            for comparison in importlib.import_module(f"benchmarks.{topic}").comparisons(Path(folder)):
                outcome = run(comparison, rounds)
                print(report.table([outcome]), "", sep="\n", file=sys.stderr, flush=True)
                yield outcome


def write(found: list[Outcome]) -> None:
    """Write the page of results; what follows its plot is kept."""
    page = DOCS / "performance.md"
    kept = page.read_text(encoding="utf-8").partition(".svg)\n")[2].strip() if page.exists() else ""
    page.write_text(report.page(found, TOPICS, kept), encoding="utf-8")
    (DOCS / "performance.svg").write_text(plot(found), encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Speed beside named peers.")
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help=f"default: all ({', '.join(TOPICS)})")
    parser.add_argument("--rounds", type=int, default=5, help="how often each contender runs (default: 5)")
    parser.add_argument("--write", action="store_true", help="write docs/performance.md and its plot")
    args = parser.parse_args()
    if unknown := [topic for topic in args.topics if topic not in TOPICS]:
        parser.error(f"unknown topic {unknown[0]!r}: choose from {', '.join(TOPICS)}")
    found = list(outcomes(args.topics or list(TOPICS), args.rounds))
    print(report.table(found))
    print(f"\n{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
    if args.write:
        write(found)
    return int(any(not ratio.is_met for outcome in found for ratio in outcome.ratios()))


if __name__ == "__main__":
    sys.exit(main())
