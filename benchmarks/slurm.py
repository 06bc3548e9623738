"""Trivial jobs on a real Slurm of two nodes: ours beside sbatch itself and submitit's Slurm executor."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.jobs import running, until
from benchmarks.side_by_side import OURS, Comparison, Turn

JOBS, ROUNDS = 500, 3
FEW = 8  # jobs of submitit, from which its time for all is computed: each loads Python and submitit
PROGRAMS = ("sbatch", "squeue", "scancel", "sinfo", "sacct", "scontrol", "srun")
OPTIONS = ("--parsable", "--ntasks=1", "--cpus-per-task=1", "--mem=64M", "--output=/dev/null", "--wrap=true")


def comparisons(folder: Path, jobs: int = JOBS) -> Iterator[Comparison]:
    """Compare how long jobs take that do nothing, from the first submission to the last end."""
    from tests.needs import missing
    from tests.server.engines import slurm_cluster

    if missing(*slurm_cluster.PROGRAMS):
        return
    (folder / "slurm").mkdir()
    with slurm_cluster.slurm_cluster(folder / "slurm") as cluster, environment(cluster.environment):
        calls = CallCounter(folder / "bin")
        path = {"PATH": f"{calls.folder}:{os.environ['PATH']}"}
        with environment(path), running(folder / "home", "--engine", "slurm") as server:
            turns: dict[str, Turn] = {
                OURS: lambda: server.run(jobs),
                "sbatch": lambda: submit_each(jobs),
                "sbatch --array": lambda: submit_array(jobs),
            }
            if importlib.util.find_spec("submitit"):
                turns["submitit"] = lambda: submit_calls(folder, jobs)
            contenders = {name: functools.partial(calls.count, name, turn) for name, turn in turns.items()}
            goals = {"sbatch": 1.5, "sbatch --array": 2.0, "submitit": 0.5}
            yield Comparison(f"{jobs} trivial jobs on Slurm", contenders, goals, jobs, "jobs", ROUNDS)
        for name, found in calls.last.items():
            amount = FEW if name == "submitit" else jobs
            print(f"{name}: {found / amount:.3f} calls of Slurm's programs for a job", file=sys.stderr)


@contextlib.contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


class CallCounter:
    """Programs in front of those of Slurm that note each call."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder, self._log = folder, folder / "calls"
        self._log.touch()
        self.last: dict[str, int] = {}
        for name in PROGRAMS:
            real = shutil.which(name)
            if real:
                script = f'#!/bin/sh\necho {name} >>"{self._log}"\nexec {real} "$@"\n'
                (folder / name).write_text(script)
                (folder / name).chmod(0o755)

    def count(self, name: str, turn: Turn) -> float | None:
        before = self._calls()
        took = turn()
        self.last[name] = self._calls() - before
        return took

    def _calls(self) -> int:
        return len(self._log.read_text().splitlines())


def submit_each(jobs: int) -> None:
    for _ in range(jobs):
        _call("sbatch", *OPTIONS)
    wait_until_over()


def submit_array(jobs: int) -> None:
    _call("sbatch", f"--array=0-{jobs - 1}", *OPTIONS)
    wait_until_over()


def submit_calls(folder: Path, jobs: int) -> float:
    """Return the seconds for the jobs as one array of submitit, from those of a few."""
    import submitit

    executor = submitit.SlurmExecutor(folder=folder / "submitit", python=sys.executable)
    executor.update_parameters(time=5, mem="64MB", cpus_per_task=1, array_parallelism=jobs)
    start = time.perf_counter()
    for job in executor.map_array(abs, range(FEW)):
        while not job.paths.result_pickle.exists():
            time.sleep(0.1)
        job.result()
    return (time.perf_counter() - start) * jobs / FEW


def wait_until_over() -> None:
    """Wait until the queue is empty: one contender uses it at a time."""
    until(lambda: not _call("squeue", "-h", "-o", "%A").strip())


def _call(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout
