"""Calls that do nothing, through executors: ours on the embedded cluster, a pool of processes, submitit."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from pathlib import Path

from benchmarks.jobs import submit_locally
from benchmarks.side_by_side import OURS, Comparison, Turn

CALLS, BATCH, ROUNDS = 200, 50, 3


def comparisons(folder: Path, calls: int = CALLS, batch: int = BATCH) -> Iterator[Comparison]:
    """Compare how long calls take that do nothing, from the start of the executor to the last result."""
    with embedded_cluster(folder / "home"):
        peers: dict[str, Turn] = {"ProcessPoolExecutor": lambda: run_pool(calls)}
        if has_submitit():
            peers["submitit"] = lambda: submit_locally(folder, calls)
        for size, name, goal in ((1, "a job each", 0.2), (batch, f"{batch} in a job", 0.02)):
            own = {OURS: functools.partial(run_jobs, calls, size)}
            goals = {"submitit": goal}
            yield Comparison(f"{calls} calls, {name}", own | peers, goals, calls, "calls", ROUNDS)


def has_submitit() -> bool:
    return importlib.util.find_spec("submitit") is not None


@contextlib.contextmanager
def embedded_cluster(home: Path) -> Iterator[None]:
    """Use an embedded cluster of its own in this process."""
    before, os.environ["OPENPAI_HOME"] = os.environ.get("OPENPAI_HOME"), str(home)
    program = [sys.executable, "-m", "openpai_tasks"]
    try:
        subprocess.run([*program, "cluster.start"], check=True, capture_output=True)
        yield
    finally:
        subprocess.run([*program, "cluster.stop"], check=True, capture_output=True)
        os.environ.pop("OPENPAI_HOME")
        os.environ |= {"OPENPAI_HOME": before} if before else {}


def run_jobs(calls: int, batch: int) -> None:
    from openpai_tasks import PaiExecutor

    with PaiExecutor(cluster="local", cpu=1, memoryMB="64m", batch=batch) as executor:
        check(executor, calls)


def run_pool(calls: int) -> None:
    """Start a pool, too: each of our jobs starts Python anew."""
    with ProcessPoolExecutor() as executor:
        check(executor, calls)


def check(executor: Executor, calls: int) -> None:
    if list(executor.map(abs, range(calls))) != list(range(calls)):
        sys.exit("a call returned another result")
