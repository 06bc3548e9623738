"""How busy the cluster was in the last day."""

from __future__ import annotations

from pathlib import Path

from openpai_tasks.server.state import state, usage_history
from openpai_tasks.server.state.database import Database
from openpai_tasks.server.state.usage_history import KEPT, UsageHistory

MINUTE = 60_000


def open_database(folder: Path) -> Database:
    return Database(folder / "cluster.db", state.SCHEMA + usage_history.SCHEMA)


def insert(database: Database, table: str, known: dict[str, object]) -> None:
    """Insert a row; required columns without a value are 0."""
    rows = database.rows(f"PRAGMA table_info({table})")
    values = {row["name"]: known.get(row["name"], 0) for row in rows if row["notnull"] or row["pk"]}
    holes = ", ".join("?" * len(values))
    database.write(f"INSERT INTO {table} ({', '.join(values)}) VALUES ({holes})", [*values.values()])


def add(database: Database, name: str, job_state: str, pending: int, tasks: int) -> None:
    """Add a job with this state; its running tasks have 2 CPUs and a GPU each."""
    insert(database, "jobs", {"key": name, "state": job_state, "pending": pending, "tasks": tasks})
    for number in range(0 if pending else tasks):
        task = {"uid": f"{name}{number}", "job": name, "state": job_state, "task_index": number}
        insert(database, "tasks", {**task, "cpu": 2, "memory_mb": 1024, "gpu": 1})


def test_a_sample_counts_running_and_waiting_tasks_and_what_they_asked_for(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    for values in (("runs", "RUNNING", 0, 3), ("queued", "WAITING", 1, 4), ("given", "WAITING", 0, 2)):
        add(database, *values)
    add(database, "over", "SUCCEEDED", 0, 5)
    history = UsageHistory(database)
    history.sample(10 * MINUTE)
    (found,) = history.read(0, MINUTE)
    assert (found.time, found.running, found.waiting) == (10 * MINUTE, 3, 6)
    assert (found.cpu, found.memory_mb, found.gpu) == (6, 3072, 3)
    database.close()


def test_a_day_is_kept_also_by_the_next_server_and_read_as_means(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    history = UsageHistory(database)
    for at in range(0, 2 * KEPT, 10 * MINUTE):
        history.sample(at)
    database.close()
    database = open_database(tmp_path)
    history = UsageHistory(database)
    last = 2 * KEPT - 10 * MINUTE
    found = history.read(0, 10 * MINUTE)
    assert (found[0].time, found[-1].time, len(found)) == (last - KEPT, last, 145)
    assert len(history.read(last - 60 * MINUTE, 30 * MINUTE)) == 3
    history.sample(MINUTE)  # the clock was set back
    assert [one.time for one in history.read(0, 1)] == [MINUTE]
    database.close()
