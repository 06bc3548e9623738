"""The scheduler's queries: waiting jobs, running tasks, tasks to stop."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Sequence

from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol import states
from openpai_tasks.server.resources import NOTHING, ResourceAmount
from openpai_tasks.server.state import schema
from openpai_tasks.server.state.database import Database
from openpai_tasks.server.state.records import Job, Task


@dataclass(frozen=True)
class WaitingJob:
    """A job in the queue of its virtual cluster, and the need of all its tasks."""

    job: Job  # without its document
    need: ResourceAmount
    gang: bool
    queued: int
    not_before: int


_IS_ALIVE = (
    "state IN ('RUNNING', 'STOPPING', 'WAITING')"
    f" AND (state != 'WAITING' OR sub_state = '{states.PREPARING}')"
)
"""Condition for tasks that the engine has; a task that waits there is in the sub-state PREPARING."""


_QUEUE_COLUMNS = ("cpu", "memory_mb", "gang", "queued", "not_before")

_NEXT_QUEUE = "SELECT min(virtual_cluster) FROM jobs WHERE pending = 1"
_QUEUES = (
    f"WITH RECURSIVE queues (queue) AS ({_NEXT_QUEUE}"
    f" UNION ALL SELECT ({_NEXT_QUEUE} AND virtual_cluster > queue)"
    " FROM queues WHERE queue IS NOT NULL) SELECT queue FROM queues WHERE queue IS NOT NULL"
)
"""One step for each virtual cluster; DISTINCT would read every waiting job."""


class SchedulerQueries:
    """The queries of every turn; their cost does not grow with the number of finished jobs."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def queue(self, virtual_cluster: str, after: int, limit: int) -> list[WaitingJob]:
        """Return the next jobs of a virtual cluster, after position ``after``, that have tasks to start."""
        rows = self._database.rows(
            f"SELECT {schema.LISTED_JOB}, {', '.join(_QUEUE_COLUMNS)} FROM jobs"
            " WHERE pending = 1 AND virtual_cluster = ? AND queued > ? ORDER BY queued LIMIT ?",
            [virtual_cluster, after, limit],
        )
        return [_waiting(row) for row in rows]

    def queues(self) -> list[str]:
        """Return the virtual clusters with waiting jobs."""
        return [row[0] for row in self._database.rows(_QUEUES)]

    def unexplained(self, virtual_cluster: str) -> list[str]:
        """Return the waiting jobs without an event that explains it."""
        sql = "SELECT key FROM jobs WHERE pending = 1 AND explained = 0 AND virtual_cluster = ?"
        return [row[0] for row in self._database.rows(sql, [virtual_cluster])]

    def mark_explained(self, keys: Iterable[str]) -> None:
        self._database.write_each("UPDATE jobs SET explained = 1 WHERE key = ?", [[key] for key in keys])

    def alive(self) -> list[Task]:
        """Return every task that the engine has."""
        return self._tasks(_IS_ALIVE)

    def alive_in(self, folders: Collection[str]) -> list[Task]:
        """Return every task that the engine has in these folders."""
        holes = ", ".join("?" * len(folders))
        where = f"{_IS_ALIVE} AND folder IN ({holes})"
        return self._tasks(where, list(folders))

    def ending(self) -> list[Task]:
        """Return every task that has to be stopped."""
        return self._tasks("state = 'STOPPING'")

    def unfinished(self) -> tuple[list[Task], dict[str, ResourceAmount]]:
        """Return every task that holds ports, and the resources of those that run, by virtual cluster.

        A waiting task of a job without tasks to start holds none.
        """
        rows = self._database.rows(
            "SELECT tasks.* FROM tasks JOIN jobs ON jobs.key = tasks.job"
            " WHERE tasks.state IN ('WAITING', 'RUNNING', 'STOPPING') AND (tasks.state != 'WAITING'"
            f" OR tasks.sub_state = '{states.PREPARING}'"
            " OR (jobs.pending = 1 AND tasks.job_attempt = jobs.attempt))"
        )
        usage: dict[str, ResourceAmount] = {}
        for row in rows:
            if row["state"] != states.WAITING:
                need = ResourceAmount(row["cpu"], row["memory_mb"], row["gpu"])
                usage[row["virtual_cluster"]] = usage.get(row["virtual_cluster"], NOTHING) + need
        return [schema.task(row) for row in rows], usage

    def has_alive(self) -> bool:
        return self._database.row(f"SELECT 1 FROM tasks WHERE {_IS_ALIVE} LIMIT 1") is not None

    def stopping(self) -> list[str]:
        """Return the jobs that users have asked to stop."""
        return [row[0] for row in self._database.rows("SELECT key FROM jobs WHERE state = 'STOPPING'")]

    def _tasks(self, where: str, values: Sequence[str] = ()) -> list[Task]:
        rows = self._database.rows(f"SELECT * FROM tasks WHERE {where}", values)
        return [schema.task(row) for row in rows]


def _waiting(row: sqlite3.Row) -> WaitingJob:
    values = dict(row)
    cpu, memory, gang, queued, not_before = [values.pop(name) for name in _QUEUE_COLUMNS]
    need = ResourceAmount(cpu, memory, values["gpus"])
    return WaitingJob(schema.job(values), need, bool(gang), queued, not_before)
