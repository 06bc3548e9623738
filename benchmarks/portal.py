"""The portal at size: sweeps of many jobs, metrics of many points and long logs, on pages and in commands.

Most have a limit in seconds as their peer. Large sweeps and long metrics are also compared with a tenth of
them: what was read once is kept. The round that warms up is the first to read the data.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import math
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any
from uuid import uuid4

from benchmarks.side_by_side import OURS, Comparison, Turn

ROOT = Path(__file__).resolve().parent.parent
JOBS, POINTS = 2_000, 200_000
MEGABYTES = {"opened": 1_000, "searched": 200}
MB, NEEDLE = 1_000_000, "needle"
RESULT = {"loss": 0.5, "accuracy": 0.9}


def comparisons(
    folder: Path, jobs: int = JOBS, points: int = POINTS, megabytes: Mapping[str, int] = MEGABYTES
) -> Iterator[Comparison]:
    with Project(folder).serving(jobs, {"short": points, "long": 10 * points}, megabytes) as project:
        yield from logs(project, megabytes)
        yield from sweeps(project, jobs)
        yield from metrics(project, points)
        yield from reading(project, points)


def sweeps(project: Project, jobs: int) -> Iterator[Comparison]:
    project.run(
        "job.results", "lots"
    )  # a page reads for half a second only, and leaves the rest to its updates
    many, lots = (project.page(f"/c/local/sweeps/{name}") for name in ("many", "lots"))
    yield limited(f"page of a sweep of {jobs:,} jobs", many, 1.0)
    yield limited(f"page of a sweep of {10 * jobs:,} jobs", lots, 1.0, {f"{jobs:,} jobs": many})
    new, new_large = project.anew(many), project.anew(lots)
    many, lots = (project.command("job.results", name) for name in ("many", "lots"))
    yield limited(f"job.results of {jobs:,} jobs", many, 2.0)
    yield limited(f"job.results of {10 * jobs:,} jobs", lots, 2.0, {f"{jobs:,} jobs": many})
    yield limited(f"page of a sweep of {jobs:,} jobs, none read before", new, 1.5)
    what = f"page of a sweep of {10 * jobs:,} jobs, none read before"
    yield Comparison(what, {OURS: new_large, f"{jobs:,} jobs": new})
    yield limited(f"job.results of {jobs:,} jobs, none read before", project.anew(many), 3.0)


def logs(project: Project, megabytes: Mapping[str, int]) -> Iterator[Comparison]:
    """Open a long log at its end, and search another one, which has a hit near each end."""
    opened, searched = megabytes["opened"], megabytes["searched"]
    page, end = project.page("/c/local/jobs/opened/logs"), project.events("opened/logs.live", "log")

    def open_log() -> None:
        page()
        end()

    yield limited(f"open a log of {opened:,} MB", open_log, 1.0)
    find = f"searched/logs.find.live?q={NEEDLE}"
    yield limited(f"first hit in a log of {searched} MB", project.events(find, "found"), 0.5)
    file = str(project.log_folder("searched") / "all")

    def grep() -> None:
        subprocess.run(["grep", "-cF", NEEDLE, file], check=True, capture_output=True)

    contenders: dict[str, Turn] = {OURS: project.events(find, "end"), "grep": grep}
    yield Comparison(f"search a log of {searched} MB", contenders, {}, searched, "MB", rounds=5)


def metrics(project: Project, points: int) -> Iterator[Comparison]:
    tenth = f"{points:,} points"
    for what, use, seconds in (
        ("metrics page", lambda job: project.page(f"/c/local/jobs/{job}/metrics"), 0.3),
        ("job.metrics", lambda job: project.command("job.metrics", job), 0.5),
    ):
        yield limited(f"{what} of {points:,} points", use("short"), seconds)
        contenders = {OURS: use("long"), tenth: use("short")}
        yield Comparison(f"{what} of {10 * points:,} points", contenders, {tenth: 1.25}, rounds=10)


def reading(project: Project, points: int) -> Iterator[Comparison]:
    """Compare reading every point with reading the same lines by pandas."""
    if importlib.util.find_spec("pandas"):
        import pandas

        path = str(project.metrics_file("short"))
        ours = project.command("job.metrics", "short", "-o", "csv")
        contenders: dict[str, Turn] = {
            OURS: ours,
            "pandas": lambda: _write_csv(pandas.read_json(path, lines=True)),
        }
        yield Comparison(f"{points:,} points to CSV", contenders, rounds=3)


def _write_csv(table: Any) -> None:
    table.to_csv(os.devnull)


def limited(
    what: str, turn: Turn, seconds: float, others: Mapping[str, Turn] = MappingProxyType({})
) -> Comparison:
    """Compare a turn with a number of seconds, and with others."""
    limit = f"limit of {seconds:g} s"
    return Comparison(what, {OURS: turn, limit: lambda: seconds, **others}, {limit: 1.0}, rounds=10)


@dataclass(frozen=True)
class Project:
    """A project with an embedded cluster and a portal."""

    folder: Path

    @property
    def cluster(self) -> Path:
        return self.folder / "home" / "local"

    @contextlib.contextmanager
    def serving(
        self, jobs: int, points: Mapping[str, int], megabytes: Mapping[str, int]
    ) -> Iterator[Project]:
        """Run a cluster with ended sweeps of this many jobs and ten times as many, metrics and logs."""
        try:
            self.run("config.set", "local.keep=all")
            for name in ("first", *points, *megabytes):
                self.run("job.sub", "true", "--job-name", name)
            self.run("job.wait", "first", *points, *megabytes)
            for name, count in points.items():
                write_metrics(self.metrics_file(name), count)
            for name, size in megabytes.items():
                write_log(self.log_folder(name), size * MB)
            self.run("cluster.stop")
            for sweep, count in (("many", jobs), ("lots", 10 * jobs)):
                record_sweep(self.folder, sweep, multiply_job(self.cluster, sweep, "first", count))
            yield self
        finally:
            self.run("cluster.portal", "--stop")
            self.run("cluster.stop")

    def metrics_file(self, job: str) -> Path:
        (home,) = (self.cluster / "storage" / "home").iterdir()
        return home / "jobs" / job / "output" / ".pai" / "metrics" / "main-0-0.jsonl"

    def log_folder(self, job: str) -> Path:
        (folder,) = (self.cluster / "jobs").glob(f"*~{job}/0/main-0-0/logs")
        return folder

    def run(self, *words: str) -> str:
        argv = [sys.executable, "-m", "openpai_tasks", *words]
        variables = {"OPENPAI_HOME": str(self.folder / "home"), "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            argv, cwd=self.folder, env={**os.environ, **variables}, capture_output=True, text=True
        )
        if done.returncode:
            sys.exit(f"{' '.join(words)}: {done.stderr}")
        return done.stdout

    def command(self, *words: str) -> Turn:
        def take() -> None:
            self.run(*words)

        return take

    def page(self, path: str) -> Turn:
        """Return a turn that gets a page of the portal."""
        visitor = self.visitor

        def take() -> None:
            answer = visitor.get(path)
            if answer.status_code != 200:
                sys.exit(f"{path}: {answer.status_code}")

        return take

    def events(self, path: str, last: str) -> Turn:
        """Return a turn that follows a job's page until an event has come."""
        visitor = self.visitor

        def take() -> None:
            with visitor.get(f"/c/local/jobs/{path}", stream=True) as answer:
                for line in answer.iter_lines(1 << 16):
                    if line == f"event: {last}".encode():
                        return
            sys.exit(f"{path}: no event {last!r}")

        return take

    @functools.cached_property
    def visitor(self) -> Any:
        from tests.portal.conftest import Visitor

        return Visitor(self.run("cluster.portal", "--no-browser").strip())

    def anew(self, turn: Turn) -> Turn:
        """Return a turn for which nothing has been read before."""

        def take() -> float:
            (self.folder / "home" / "cache" / "jobs.db").unlink(missing_ok=True)
            start = time.perf_counter()
            turn()
            return time.perf_counter() - start

        return take


def multiply_job(home: Path, sweep: str, first: str, count: int) -> dict[str, dict[str, str]]:
    """Copy the ended job ``first`` of a stopped cluster; return the point of each job of the sweep.

    Each copy has rows of its own in the cluster's database, and a log with a result.
    """
    database = sqlite3.connect(home / "cluster.db")
    database.row_factory = sqlite3.Row
    key = database.execute("SELECT key FROM jobs WHERE name = ?", [first]).fetchone()["key"]
    job = dict(database.execute("SELECT * FROM jobs WHERE key = ?", [key]).fetchone())
    rows = {
        table: [dict(row) for row in database.execute(f"SELECT * FROM {table} WHERE job = ?", [key])]
        for table in ("attempts", "tasks")
    }
    points = {}
    with database:
        for number in range(count):
            name = f"{sweep}-rate-{number}"
            new = f"{job['user']}~{name}"
            changed = {
                "key": new,
                "name": name,
                "queued": number + 1000,
                "submitted": job["submitted"] + number,
            }
            _insert(
                database,
                "jobs",
                {
                    **job,
                    **changed,
                    "submitted": job["submitted"] + number,
                    "config": job["config"].replace(first, name),
                },
            )
            for row in rows["attempts"]:
                _insert(database, "attempts", {**row, "job": new})
            for row in rows["tasks"]:
                folder = home / "jobs" / new / "0" / "main-0-0"
                _insert(database, "tasks", {**row, "job": new, "uid": str(uuid4()), "folder": str(folder)})
                _write_log(folder / "logs", number)
            points[name] = {"rate": str(number)}
    database.close()
    return points


def write_log(folder: Path, size: int) -> None:
    """Write the log of a job that printed this many bytes, with a text to find near each end."""
    line, hit = b"step 12345: loss 0.123456, accuracy 0.98765\n", f"the {NEEDLE}\n".encode()
    block = line * 1000
    with open(folder / "all", "wb") as file:
        file.write(block + hit)
        for _ in range(max(0, size // len(block) - 2)):
            file.write(block)
        file.write(block + hit)
    (folder / "stdout").unlink()
    os.link(folder / "all", folder / "stdout")


def _insert(database: sqlite3.Connection, table: str, row: dict[str, object]) -> None:
    database.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", list(row.values()))


def _write_log(folder: Path, number: int) -> None:
    folder.mkdir(parents=True)
    text = "epoch 1\nepoch 2\n" + json.dumps({**RESULT, "loss": 1 / (number + 1)}) + "\n"
    for stream, content in (("stdout", text), ("all", text), ("stderr", "")):
        (folder / stream).write_text(content)


def record_sweep(project: Path, sweep: str, points: dict[str, dict[str, str]]) -> None:
    """Write the record of a sweep, as if it had been submitted from this folder."""
    path = project / ".openpai" / "sweeps" / "local" / f"{sweep}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [{"identity": "0" * 64}, *({"job": job, "point": point} for job, point in points.items())]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def write_metrics(path: Path, count: int) -> None:
    """Write the file that a program with this many points of one metric leaves, as the runtime does."""
    source, began = {"role": "main", "index": 0, "attempt": 0}, time.time()
    os.makedirs(path.parent, exist_ok=True)
    with open(path, "w", encoding="ascii") as file:
        for step in range(count):
            value = math.exp(-step / 50_000) + 0.1 * math.sin(step * 12.9898)
            line = {"time": began + step / 100, "name": "loss", "value": value, "step": step, **source}
            file.write(json.dumps(line) + "\n")
