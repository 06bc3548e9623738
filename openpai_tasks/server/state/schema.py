"""The tables of State, and the conversion of rows to records."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from openpai_tasks.protocol.states import FAILED
from openpai_tasks.server.state import query
from openpai_tasks.server.state.database import Database
from openpai_tasks.server.state.query import NO_PRIORITY
from openpai_tasks.server.state.records import Attempt, Event, Job, Task

# jobs.source is the submitted document with its secrets: it is read to run the job, never for answers.
# jobs.pending: some task of the job has yet to be started; jobs.queued: its position in the queue.
# jobs.environment: variables of the submitter, as JSON.
# jobs.tries: automatic retries since the user last set START.
_TABLES = """
CREATE TABLE IF NOT EXISTS jobs (
    key TEXT PRIMARY KEY, user TEXT NOT NULL, name TEXT NOT NULL, virtual_cluster TEXT NOT NULL,
    config TEXT NOT NULL, source TEXT NOT NULL, execution TEXT NOT NULL, priority TEXT,
    state TEXT NOT NULL, sub_state TEXT NOT NULL, attempt INTEGER NOT NULL,
    user_retries INTEGER NOT NULL DEFAULT 0, platform_retries INTEGER NOT NULL DEFAULT 0,
    tries INTEGER NOT NULL DEFAULT 0,
    submitted INTEGER NOT NULL, launched INTEGER, completed INTEGER, exit_code INTEGER,
    cpu INTEGER NOT NULL, memory_mb INTEGER NOT NULL, gpus INTEGER NOT NULL,
    tasks INTEGER NOT NULL, roles INTEGER NOT NULL, gang INTEGER NOT NULL,
    pending INTEGER NOT NULL, queued INTEGER NOT NULL, not_before INTEGER NOT NULL DEFAULT 0,
    explained INTEGER NOT NULL DEFAULT 0, environment TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS jobs_by_place ON jobs (virtual_cluster, queued) WHERE pending = 1;
CREATE INDEX IF NOT EXISTS jobs_unexplained ON jobs (virtual_cluster, queued)
    WHERE pending = 1 AND explained = 0;
CREATE INDEX IF NOT EXISTS jobs_by_queued ON jobs (queued);
DROP INDEX IF EXISTS jobs_by_state;
DROP INDEX IF EXISTS jobs_by_time;
CREATE TABLE IF NOT EXISTS job_counts (
    user TEXT NOT NULL, virtual_cluster TEXT NOT NULL, priority TEXT NOT NULL, state TEXT NOT NULL,
    jobs INTEGER NOT NULL, PRIMARY KEY (user, virtual_cluster, priority, state)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS attempts (
    job TEXT NOT NULL REFERENCES jobs (key), id INTEGER NOT NULL,
    state TEXT NOT NULL, sub_state TEXT NOT NULL,
    created INTEGER NOT NULL, launched INTEGER, completed INTEGER,
    exit_code INTEGER, user_exit_code INTEGER, diagnostics TEXT NOT NULL DEFAULT '',
    trigger_role TEXT, trigger_index INTEGER,
    matched TEXT NOT NULL DEFAULT '', log_end TEXT NOT NULL DEFAULT '', PRIMARY KEY (job, id)
);
CREATE TABLE IF NOT EXISTS tasks (
    uid TEXT PRIMARY KEY, job TEXT NOT NULL REFERENCES jobs (key), job_attempt INTEGER NOT NULL,
    role TEXT NOT NULL, place INTEGER NOT NULL, task_index INTEGER NOT NULL, attempt INTEGER NOT NULL,
    state TEXT NOT NULL, sub_state TEXT NOT NULL,
    created INTEGER NOT NULL, launched INTEGER, completed INTEGER,
    exit_code INTEGER, user_exit_code INTEGER, diagnostics TEXT NOT NULL DEFAULT '',
    ip TEXT NOT NULL, ports TEXT NOT NULL, gpus TEXT NOT NULL, folder TEXT NOT NULL,
    virtual_cluster TEXT NOT NULL, cpu INTEGER NOT NULL, memory_mb INTEGER NOT NULL, gpu INTEGER NOT NULL,
    matched TEXT NOT NULL DEFAULT '', log_end TEXT NOT NULL DEFAULT '',
    peak_memory_mb INTEGER, cpu_seconds REAL,
    UNIQUE (job, job_attempt, place, task_index, attempt)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS tasks_by_state ON tasks (state);
CREATE INDEX IF NOT EXISTS tasks_by_role ON tasks (job, job_attempt, role, state);
CREATE TABLE IF NOT EXISTS events (
    uid TEXT PRIMARY KEY, job TEXT NOT NULL REFERENCES jobs (key), task TEXT, role TEXT, task_index INTEGER,
    type TEXT NOT NULL, reason TEXT NOT NULL, message TEXT NOT NULL,
    first INTEGER NOT NULL, last INTEGER NOT NULL, count INTEGER NOT NULL DEFAULT 1
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS events_by_job ON events (job, last);
CREATE TABLE IF NOT EXISTS job_sizes (
    job TEXT PRIMARY KEY REFERENCES jobs (key), bytes INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS engine (name TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS tags (
    job TEXT NOT NULL REFERENCES jobs (key), tag TEXT NOT NULL, PRIMARY KEY (job, tag)
);
CREATE TABLE IF NOT EXISTS v1_configs (
    job TEXT PRIMARY KEY REFERENCES jobs (key) ON DELETE CASCADE, config TEXT NOT NULL
);
"""


def _counting(row: str, change: str) -> str:
    """Return a statement that changes the number of jobs like this one."""
    values = f"{row}.user, {row}.virtual_cluster, coalesce({row}.priority, '{NO_PRIORITY}'), {row}.state"
    return (
        f"INSERT INTO job_counts VALUES ({values}, {change})"
        f" ON CONFLICT (user, virtual_cluster, priority, state) DO UPDATE SET jobs = jobs + {change};"
    )


_TRIGGERS = f"""
CREATE TRIGGER IF NOT EXISTS job_added AFTER INSERT ON jobs BEGIN {_counting("NEW", "1")} END;
CREATE TRIGGER IF NOT EXISTS job_removed AFTER DELETE ON jobs BEGIN {_counting("OLD", "-1")} END;
CREATE TRIGGER IF NOT EXISTS job_changed AFTER UPDATE OF state ON jobs WHEN OLD.state != NEW.state
BEGIN {_counting("OLD", "-1")} {_counting("NEW", "1")} END;
"""
SCHEMA = "\n".join([_TABLES, *query.indexes(), _TRIGGERS])

_TEXT = "TEXT NOT NULL DEFAULT ''"
_ADDED = {
    "jobs": {"environment": _TEXT},
    "attempts": {"matched": _TEXT, "log_end": _TEXT},
    "tasks": {"matched": _TEXT, "log_end": _TEXT, "peak_memory_mb": "INTEGER", "cpu_seconds": "REAL"},
}


def complete(database: Database) -> None:
    """Add what a database of an earlier release lacks: columns, and the number of its jobs."""
    for table, columns in _ADDED.items():
        there = {row["name"] for row in database.rows(f"PRAGMA table_info({table})")}
        for column, kind in columns.items():
            if column not in there:
                database.write(f"ALTER TABLE {table} ADD COLUMN {column} {kind}")
    if not database.row("SELECT 1 FROM job_counts LIMIT 1"):
        groups = f"user, virtual_cluster, coalesce(priority, '{NO_PRIORITY}'), state"
        database.write(f"INSERT INTO job_counts SELECT {groups}, count(*) FROM jobs GROUP BY {groups}")


JOB = """key, user, name, virtual_cluster, config, execution, priority, state, sub_state, attempt,
user_retries, platform_retries, submitted, launched, completed, exit_code, gpus, tasks, roles,
(SELECT group_concat(tag) FROM tags WHERE tags.job = key) AS tags"""
LISTED_JOB = f"""{JOB.replace("config", "'' AS config")}, CASE WHEN state = '{FAILED}' THEN
(SELECT user_exit_code FROM attempts WHERE attempts.job = key AND id = jobs.attempt) END AS user_exit_code"""


def job(row: Mapping[str, Any] | sqlite3.Row) -> Job:
    values: dict[str, Any] = dict(row)
    values["tags"] = tuple(values["tags"].split(",")) if values["tags"] else ()
    return Job(**values)


def attempt(row: sqlite3.Row) -> Attempt:
    return Attempt(**dict(row))


_TASK = [field.name for field in dataclasses.fields(Task) if field.name != "index"]


def task(row: sqlite3.Row) -> Task:
    values = {name: row[name] for name in _TASK}
    values["index"] = row["task_index"]
    values["ports"] = {label: tuple(numbers) for label, numbers in json.loads(row["ports"]).items()}
    values["gpus"] = tuple(json.loads(row["gpus"]))
    values["folder"] = Path(row["folder"])
    return Task(**values)


def task_row(task: Task) -> dict[str, Any]:
    """Return the columns of a task's record."""
    return {name: getattr(task, name) for name in _TASK} | {
        "task_index": task.index,
        "ports": json.dumps(task.ports),
        "gpus": json.dumps(task.gpus),
        "folder": str(task.folder),
    }


def event(row: sqlite3.Row) -> Event:
    values = dict(row)
    values["index"] = values.pop("task_index")
    return Event(**values)
