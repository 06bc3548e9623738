"""The portal at size: the page and command of a sweep of many jobs, and of a job with many metric points.

Each contender is the same work on a tenth of the data: what was read once is kept, so that ten times as many
should not take ten times as long.
"""

from __future__ import annotations

import json
import math
import os
import sqlite3
import time
from pathlib import Path
from uuid import uuid4

RESULT = {"loss": 0.5, "accuracy": 0.9}


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
