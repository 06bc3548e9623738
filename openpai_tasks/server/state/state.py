"""The stored state of the embedded cluster: queries, and the changes that users make.

The changes that the scheduler makes are in scheduling/progress.py.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import re
import sqlite3
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from openpai_tasks.errors import Conflict, NotFound
from openpai_tasks.files.removal import discard
from openpai_tasks.protocol import JobDocument, states, validate
from openpai_tasks.protocol.document.policy import HIGHEST, priority_rank
from openpai_tasks.protocol.environment import decode
from openpai_tasks.protocol.routes import job_key
from openpai_tasks.server.resources import ResourceAmount, demand
from openpai_tasks.server.state import schema
from openpai_tasks.server.state.database import Database
from openpai_tasks.server.state.dependencies import IS_READY, Dependencies
from openpai_tasks.server.state.job_hooks import HookTable
from openpai_tasks.server.state.query import JobQuery, Statement
from openpai_tasks.server.state.records import Attempt, Event, Job, Task
from openpai_tasks.server.state.schema import SCHEMA
from openpai_tasks.settings.home import make_private

__all__ = ["SCHEMA", "JobQuery", "State", "now"]

START, STOP = "START", "STOP"
USER_STOP = "the user stopped the job"
REMOVED = ".removed"  # folder of folders that are being deleted; names of jobs' folders do not begin so
_MOST_CACHED = 1000  # number of parsed documents in the cache
_LONGEST_FOLDER = 150  # bytes; file systems allow up to 255
_AT_ONCE = 500  # jobs; some builds of SQLite take 999 values in a statement


def now() -> int:
    return time.time_ns() // 1_000_000


def folder_name(name: str) -> str:
    """Return the name itself if it is safe and distinct on every file system, else with a hash added."""
    plain = re.sub(r"[^\w.~-]", "_", name, flags=re.ASCII)
    if plain == name == name.lower() and 0 < len(name) <= _LONGEST_FOLDER and not name.startswith("."):
        return name
    mark = hashlib.md5(name.encode("utf-8"), usedforsecurity=False).hexdigest()[:8]
    return f"{plain.lstrip('.')[:_LONGEST_FOLDER]}-{mark}"


def task_folder(jobs: Path, key: str, attempt: int, role: str, index: int, number: int) -> Path:
    """Return the folder of attempt ``number`` of one task instance."""
    return jobs.joinpath(folder_name(key), str(attempt), f"{folder_name(role)}-{index}-{number}")


class State:
    """Jobs, attempts, tasks, events and tags; ``folder`` contains the jobs' folders.

    ``joint`` separates the commands of a role.
    """

    def __init__(self, database: Database, folder: Path, joint: str = "\n") -> None:
        self.database = database
        self.dependencies = Dependencies(database)
        self._joint = joint
        self.folder = make_private(folder)
        schema.complete(database)
        self.hooks = HookTable(database)
        self._documents: dict[str, JobDocument] = {}
        self._documents_lock = threading.Lock()
        self.listen(lambda: None, lambda: None)

    def listen(self, submitted: Callable[[], None], changed: Callable[[], None]) -> None:
        """Call ``submitted`` for a new job that may start, ``changed`` for a stop, new start or release."""
        self._submitted, self._changed = submitted, changed

    # Changes by users

    def submit(self, user: str, document: JobDocument, text: str, environment: str = "") -> Job:
        """Add a job to the end of its virtual cluster's queue; it may have to wait for other jobs first.

        ``text`` is its source, which is never shown; ``environment`` are variables of the submitter, as JSON.
        """
        job = _new_job(user, document)
        with self.database.transaction():
            after = self.dependencies.check(user, document.policy.after)
            is_ready = all(ended for _, _, ended in after)
            if not self._insert_job(job, document, text, environment, is_ready):
                message = f"job {document.name} of user {user} exists already: choose another name"
                raise Conflict(message, status=409, code="ConflictJobError")
            folder = folder_name(job.key)
            if (self.folder / folder).exists():  # of a job whose database is lost
                self._set_aside(folder)
            self.add_attempt(job.key, 0)
            self.dependencies.add(job.key, after)
        self._cache_document(job.key, document)
        if is_ready:
            self.database.when_committed(self._submitted)  # a transaction around this one may go on
        return job

    def add_v1_config(self, key: str, config: dict[str, Any]) -> None:
        self.database.write("INSERT INTO v1_configs VALUES (?, ?)", [key, json.dumps(config)])

    def set_execution(self, key: str, value: str, reason: str = "") -> None:
        """Set STOP to end a waiting or running job, or START to begin a new attempt of a finished one.

        ``reason`` is why the server itself stops the job.
        """
        with self.database.transaction():
            job = self.existing_job(key)
            self.database.write("UPDATE jobs SET execution = ? WHERE key = ?", [value, key])
            if value == STOP and job.state not in states.FINAL:
                self._begin_stop(job, reason)
            elif value == START and job.state in states.FINAL:
                self.dependencies.renew(key, job.user)
                self.queue_attempt(key, job.attempt + 1, tries=0)
                self.database.write("UPDATE jobs SET requeues = 0, stop_reason = '' WHERE key = ?", [key])
        self.database.when_committed(self._changed)

    def move_first(self, key: str) -> None:
        """Put a waiting job before the other waiting jobs of its owner in its virtual cluster."""
        with self.database.transaction():
            job = self.existing_job(key)
            changed = self.database.write(
                "UPDATE jobs SET rank = max(rank, 1 + (SELECT max(?, coalesce(max(other.rank), 0))"
                " FROM jobs AS other WHERE other.pending = 1 AND other.virtual_cluster = jobs.virtual_cluster"
                " AND other.user = jobs.user AND other.key != jobs.key)) WHERE key = ? AND pending = 1",
                [HIGHEST, key],
            )
            if not changed:
                message = f"job {job.name} is {job.state}: only a job that waits to be started can be moved"
                is_open = any(one.met is None for one in self.dependencies.of(key))
                if job.state == states.WAITING and is_open:
                    message = f"job {job.name} waits for other jobs: it can be moved once they have ended"
                raise Conflict(message, status=409, code="ConflictJobError")
            self.add_event(key, "Normal", "Moved", f"before the other waiting jobs of {job.user}", once=True)
        self.database.when_committed(self._changed)

    def remove(self, key: str) -> bool:
        """Remove a finished job and its files; return False, without a change, if it has not finished."""
        with self.database.transaction():
            job = self.job(key)
            if job is None or job.state not in states.FINAL:
                return job is None
            self.database.write(
                "INSERT OR REPLACE INTO removed_jobs (rowid, last_end)"
                " SELECT 1, max(?, coalesce((SELECT last_end FROM removed_jobs), 0))",
                [job.completed or now()],
            )
            for table in ("tags", "job_sizes", "events", "tasks", "attempts", "dependencies"):
                self.database.write(f"DELETE FROM {table} WHERE job = ?", [key])
            self.database.write("DELETE FROM jobs WHERE key = ?", [key])
            self.forget_document(key)
            self._set_aside(folder_name(key))
        return True

    def _set_aside(self, name: str) -> None:
        """Move a folder out of the way of a later job with the same name, and delete it after the commit."""
        place = make_private(self.folder / REMOVED) / uuid.uuid4().hex
        with contextlib.suppress(FileNotFoundError):
            (self.folder / name).rename(place)
            self.database.when_committed(lambda: discard(place))

    def add_tag(self, key: str, tag: str) -> bool:
        """Add a tag; return False if the job already has it."""
        return self.database.write("INSERT OR IGNORE INTO tags VALUES (?, ?)", [key, tag]) > 0

    def remove_tag(self, key: str, tag: str) -> bool:
        """Remove a tag; return False if the job does not have it."""
        return self.database.write("DELETE FROM tags WHERE job = ? AND tag = ?", [key, tag]) > 0

    # Queries

    def has_job(self, key: str) -> bool:
        return self.database.row("SELECT 1 FROM jobs WHERE key = ?", [key]) is not None

    def job(self, key: str) -> Job | None:
        row = self.database.row(f"SELECT {schema.JOB} FROM jobs WHERE key = ?", [key])
        return schema.job(row) if row else None

    def existing_job(self, key: str) -> Job:
        job = self.job(key)
        if job is None:
            raise _no_job(key)
        return job

    def jobs(self, query: JobQuery) -> list[Job]:
        """Return the requested page of the matching jobs."""
        starts = query.starts()
        start = min(starts, key=lambda name: self._count(query.count_start(name)), default="")
        keys = [row["key"] for row in self.database.rows(*query.page(start))]
        found = {row["key"]: schema.job(row) for row in self._job_rows(keys)}
        return [found[key] for key in keys if key in found]  # one may have been removed meanwhile

    def jobs_by_key(self, keys: Sequence[str]) -> list[Job]:
        """Return those of these jobs that exist, in any order, without their documents."""
        return [schema.job(row) for row in self._job_rows(keys)]

    def count(self, query: JobQuery) -> int:
        """Return the number of matching jobs on all pages."""
        return self._count(query.count())

    def attempts(self, key: str) -> list[Attempt]:
        """Return all attempts, oldest first."""
        return [schema.attempt(row) for row in self._select("attempts", "job = ? ORDER BY id", [key])]

    def attempt(self, key: str, number: int) -> Attempt | None:
        found = self._select("attempts", "job = ? AND id = ?", [key, number])
        return schema.attempt(found[0]) if found else None

    def tasks(self, key: str, attempt: int) -> list[Task]:
        """Return the latest attempt of each task instance, in the order of the document."""
        where = "job = ? AND job_attempt = ? ORDER BY place, task_index, attempt"
        rows = self._select("tasks", where, [key, attempt])
        return [schema.task(row) for row in {(row["place"], row["task_index"]): row for row in rows}.values()]

    def task_attempts(self, key: str, attempt: int, role: str, index: int) -> list[Task]:
        """Return every attempt of one task instance, newest first.

        ``role`` may also be its name in answers.
        """
        where = "job = ? AND job_attempt = ? AND task_index = ? ORDER BY attempt DESC"
        rows = self._select("tasks", where, [key, attempt, index])
        exact = [row for row in rows if row["role"] == role]
        close = [row for row in rows if states.role_key(row["role"]) == states.role_key(role)]
        return [schema.task(row) for row in exact or close]

    def task(self, uid: str) -> Task | None:
        """Return a task attempt by its id."""
        found = self._select("tasks", "uid = ?", [uid])
        return schema.task(found[0]) if found else None

    def events(self, key: str, type: str | None = None) -> list[Event]:
        """Return the events of a job, latest first."""
        where = "job = ? AND (? IS NULL OR type = ?) ORDER BY last DESC, first DESC, task IS NOT NULL"
        return [schema.event(row) for row in self._select("events", where, [key, type, type])]

    def usage(self) -> dict[str, ResourceAmount]:
        """Return the resources of running tasks, by virtual cluster."""
        rows = self.database.rows(
            "SELECT virtual_cluster, sum(cpu), sum(memory_mb), sum(gpu) FROM tasks"
            " WHERE state IN ('RUNNING', 'STOPPING') GROUP BY virtual_cluster"
        )
        return {row[0]: ResourceAmount(row[1], row[2], row[3]) for row in rows}

    def used_gpus(self) -> dict[str, int]:
        """Return the number of GPUs that running tasks hold, by the address of the node."""
        rows = self.database.rows(
            "SELECT ip, sum(gpu) FROM tasks WHERE state IN ('RUNNING', 'STOPPING') GROUP BY ip"
        )
        return {row[0]: row[1] for row in rows}

    def counts(self, virtual_cluster: str | None = None) -> dict[str, int]:
        """Return the number of jobs in each state, in one virtual cluster or in all."""
        where = "? IS NULL OR virtual_cluster = ?"
        rows = self.database.rows(
            f"SELECT state, sum(jobs) FROM job_counts WHERE {where} GROUP BY state", [virtual_cluster] * 2
        )
        return {row[0]: row[1] for row in rows if row[1]}

    def active(self) -> list[str]:
        """Return the keys of all unfinished jobs, in the order of submission."""
        where = "state IN ('WAITING', 'RUNNING', 'STOPPING') ORDER BY queued"
        return [row["key"] for row in self.database.rows(f"SELECT key FROM jobs WHERE {where}")]

    def document(self, key: str) -> JobDocument:
        """Return the job's document, ready to run."""
        document = self._documents.get(key)
        if document is None:
            row = self.database.row("SELECT source FROM jobs WHERE key = ?", [key])
            if row is None:
                raise _no_job(key)
            document = self._cache_document(key, validate(row["source"]))
        return document

    def v1_config(self, key: str) -> Any:
        """Return the job's v1 configuration as submitted; None if it was submitted as a v2 document."""
        row = self.database.row("SELECT config FROM v1_configs WHERE job = ?", [key])
        return json.loads(row["config"]) if row else None

    def environment(self, key: str) -> dict[str, str]:
        """Return the variables of the submitter that the job runs with; empty for those of the server."""
        row = self.database.row("SELECT environment FROM jobs WHERE key = ?", [key])
        return decode(row["environment"]) if row and row["environment"] else {}

    # Changes by the scheduler

    def add_event(
        self, key: str, type: str, reason: str, message: str, task: Task | None = None, once: bool = False
    ) -> None:
        """Add an event; a repeated reason replaces the message and counts up, or is ignored with ``once``."""
        identity = f"{key}\n{reason}\n{task.uid if task else ''}"
        mark = hashlib.md5(identity.encode(), usedforsecurity=False).hexdigest()
        uid = f"{mark[:8]}-{mark[8:12]}-{mark[12:16]}-{mark[16:20]}-{mark[20:]}"
        renew = "UPDATE SET count = count + 1, last = excluded.last, message = excluded.message"
        again = "NOTHING" if once else renew
        place = (task.uid, task.role, task.index) if task else (None, None, None)
        time = now()
        self.database.write(
            f"INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1) ON CONFLICT (uid) DO {again}",
            [uid, key, *place, type, reason, message, time, time],
        )

    def add_attempt(self, key: str, number: int) -> None:
        self.database.write(
            "INSERT INTO attempts (job, id, state, sub_state, created) VALUES (?, ?, ?, ?, ?)",
            [key, number, states.WAITING, states.CREATION_PENDING, now()],
        )

    def queue_attempt(self, key: str, number: int, tries: int, not_before: int = 0) -> None:
        """Add a new attempt of the job to the end of the queue, also if the last one was moved."""
        rank = priority_rank(self.existing_job(key).priority)
        self.add_attempt(key, number)
        self.database.write("DELETE FROM job_sizes WHERE job = ?", [key])
        self.database.write(
            "UPDATE jobs SET state = ?, sub_state = ?, attempt = ?, tries = ?, not_before = ?,"
            f" completed = NULL, exit_code = NULL, gpus_idle_since = NULL, pending = {IS_READY},"
            " explained = 0, rank = ?, queued = (SELECT max(queued) + 1 FROM jobs) WHERE key = ?",
            [states.WAITING, states.CREATION_PENDING, number, tries, not_before, rank, key],
        )

    def release(self, key: str) -> None:
        """Let a job that waits for no other job any more into its queue."""
        self.database.write(
            f"UPDATE jobs SET pending = 1 WHERE key = ? AND state = 'WAITING' AND {IS_READY}", [key]
        )
        self.database.when_committed(self._changed)

    def forget_document(self, key: str) -> None:
        with self._documents_lock:
            self._documents.pop(key, None)

    def _insert_job(
        self, job: Job, document: JobDocument, text: str, environment: str, is_ready: bool
    ) -> bool:
        """Insert a job; return False if it exists."""
        need = demand(document)
        added = self.database.write(
            "INSERT INTO jobs (key, user, name, virtual_cluster, config, source, execution, priority, state,"
            " sub_state, attempt, submitted, cpu, memory_mb, gpus, tasks, roles, gang, environment, pending,"
            " share, rank, queued) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,"
            " (SELECT coalesce(max(queued), 0) + 1 FROM jobs)) ON CONFLICT (key) DO NOTHING",
            [
                *(job.key, job.user, job.name, job.virtual_cluster, job.config, text, job.execution),
                *(job.priority, job.state, job.sub_state, job.submitted),
                *(need.cpu, need.memory_mb, job.gpus, job.tasks, job.roles, document.gang, environment),
                *(is_ready, document.sweep, priority_rank(document.priority)),
            ],
        )
        return added > 0

    def _begin_stop(self, job: Job, reason: str) -> None:
        self.add_event(job.key, "Normal", "Stopping", f"stopped: {reason}" if reason else USER_STOP)
        values = [states.STOPPING, states.DELETION_PENDING, job.key]
        self.database.write("UPDATE jobs SET state = ?, sub_state = ?, pending = 0 WHERE key = ?", values)
        self.database.write(
            "UPDATE jobs SET stop_reason = ?, gpus_idle_since = NULL WHERE key = ?", [reason, job.key]
        )
        values.append(str(job.attempt))
        self.database.write("UPDATE attempts SET state = ?, sub_state = ? WHERE job = ? AND id = ?", values)

    def _cache_document(self, key: str, document: JobDocument) -> JobDocument:
        """Cache a parsed document, with the commands joined as this cluster does."""
        document = dataclasses.replace(document, joint=self._joint)
        with self._documents_lock:
            while len(self._documents) >= _MOST_CACHED:
                del self._documents[next(iter(self._documents))]
            self._documents[key] = document
        return document

    def _count(self, statement: Statement) -> int:
        row = self.database.row(*statement)
        return row[0] if row else 0

    def _job_rows(self, keys: Sequence[str]) -> Iterator[sqlite3.Row]:
        """Yield the rows of these jobs, in any order."""
        for first in range(0, len(keys), _AT_ONCE):
            some = keys[first : first + _AT_ONCE]
            holes = ", ".join("?" * len(some))
            yield from self.database.rows(
                f"SELECT {schema.LISTED_JOB} FROM jobs WHERE key IN ({holes})", some
            )

    def _select(self, table: str, where: str, values: Sequence[object]) -> Sequence[sqlite3.Row]:
        return self.database.rows(f"SELECT * FROM {table} WHERE {where}", values)


def _new_job(user: str, document: JobDocument) -> Job:
    return Job(
        key=job_key(user, document.name),
        user=user,
        name=document.name,
        virtual_cluster=document.virtual_cluster,
        config=document.masked(),
        execution=START,
        priority=document.priority,
        state=states.WAITING,
        sub_state=states.CREATION_PENDING,
        submitted=now(),
        gpus=demand(document).gpu,
        tasks=sum(role.instances for role in document.roles),
        roles=len(document.roles),
    )


def _no_job(key: str) -> NotFound:
    return NotFound(f"no job {key}", status=404, code="NoJobError")
