"""The tables of State, and the conversion of rows to records."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from openpai_tasks.protocol.states import FAILED, RUNNING
from openpai_tasks.server.state import query
from openpai_tasks.server.state.database import Database
from openpai_tasks.server.state.query import NO_PRIORITY
from openpai_tasks.server.state.records import RELEASED, Attempt, Event, Job, Task

# jobs.source is the submitted document with its secrets: it is read to run the job, never for answers.
# jobs.pending: some task of the job has yet to be started; jobs.queued: its position in the queue.
# jobs.share: the sweep of the job; jobs.rank: its priority, or more if its owner has moved it to the front.
# jobs.environment: variables of the submitter, as JSON.
# jobs.tries: automatic retries since the user last set START; jobs.requeues: runs after its time limit.
# jobs.stop_reason: why the server stopped it; jobs.gpus_idle_since: in ms, while its GPUs are idle.
# dependencies.ended: how the job ``after`` ended while the job waited for it; empty before that.
# removed_jobs has at most one row: when the last of them had ended.
# hooks.hook has secrets, like jobs.source. hooks.sweep: USER~SWEEP, whose last job has hooks.last.
# hooks.failed: the attempt whose failure is sent already, as its environment is kept.
# deliveries.due: when the next attempt to notify a hook begins; facts: what it is notified of.
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
    explained INTEGER NOT NULL DEFAULT 0, environment TEXT NOT NULL DEFAULT '',
    share TEXT NOT NULL DEFAULT '', rank INTEGER NOT NULL DEFAULT 1,
    requeues INTEGER NOT NULL DEFAULT 0, stop_reason TEXT NOT NULL DEFAULT '', gpus_idle_since INTEGER
) WITHOUT ROWID;
DROP INDEX IF EXISTS jobs_by_place;
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
    matched TEXT NOT NULL DEFAULT '', log_end TEXT NOT NULL DEFAULT '',
    cause TEXT NOT NULL DEFAULT '', PRIMARY KEY (job, id)
);
CREATE INDEX IF NOT EXISTS attempts_by_end ON attempts (completed);
CREATE TABLE IF NOT EXISTS tasks (
    uid TEXT PRIMARY KEY, job TEXT NOT NULL REFERENCES jobs (key), job_attempt INTEGER NOT NULL,
    role TEXT NOT NULL, place INTEGER NOT NULL, task_index INTEGER NOT NULL, attempt INTEGER NOT NULL,
    state TEXT NOT NULL, sub_state TEXT NOT NULL,
    created INTEGER NOT NULL, launched INTEGER, completed INTEGER,
    exit_code INTEGER, user_exit_code INTEGER, diagnostics TEXT NOT NULL DEFAULT '',
    ip TEXT NOT NULL, ports TEXT NOT NULL, gpus TEXT NOT NULL, folder TEXT NOT NULL,
    virtual_cluster TEXT NOT NULL, cpu INTEGER NOT NULL, memory_mb INTEGER NOT NULL, gpu INTEGER NOT NULL,
    matched TEXT NOT NULL DEFAULT '', log_end TEXT NOT NULL DEFAULT '',
    cause TEXT NOT NULL DEFAULT '', peak_memory_mb INTEGER, cpu_seconds REAL, gpu_percent REAL, kept INTEGER,
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
CREATE TABLE IF NOT EXISTS removed_jobs (last_end INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS hooks (
    job TEXT NOT NULL REFERENCES jobs (key) ON DELETE CASCADE, number INTEGER NOT NULL,
    hook TEXT NOT NULL, sweep TEXT NOT NULL DEFAULT '', last INTEGER NOT NULL DEFAULT 0, failed INTEGER,
    PRIMARY KEY (job, number)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS hooks_by_sweep ON hooks (sweep) WHERE sweep != '';
CREATE TABLE IF NOT EXISTS deliveries (
    id TEXT PRIMARY KEY, job TEXT NOT NULL REFERENCES jobs (key) ON DELETE CASCADE, number INTEGER NOT NULL,
    event TEXT NOT NULL, sweep TEXT NOT NULL DEFAULT '', facts TEXT NOT NULL DEFAULT '',
    created INTEGER NOT NULL, due INTEGER NOT NULL, tries INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS deliveries_by_due ON deliveries (due);
CREATE INDEX IF NOT EXISTS deliveries_by_job ON deliveries (job);
CREATE INDEX IF NOT EXISTS deliveries_by_sweep ON deliveries (sweep) WHERE sweep != '';
CREATE TABLE IF NOT EXISTS v1_configs (
    job TEXT PRIMARY KEY REFERENCES jobs (key) ON DELETE CASCADE, config TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS dependencies (
    job TEXT NOT NULL REFERENCES jobs (key), after TEXT NOT NULL, wanted TEXT NOT NULL,
    ended TEXT NOT NULL DEFAULT '', PRIMARY KEY (job, after, wanted)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS dependencies_by_after ON dependencies (after, ended);
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

_QUEUES = (
    "CREATE INDEX IF NOT EXISTS jobs_by_turn ON jobs (virtual_cluster, user, share, rank, queued, pending)"
    " WHERE pending = 1"
)
_TEXT = "TEXT NOT NULL DEFAULT ''"
_ADDED = {
    "jobs": {
        **{"environment": _TEXT, "share": _TEXT, "rank": "INTEGER NOT NULL DEFAULT 1"},
        **{"requeues": "INTEGER NOT NULL DEFAULT 0", "stop_reason": _TEXT, "gpus_idle_since": "INTEGER"},
    },
    "attempts": {"matched": _TEXT, "log_end": _TEXT, "cause": _TEXT},
    "tasks": {
        **{"matched": _TEXT, "log_end": _TEXT, "cause": _TEXT},
        **{"peak_memory_mb": "INTEGER", "cpu_seconds": "REAL", "gpu_percent": "REAL", "kept": "INTEGER"},
    },
    "hooks": {"failed": "INTEGER"},
}


def complete(database: Database) -> None:
    """Add what a database of an earlier release lacks: columns, and the number of its jobs."""
    add_columns(database, _ADDED)
    database.write(_QUEUES)
    if not database.row("SELECT 1 FROM job_counts LIMIT 1"):
        groups = f"user, virtual_cluster, coalesce(priority, '{NO_PRIORITY}'), state"
        database.write(f"INSERT INTO job_counts SELECT {groups}, count(*) FROM jobs GROUP BY {groups}")


def add_columns(database: Database, added: Mapping[str, Mapping[str, str]]) -> None:
    """Add columns that the tables of an earlier release lack."""
    for table, columns in added.items():
        there = {row["name"] for row in database.rows(f"PRAGMA table_info({table})")}
        for column, kind in columns.items():
            if column not in there:
                database.write(f"ALTER TABLE {table} ADD COLUMN {column} {kind}")


JOB = """key, user, name, virtual_cluster, config, execution, priority, state, sub_state, attempt,
user_retries, platform_retries, submitted, launched, completed, exit_code, gpus, tasks, roles,
requeues, stop_reason, gpus_idle_since,
(SELECT group_concat(tag) FROM tags WHERE tags.job = key) AS tags"""
_OF_KEPT_TASK = (
    "(SELECT {0} FROM tasks WHERE tasks.job = key AND job_attempt = jobs.attempt"
    f" AND tasks.state = '{RUNNING}' AND kept > {RELEASED} ORDER BY kept DESC LIMIT 1)"
)
_OF_FAILURE = (
    f"CASE jobs.state WHEN '{FAILED}' THEN"
    " (SELECT {0} FROM attempts WHERE attempts.job = key AND id = jobs.attempt)"
    f" WHEN '{RUNNING}' THEN {_OF_KEPT_TASK} END AS {{0}}"
)
LISTED_JOB = ", ".join(
    [
        JOB.replace("config", "'' AS config"),
        *map(_OF_FAILURE.format, ("user_exit_code", "cause")),
        f"CASE jobs.state WHEN '{RUNNING}' THEN {_OF_KEPT_TASK.format('kept')} END AS kept_until",
    ]
)


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
