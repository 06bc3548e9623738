"""What there is to do: who waits, who runs, who is to be stopped."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from openpai_tasks.protocol import states
from openpai_tasks.server.engines.machine import Resources
from openpai_tasks.server.state import schema
from openpai_tasks.server.state.database import Database
from openpai_tasks.server.state.records import Task


@dataclass(frozen=True)
class Waiting:
    """A job in the line, with what it needs when all of it starts at once."""

    key: str
    virtual_cluster: str
    need: Resources
    gang: bool
    queued: int
    not_before: int


class Agenda:
    """The scheduler's questions in every turn; jobs that are over do not make them dearer."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def line(self, virtual_cluster: str, after: int, limit: int) -> list[Waiting]:
        """The next jobs of a virtual cluster, behind the place ``after``, that have something to start."""
        rows = self._database.rows(
            "SELECT key, cpu, memory_mb, gpus, gang, queued, not_before FROM jobs"
            " WHERE pending = 1 AND virtual_cluster = ? AND queued > ? ORDER BY queued LIMIT ?",
            [virtual_cluster, after, limit],
        )
        return [
            Waiting(row[0], virtual_cluster, Resources(row[1], row[2], row[3]), bool(row[4]), row[5], row[6])
            for row in rows
        ]

    def lines(self) -> list[str]:
        """The virtual clusters in which somebody waits."""
        rows = self._database.rows("SELECT DISTINCT virtual_cluster FROM jobs WHERE pending = 1")
        return [row[0] for row in rows]

    def unexplained(self, virtual_cluster: str) -> list[str]:
        """Those in the line who have not been told yet that they wait."""
        sql = "SELECT key FROM jobs WHERE pending = 1 AND explained = 0 AND virtual_cluster = ?"
        return [row[0] for row in self._database.rows(sql, [virtual_cluster])]

    def mark_explained(self, key: str) -> None:
        self._database.write("UPDATE jobs SET explained = 1 WHERE key = ?", [key])

    def alive(self) -> list[Task]:
        """Every task that holds resources."""
        return self._tasks_in(states.RUNNING, states.STOPPING)

    def alive_in(self, folders: Collection[str]) -> list[Task]:
        """Those of them whose folders these are."""
        holes = ", ".join("?" * len(folders))
        sql = f"SELECT * FROM tasks WHERE state IN ('RUNNING', 'STOPPING') AND folder IN ({holes})"
        return [schema.task(row) for row in self._database.rows(sql, list(folders))]

    def ending(self) -> list[Task]:
        """Every task that is to be stopped."""
        return self._tasks_in(states.STOPPING)

    def unfinished(self) -> list[Task]:
        """Every task that holds ports; one that waits in a job with nothing to start holds none."""
        rows = self._database.rows(
            "SELECT tasks.* FROM tasks JOIN jobs ON jobs.key = tasks.job"
            " WHERE tasks.state IN ('WAITING', 'RUNNING', 'STOPPING') AND (tasks.state != 'WAITING'"
            " OR (jobs.pending = 1 AND tasks.job_attempt = jobs.attempt))"
        )
        return [schema.task(row) for row in rows]

    def is_any_alive(self) -> bool:
        return bool(self._database.rows("SELECT 1 FROM tasks WHERE state IN ('RUNNING', 'STOPPING') LIMIT 1"))

    def stopping(self) -> list[str]:
        """The jobs that their users have asked to stop."""
        return [row[0] for row in self._database.rows("SELECT key FROM jobs WHERE state = 'STOPPING'")]

    def _tasks_in(self, *wanted: str) -> list[Task]:
        holes = ", ".join("?" * len(wanted))
        rows = self._database.rows(f"SELECT * FROM tasks WHERE state IN ({holes})", wanted)
        return [schema.task(row) for row in rows]
