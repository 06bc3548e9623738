"""How busy the cluster was in the last day: a sample every half minute, kept in the database."""

from __future__ import annotations

import logging
import threading

from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol.states import WAITING
from openpai_tasks.server.state.database import Database
from openpai_tasks.server.state.state import now

log = logging.getLogger(__name__)

EVERY = 30.0  # seconds
KEPT = 24 * 3600 * 1000  # ms
SCHEMA = """
CREATE TABLE IF NOT EXISTS cluster_usage (
    time INTEGER PRIMARY KEY, running INTEGER NOT NULL, waiting INTEGER NOT NULL,
    cpu INTEGER NOT NULL, memory_mb INTEGER NOT NULL, gpu INTEGER NOT NULL
);
"""
_STATES = "state IN ('WAITING', 'RUNNING', 'STOPPING')"
_QUEUED = "SELECT coalesce(sum(tasks), 0) FROM jobs WHERE pending = 1"
_MEANS = "avg(running), avg(waiting), avg(cpu), avg(memory_mb), avg(gpu)"


@dataclass(frozen=True)
class ClusterSample:
    """Means from a time (ms) on: tasks that ran or waited, and what those that ran had asked for."""

    time: int
    running: float
    waiting: float
    cpu: float
    memory_mb: float
    gpu: float


class UsageHistory:
    """Takes samples in a thread; a restarted server continues those of the last one."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="usage-history", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()

    def sample(self, time: int) -> None:
        """Add a sample, and remove those that are too old."""
        rows = self._database.rows(
            "SELECT state, count(*), sum(cpu), sum(memory_mb), sum(gpu) FROM tasks"
            f" WHERE {_STATES} GROUP BY state"
        )
        running = [row for row in rows if row[0] != WAITING]
        handed_over = sum(row[1] for row in rows if row[0] == WAITING)
        waiting = handed_over + self._database.rows(_QUEUED)[0][0]
        count, *amounts = (sum(row[at] for row in running) for at in range(1, 5))
        with self._database.transaction():
            self._database.write(
                "INSERT OR REPLACE INTO cluster_usage VALUES (?, ?, ?, ?, ?, ?)",
                [time, count, waiting, *amounts],
            )
            self._database.write("DELETE FROM cluster_usage WHERE time < ? OR time > ?", [time - KEPT, time])

    def read(self, since: int, length: int) -> list[ClusterSample]:
        """Return means of equal spans of ``length`` ms; spans without a sample are left out."""
        rows = self._database.rows(
            f"SELECT time / ?, {_MEANS} FROM cluster_usage WHERE time >= ? GROUP BY 1 ORDER BY 1",
            [length, since],
        )
        return [ClusterSample(row[0] * length, *(round(value, 3) for value in row[1:])) for row in rows]

    def _run(self) -> None:
        pause = 0.0
        while not self._closing.wait(pause):
            pause = EVERY
            try:
                self.sample(now())
            except Exception:  # the next time may succeed
                log.exception("cannot record how busy the cluster is")
