"""A cache of what was read from jobs: results of ended jobs, causes of failures, summaries of long metrics.

It is a SQLite database, ``~/.openpai/cache/jobs.db``, that only saves time: what cannot be read counts as
missing, and a damaged file is replaced. Values are JSON with a limited size. A row belongs to one job as one
user of one cluster sees it, and counts only while its ``version`` is the expected one.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from openpai_tasks import causes
from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import ConfigError
from openpai_tasks.protocol import exit_codes
from openpai_tasks.protocol.json_text import parse
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.protocol.states import FAILED
from openpai_tasks.settings.home import home, make_private

if TYPE_CHECKING:
    import sqlite3

LARGEST = 16 << 20
"""Characters of a value; larger ones are not kept."""
MOST_ROWS = 100_000
MOST_BYTES = 128 << 20
"""Size at which the older half of all rows is removed."""
CAUSE = "cause"
WAIT_SECONDS = 2.0  # for another process that writes

_TABLE = """CREATE TABLE IF NOT EXISTS kept (
    owner TEXT NOT NULL, kind TEXT NOT NULL, job TEXT NOT NULL, version TEXT NOT NULL, value TEXT NOT NULL,
    PRIMARY KEY (owner, kind, job)
)"""
_LOAD = (
    "SELECT value FROM kept WHERE owner = ? AND kind = ? AND job = ? AND version = ? AND length(value) <= ?"
)
_SAVE = "INSERT OR REPLACE INTO kept VALUES (?, ?, ?, ?, ?)"

Versions = Mapping[str, str]
"""The expected version of each row, by the key of its job."""


def ended_version(job: JobInfo) -> str:
    """Return the version of what an ended job has left; empty if the job may still change, or has no times.

    A job of the same name that was submitted later, and another attempt of a job, have other versions.
    """
    if not (job.final and job.submitted and job.completed):
        return ""
    return f"{job.submitted} {job.attempt} {job.completed}"


def load(client: Backend, kind: str, versions: Versions) -> dict[str, Any]:
    """Return the kept values by the keys of their jobs."""
    found: dict[str, Any] = {}
    owner = _owner(client)

    def read(database: sqlite3.Connection) -> None:
        for key, version in versions.items():
            for (text,) in database.execute(_LOAD, [owner, kind, key, version, LARGEST]):
                with contextlib.suppress(ValueError):
                    found[key] = parse(str(text), float)

    if versions:
        _use(read)
    return found


def save(client: Backend, kind: str, versions: Versions, values: Mapping[str, Any]) -> None:
    """Keep values by the keys of their jobs; too large ones are left out."""
    owner = _owner(client)
    texts = ((key, json.dumps(value, ensure_ascii=False)) for key, value in values.items())
    rows = [(owner, kind, key, versions[key], text) for key, text in texts if len(text) <= LARGEST]

    def write(database: sqlite3.Connection) -> None:
        with database:
            _make_room(database)
            database.executemany(_SAVE, rows)

    if rows:
        _use(write)


def save_cause(client: Backend, job: JobInfo, cause: str) -> None:
    """Keep why a job has failed, for lists of a cluster that do not have it."""
    if cause != job.cause and (version := ended_version(job)):
        save(client, CAUSE, {job.key: version}, {job.key: cause})


def add_causes(client: Backend, jobs: list[JobInfo]) -> list[JobInfo]:
    """Return listed jobs with the causes of failures that commands have read, or that exit codes tell."""
    lacking = [job for job in jobs if job.state == FAILED and not job.cause]
    kept = load(client, CAUSE, {job.key: version for job in lacking if (version := ended_version(job))})
    found = {job.key: str(kept.get(job.key) or _cause_of_codes(job)) for job in lacking}
    return [replace(job, cause=found[job.key]) if job.key in found else job for job in jobs]


def _cause_of_codes(job: JobInfo) -> str:
    code = job.platform_exit_code or 0
    found = causes.cause_of_code(job.exit_code) or causes.cause_of_code(code)
    is_ended_by_platform = code < 0 and exit_codes.is_known(code)
    return (
        found.headline if found else str(exit_codes.exit_spec(code).get("reason", "") * is_ended_by_platform)
    )


def _owner(client: Backend) -> str:
    """Return whose view of which cluster it is; the embedded cluster's address changes."""
    cluster = client.cluster
    return json.dumps([cluster.alias, "" if cluster.is_embedded else cluster.uri, client.user])


def _make_room(database: sqlite3.Connection) -> None:
    """Remove the older half if there are too many rows or bytes; a replaced row counts as new."""
    first, last = database.execute("SELECT min(rowid), max(rowid) FROM kept").fetchone()
    pages, free, size = (
        database.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("page_count", "freelist_count", "page_size")
    )
    if first is not None and (last - first >= MOST_ROWS or (pages - free) * size > MOST_BYTES):
        database.execute("DELETE FROM kept WHERE rowid <= ?", [(first + last) // 2])


def _use(act: Callable[[sqlite3.Connection], None]) -> None:
    """Act on the database, which only the user can read; a damaged file is removed."""
    import sqlite3

    path = home() / "cache" / "jobs.db"
    try:
        make_private(path.parent)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600))
        with contextlib.closing(sqlite3.connect(path, WAIT_SECONDS)) as database:
            database.execute(_TABLE)
            act(database)
    except (sqlite3.OperationalError, OSError, ConfigError):
        pass  # locked, full or read-only: it is only a cache
    except sqlite3.DatabaseError:
        for damaged in (path, path.with_name("jobs.db-journal")):
            with contextlib.suppress(OSError):
                damaged.unlink()
