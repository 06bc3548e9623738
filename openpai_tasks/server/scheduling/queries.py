"""The scheduler's queries: waiting jobs, running tasks, tasks to stop."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Sequence

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
    share: str  # its sweep
    rank: int  # its priority
    since: int  # when it began to wait, in ms

    @property
    def group(self) -> tuple[str, str, str, int]:
        return (self.job.virtual_cluster, self.job.user, self.share, self.rank)


_IS_ALIVE = (
    "state IN ('RUNNING', 'STOPPING', 'WAITING')"
    f" AND (state != 'WAITING' OR sub_state = '{states.PREPARING}')"
)
"""Condition for tasks that the engine has; a task that waits there is in the sub-state PREPARING."""


_QUEUE_COLUMNS = ("cpu", "memory_mb", "gang", "queued", "not_before", "share", "rank", "since")
_ORDER = "virtual_cluster, user, share, rank, queued"
_LAST = 2**63 - 1  # place in a group
_WAITING = (
    f"SELECT {schema.LISTED_JOB}, {', '.join(_QUEUE_COLUMNS[:-1])},"
    " (SELECT created FROM attempts WHERE attempts.job = key AND id = jobs.attempt) AS since"
    " FROM jobs INDEXED BY jobs_by_turn WHERE pending = 1"
)
_NEXT_GROUP = f"{_WAITING} AND ({_ORDER}) > (?, ?, ?, ?, ?) ORDER BY {_ORDER} LIMIT 1"
_REST = (
    f"{_WAITING} AND virtual_cluster = ? AND user = ? AND share = ? AND rank = ? AND queued > ?"
    " ORDER BY queued LIMIT ?"
)

Party = tuple[str, ...]
"""A virtual cluster and a user, or also the sweep of the user."""


class SchedulerQueries:
    """The queries of every turn; their cost does not grow with the number of finished jobs."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def heads(self) -> Iterator[WaitingJob]:
        """Yield the first job with tasks to start of each group: user, sweep and priority.

        This takes one step for each group; DISTINCT would read every waiting job.
        """
        group: tuple[str, str, str, int] = ("", "", "", 0)
        while row := self._database.row(_NEXT_GROUP, [*group, _LAST]):
            yield (head := _waiting(row))
            group = head.group

    def following(self, one: WaitingJob, limit: int) -> list[WaitingJob]:
        """Return the next jobs of the same group."""
        return [_waiting(row) for row in self._database.rows(_REST, [*one.group, one.queued, limit])]

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

    def running_with_gpus(self) -> list[Task]:
        return self._tasks("state = 'RUNNING' AND gpu > 0")

    def ending(self) -> list[Task]:
        """Return every task that has to be stopped."""
        return self._tasks("state = 'STOPPING'")

    def unfinished(self) -> tuple[list[Task], dict[Party, ResourceAmount]]:
        """Return every task that holds ports, and the resources of those that run, by user and sweep.

        A waiting task of a job without tasks to start holds none.
        """
        rows = self._database.rows(
            "SELECT tasks.*, jobs.user, jobs.share FROM tasks JOIN jobs ON jobs.key = tasks.job"
            " WHERE tasks.state IN ('WAITING', 'RUNNING', 'STOPPING') AND (tasks.state != 'WAITING'"
            f" OR tasks.sub_state = '{states.PREPARING}'"
            " OR (jobs.pending = 1 AND tasks.job_attempt = jobs.attempt))"
        )
        usage: dict[Party, ResourceAmount] = {}
        for row in rows:
            if row["state"] != states.WAITING:
                need = ResourceAmount(row["cpu"], row["memory_mb"], row["gpu"])
                party = (row["virtual_cluster"], row["user"], row["share"])
                usage[party] = usage.get(party, NOTHING) + need
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
    cpu, memory, gang, *others = [values.pop(name) for name in _QUEUE_COLUMNS]
    need = ResourceAmount(cpu, memory, values["gpus"])
    return WaitingJob(schema.job(values), need, bool(gang), *others)
