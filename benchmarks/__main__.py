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
from benchmarks.side_by_side import Outcome, run

TOPICS = ("startup", "objects", "logs", "copying", "hdfs", "packing", "jobs")
"""Modules with a function ``comparisons``."""


def outcomes(topics: list[str], rounds: int) -> Iterator[Outcome]:
    for topic in topics:
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            for comparison in importlib.import_module(f"benchmarks.{topic}").comparisons(Path(folder)):
                outcome = run(comparison, rounds)
                print(report.table([outcome]), "", sep="\n", file=sys.stderr, flush=True)
                yield outcome


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Speed beside named peers.")
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help=f"default: all ({', '.join(TOPICS)})")
    parser.add_argument("--rounds", type=int, default=5, help="how often each contender runs (default: 5)")
    args = parser.parse_args()
    if unknown := [topic for topic in args.topics if topic not in TOPICS]:
        parser.error(f"unknown topic {unknown[0]!r}: choose from {', '.join(TOPICS)}")
    found = list(outcomes(args.topics or list(TOPICS), args.rounds))
    print(report.table(found))
    print(f"\n{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
    return int(any(not ratio.is_met for outcome in found for ratio in outcome.ratios()))


if __name__ == "__main__":
    sys.exit(main())
