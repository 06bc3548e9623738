"""What the database keeps about users and jobs of PaddleCloud: tokens, and the names of jobs."""

from __future__ import annotations

import json
import secrets
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol import states
from openpai_tasks.server.resources import ResourceAmount
from openpai_tasks.server.state.database import Database
from openpai_tasks.server.state.records import Job, Task
from openpai_tasks.server.state.schema import LISTED_JOB
from openpai_tasks.server.state.schema import job as to_job
from openpai_tasks.server.state.schema import task as to_task
from openpai_tasks.server.state.state import STOP

# A token is valid as long as its user has the password of its issue.
# A killed job keeps its row, so that its logs can be read; a new job may then have its name.
SCHEMA = """
CREATE TABLE IF NOT EXISTS paddlecloud_tokens (
    user TEXT PRIMARY KEY, token TEXT NOT NULL UNIQUE, password TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS paddlecloud_jobs (
    job TEXT PRIMARY KEY REFERENCES jobs (key) ON DELETE CASCADE, user TEXT NOT NULL, name TEXT NOT NULL,
    trainers INTEGER NOT NULL, pservers INTEGER NOT NULL, number INTEGER NOT NULL,
    request TEXT NOT NULL DEFAULT ''
);
CREATE INDEX IF NOT EXISTS paddlecloud_jobs_of_user ON paddlecloud_jobs (user, name, number);
"""
ADDED = {"paddlecloud_jobs": {"request": "TEXT NOT NULL DEFAULT ''"}}
"""Columns that a database of an earlier release lacks."""
_TASKS = (
    "paddlecloud_jobs AS named JOIN jobs ON key = named.job"
    " JOIN tasks ON tasks.job = key AND job_attempt = jobs.attempt WHERE named.user = ?"
)
_ACTIVE = "state IN ('WAITING', 'RUNNING', 'STOPPING')"


@dataclass(frozen=True)
class PaddleJob:
    """A job under its name in PaddleCloud."""

    name: str
    trainers: int
    pservers: int
    message: str  # how its latest attempt ended
    request: Mapping[str, Any]  # what was submitted, as the list of jobs shows it; {} for older releases
    job: Job

    @property
    def is_listed(self) -> bool:
        """Whether its pods are shown: also those of a killed job that have not ended."""
        return not self.is_killed or self.is_terminating

    @property
    def is_killed(self) -> bool:
        """Whether the user has killed it; it is then no longer listed."""
        return self.job.execution == STOP

    @property
    def is_terminating(self) -> bool:
        return self.is_killed and self.job.state not in states.FINAL


class PaddleRecords:
    def __init__(self, database: Database) -> None:
        self._database = database

    def token(self, user: str) -> str:
        """Return the token of a user, which changes with the password."""
        with self._database.transaction():
            self._database.write(
                "INSERT INTO paddlecloud_tokens SELECT name, ?, password FROM account_users WHERE name = ?"
                " ON CONFLICT (user) DO UPDATE SET token = excluded.token, password = excluded.password"
                " WHERE password != excluded.password",
                [secrets.token_hex(20), user],
            )
            rows = self._database.rows("SELECT token FROM paddlecloud_tokens WHERE user = ?", [user])
        return str(rows[0]["token"])

    def user(self, token: str) -> str:
        """Return the user of a token; empty if it is not valid."""
        row = self._database.row(
            "SELECT name FROM paddlecloud_tokens AS kept JOIN account_users AS users"
            " ON users.name = kept.user AND users.password = kept.password WHERE token = ?",
            [token],
        )
        return str(row["name"]) if row else ""

    def add(
        self, key: str, user: str, name: str, trainers: int, pservers: int, request: Mapping[str, Any]
    ) -> None:
        number = "(SELECT coalesce(max(number), 0) + 1 FROM paddlecloud_jobs)"
        self._database.write(
            f"INSERT INTO paddlecloud_jobs VALUES (?, ?, ?, ?, ?, {number}, ?)",
            [key, user, name, trainers, pservers, json.dumps(request)],
        )

    def jobs(self, user: str) -> list[PaddleJob]:
        """Return the newest job of each name, in the order of submission."""
        newest = "SELECT max(number) FROM paddlecloud_jobs WHERE user = ? GROUP BY name"
        return self._jobs(f"number IN ({newest})", [user])

    def job(self, user: str, name: str) -> PaddleJob | None:
        """Return the newest job with this name, killed or not."""
        newest = "SELECT max(number) FROM paddlecloud_jobs WHERE user = ? AND name = ?"
        return next(iter(self._jobs(f"number = ({newest})", [user, name])), None)

    def has_job(self, key: str) -> bool:
        """Whether a job was submitted here, and not to OpenPAI's API."""
        return self._database.row("SELECT 1 FROM paddlecloud_jobs WHERE job = ?", [key]) is not None

    def counts(self, user: str) -> Mapping[str, Counter[tuple[str, str]]]:
        """Return the number of tasks of the user's jobs: by job, then by role and state."""
        found: defaultdict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
        for row in self._database.rows(
            f"SELECT tasks.job, role, tasks.state, count(*) FROM {_TASKS} GROUP BY 1, 2, 3", [user]
        ):
            found[row[0]][row[1], row[2]] = row[3]
        return found

    def tasks(self, user: str, key: str = "") -> Mapping[str, list[Task]]:
        """Return the tasks of the user's jobs, or of one: by job."""
        found: defaultdict[str, list[Task]] = defaultdict(list)
        one, values = (" AND tasks.job = ?", [user, key]) if key else ("", [user])
        order = "place, task_index, tasks.attempt"
        for row in self._database.rows(f"SELECT tasks.* FROM {_TASKS}{one} ORDER BY {order}", values):
            found[row["job"]].append(to_task(row))
        return found

    def usage(self, user: str) -> tuple[int, ResourceAmount]:
        """Return the number of tasks and the resources of a user's unfinished jobs."""
        row = self._database.rows(
            "SELECT coalesce(sum(tasks), 0), coalesce(sum(cpu), 0), coalesce(sum(memory_mb), 0),"
            " coalesce(sum(gpus), 0) FROM paddlecloud_jobs AS named JOIN jobs ON key = named.job"
            f" WHERE named.user = ? AND {_ACTIVE}",
            [user],
        )[0]
        return row[0], ResourceAmount(row[1], row[2], row[3])

    def _jobs(self, where: str, values: list[object]) -> list[PaddleJob]:
        message = "(SELECT diagnostics FROM attempts WHERE attempts.job = key AND id = attempt)"
        columns = (
            f"named.name AS paddle_name, trainers, pservers, coalesce({message}, '') AS message, request"
        )
        job = LISTED_JOB.replace("user, name,", "jobs.user, jobs.name,")
        rows = self._database.rows(
            f"SELECT {columns}, {job} FROM paddlecloud_jobs AS named JOIN jobs ON key = named.job"
            f" WHERE {where} ORDER BY number",
            values,
        )
        return [_paddle_job(dict(row)) for row in rows]


def _paddle_job(values: dict[str, Any]) -> PaddleJob:
    fields = ("paddle_name", "trainers", "pservers", "message", "request")
    name, trainers, pservers, message, request = (values.pop(field) for field in fields)
    return PaddleJob(name, trainers, pservers, message, json.loads(request or "{}"), to_job(values))
