"""Jobs that wait for the end of others.

A job with an open dependency is not in a queue. The first end of a job settles the dependencies on it: what
happens to it afterwards does not change them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import replace

from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol import states
from openpai_tasks.protocol.document.policy import Dependency
from openpai_tasks.protocol.routes import job_key
from openpai_tasks.server import api_errors
from openpai_tasks.server.state.database import Database
from openpai_tasks.server.state.records import RELEASED

IS_READY = "NOT EXISTS (SELECT 1 FROM dependencies WHERE job = jobs.key AND ended = '')"
"""Condition for jobs that wait for no other."""
MOST_LISTED = 1000


@dataclass(frozen=True)
class DependencyState:
    """A dependency with the state of the job at its other end; ``met`` is None while it is open."""

    job: str  # key of the other job
    when: str
    state: str  # empty if the job was removed before it was waited for
    met: bool | None
    kept: bool = False  # whether a failed task of the job is kept, which delays its end


class Dependencies:
    def __init__(self, database: Database) -> None:
        self._database = database

    def check(self, user: str, wanted: Iterable[Dependency]) -> list[tuple[str, str, str]]:
        """Return the rows for a new job of the user, without the job; raise if it could never start."""
        found = []
        for one in wanted:
            key = one.job if "~" in one.job else job_key(user, one.job)
            state = self._state(key)
            if state is None:
                raise api_errors.invalid(f"no job named {one.job!r}, which the job was to wait for")
            found.append((key, one.when, _ended(one, state)))
        return found

    def add(self, key: str, rows: Iterable[tuple[str, str, str]]) -> None:
        sql = "INSERT OR IGNORE INTO dependencies VALUES (?, ?, ?, ?)"
        self._database.write_each(sql, [(key, *row) for row in rows])

    def renew(self, key: str, user: str) -> None:
        """Look again at the jobs that a job depends on, before it is started again; raise if it cannot be."""
        for row in self._database.rows("SELECT after, wanted, ended FROM dependencies WHERE job = ?", [key]):
            one = Dependency(short_key(row["after"], user), row["wanted"])
            self._database.write(
                "UPDATE dependencies SET ended = ? WHERE job = ? AND after = ? AND wanted = ?",
                [_ended(one, self._state(row["after"]) or row["ended"]), key, row["after"], row["wanted"]],
            )

    def settle(self, key: str, state: str) -> list[tuple[str, Dependency]]:
        """Record the end of a job for those that wait for it, and return these, each with its dependency."""
        rows = self._database.rows(
            "SELECT job, user, wanted FROM dependencies JOIN jobs ON jobs.key = job"
            " WHERE after = ? AND ended = '' AND state IN ('WAITING', 'STOPPING')",
            [key],
        )
        self._database.write_each(
            "UPDATE dependencies SET ended = ? WHERE job = ? AND after = ?",
            [(state, row["job"], key) for row in rows],
        )
        return [(row["job"], Dependency(short_key(key, row["user"]), row["wanted"])) for row in rows]

    def of(self, key: str) -> list[DependencyState]:
        """Return what the job waits for, or has waited for."""
        rows = self._database.rows(
            "SELECT after AS other, wanted, ended, coalesce(state, '') AS state, EXISTS ("
            "SELECT 1 FROM tasks WHERE tasks.job = after AND job_attempt = jobs.attempt"
            " AND tasks.state = 'RUNNING' AND kept > ?) AS kept"
            " FROM dependencies LEFT JOIN jobs ON jobs.key = after WHERE dependencies.job = ?",
            [RELEASED, key],
        )
        found = [_dependency(row, row["ended"] or row["state"]) for row in rows]
        return [replace(one, kept=bool(row["kept"])) for one, row in zip(found, rows, strict=True)]

    def on(self, key: str) -> list[DependencyState]:
        """Return the jobs that wait for this one, or have waited for it."""
        rows = self._database.rows(
            "SELECT job AS other, wanted, ended, state FROM dependencies JOIN jobs ON jobs.key = job"
            " WHERE after = ? ORDER BY queued LIMIT ?",
            [key, MOST_LISTED],
        )
        return [_dependency(row, row["state"]) for row in rows]

    def _state(self, key: str) -> str | None:
        row = self._database.row("SELECT state FROM jobs WHERE key = ?", [key])
        return row["state"] if row else None


def short_key(key: str, user: str) -> str:
    """Return the key as its user writes it: without their own name."""
    return key.removeprefix(f"{user}~")


def _ended(one: Dependency, state: str) -> str:
    """Return the state if it is an end; raise if it is another end than the dependency asks for."""
    if state not in states.FINAL:
        return ""
    if not one.is_met_by(state):
        raise api_errors.invalid(one.describe(state))
    return state


def _dependency(row: sqlite3.Row, state: str) -> DependencyState:
    one = Dependency(row["other"], row["wanted"])
    return DependencyState(one.job, one.when, state, one.is_met_by(row["ended"]) if row["ended"] else None)
