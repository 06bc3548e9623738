"""The hooks of jobs, and the deliveries that are due: each event is recorded together with its cause."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
import uuid
from collections.abc import Callable, Sequence

from openpai_tasks.hooks.hook import END, START, WAITING, Hook, JobHooks, parse
from openpai_tasks.hooks.messages import Facts, worst_state
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol import states
from openpai_tasks.protocol.routes import job_key
from openpai_tasks.server.state import schema
from openpai_tasks.server.state.database import Database
from openpai_tasks.server.state.records import Job

CHECK = "check"  # the event of a delivery that first finds out whether a sweep is over
SWEEP_STATES = (
    "SELECT state, count(*), max(last), min(submitted), max(completed) FROM hooks JOIN jobs ON key = job"
    " WHERE sweep = ? AND sweep != '' AND number = 0 GROUP BY state"
)
PENDING_CHECK = "SELECT 1 FROM deliveries WHERE sweep = ? AND sweep != '' AND event = ?"
CHECK_AFTER = 1000  # ms after the end of a job, so that many that end together are counted once


@dataclass(frozen=True)
class Delivery:
    """An event that a hook is to be notified of, and how often that was tried."""

    id: str
    job: str
    number: int
    event: str
    sweep: str
    facts: str
    created: int
    due: int
    tries: int


class HookTable:
    """Hooks and deliveries in the database; ``woken`` is called when a delivery may be due earlier."""

    def __init__(self, database: Database, woken: Callable[[], None] = lambda: None) -> None:
        self._database = database
        self.woken = woken

    def add(self, job: Job, given: JobHooks) -> None:
        """Keep the hooks of a job that is being submitted."""
        sweep = job_key(job.user, given.sweep) if given.sweep else ""
        for number, hook in enumerate(given.hooks):
            self._database.write(
                "INSERT INTO hooks (job, number, hook, sweep, last) VALUES (?, ?, ?, ?, ?)",
                [job.key, number, hook.dump(), sweep, given.is_last],
            )
            if hook.waiting_seconds is not None and not sweep:
                self._queue(job, number, WAITING, None, job.submitted, 1000 * hook.waiting_seconds)
        self._database.when_committed(self._wake)

    def record_start(self, key: str, began: int, time: int) -> None:
        """Queue the message that a job has started for the first time, in the transaction that starts it."""
        found = self._hooks(key)
        if not found:
            return
        job = self._job(key)
        if job.launched == began and not found[0][2]:
            for number, hook, _ in found:
                if START in hook.when:
                    self._queue(job, number, START, self._facts(job, START, began), time)
            self._database.when_committed(self._wake)

    def record_end(self, key: str, time: int) -> None:
        """Queue the message that a job has ended, in the transaction that ends it."""
        found = self._hooks(key)
        if not found:
            return
        job = self._job(key)
        if sweep := found[0][2]:
            self._queue_check(job, sweep, time)
        for number, hook, _ in found if not sweep else ():
            if hook.is_due(job.state):
                self._queue(job, number, END, self._facts(job, END, job.completed or time), time)
        self._database.when_committed(self._wake)

    def record_failure(self, job: Job, cause: str, code: int, time: int) -> None:
        """Queue the message that a job has failed before it ends, as a task of it is kept; a sweep waits."""
        failed = dataclasses.replace(job, state=states.FAILED)
        facts = dataclasses.replace(self._facts(failed, END, time), cause=cause, exit_code=code, kept=True)
        for number, hook, sweep in self._hooks(job.key):
            if hook.is_due(failed.state) and not sweep:
                self._queue(failed, number, END, facts, time)
        self._database.write("UPDATE hooks SET failed = ? WHERE job = ?", [job.attempt, job.key])
        self._database.when_committed(self._wake)

    def next_due(self) -> int | None:
        """Return when the next delivery is due, in ms."""
        row = self._database.row("SELECT min(due) FROM deliveries")
        due: int | None = row[0] if row else None
        return due

    def due(self, time: int, most: int, first_pause: int, longest_pause: int) -> list[Delivery]:
        """Return deliveries that are due, those that have waited longest first.

        One that is due after the longest pause that it can have was queued before the clock was set back,
        unless it tells of a long wait. Each pause is four times as long as the one before.
        """
        pause = "min(:longest, :first << 2 * min(max(tries - 1, 0), 6))"
        rows = self._database.rows(
            f"SELECT * FROM deliveries WHERE due <= :now OR (due > :now + {pause} AND event != :waiting)"
            " ORDER BY due LIMIT :most",
            {"now": time, "first": first_pause, "longest": longest_pause, "waiting": WAITING, "most": most},
        )
        return [Delivery(**dict(row)) for row in rows]

    def hook(self, delivery: Delivery) -> Hook | None:
        """Return the hook of a delivery; None if its job was removed meanwhile."""
        values = [delivery.job, delivery.number]
        row = self._database.row("SELECT hook FROM hooks WHERE job = ? AND number = ?", values)
        return parse(row["hook"]) if row else None

    def begin(self, delivery: Delivery, next_due: int) -> Delivery:
        """Record an attempt before it begins, so that a server that is killed then tries again later."""
        tries = delivery.tries + 1
        self._database.write(
            "UPDATE deliveries SET tries = ?, due = ? WHERE id = ?", [tries, next_due, delivery.id]
        )
        return dataclasses.replace(delivery, tries=tries)

    def remove(self, delivery: Delivery) -> None:
        self._database.write("DELETE FROM deliveries WHERE id = ?", [delivery.id])

    def waiting_facts(self, delivery: Delivery, time: int) -> Facts | None:
        """Return the facts about a job that may still wait; None if it does not."""
        row = self._database.row(f"SELECT {schema.JOB} FROM jobs WHERE key = ?", [delivery.job])
        job = schema.job(row) if row else None
        if job is None or job.state != states.WAITING:
            return None
        why = self._database.row(
            "SELECT message FROM events WHERE job = ? AND reason IN ('FailedScheduling', 'Queued')"
            " ORDER BY last DESC LIMIT 1",
            [job.key],
        )
        cause = why["message"] if why else ""
        return dataclasses.replace(self._facts(job, WAITING, time), cause=cause)

    def check_sweep(self, check: Delivery, time: int) -> None:
        """Replace the check of a sweep by deliveries if all of its jobs are submitted and have ended."""
        with self._database.transaction():
            self.remove(check)
            rows = self._database.rows(SWEEP_STATES, [check.sweep])
            is_over = all(row["state"] in states.FINAL for row in rows) and any(row[2] for row in rows)
            if is_over:
                job, counts = self._job(check.job), {row["state"]: row[1] for row in rows}
                state = worst_state(counts)
                name, seconds = check.sweep.partition("~")[2], _duration(rows)
                facts = Facts(END, name, state, job.user, seconds=seconds, jobs=counts, kind="sweep")
                for number, hook, _ in self._hooks(check.job):
                    if hook.is_due(state):
                        self._queue(job, number, END, facts, time)

    def _hooks(self, key: str) -> list[tuple[int, Hook, str]]:
        """Return the hooks of a job, without those that were notified that its attempt has failed."""
        rows = self._database.rows(
            "SELECT number, hook, sweep FROM hooks WHERE job = ?"
            " AND (sweep != '' OR failed IS NOT (SELECT attempt FROM jobs WHERE key = hooks.job))",
            [key],
        )
        return [(row["number"], parse(row["hook"]), row["sweep"]) for row in rows]

    def _job(self, key: str) -> Job:
        (row,) = self._database.rows(f"SELECT {schema.JOB} FROM jobs WHERE key = ?", [key])
        return schema.job(row)

    def _facts(self, job: Job, event: str, time: int) -> Facts:
        values = [job.key, job.attempt]
        row = self._database.row("SELECT * FROM attempts WHERE job = ? AND id = ?", values)
        attempt = schema.attempt(row) if row else None
        has_failed = attempt is not None and job.state == states.FAILED
        cause = (attempt.cause or attempt.diagnostics) if attempt and has_failed else ""
        code = attempt.user_exit_code if attempt and job.state in states.FINAL else None
        begun = job.launched if event == END else job.submitted
        seconds = (time - begun) / 1000 if begun is not None else None
        return Facts(event, job.name, job.state, job.user, cause, code, seconds)

    def _queue(
        self, job: Job, number: int, event: str, facts: Facts | None, time: int, wait: int = 0
    ) -> None:
        text = json.dumps(dataclasses.asdict(facts)) if facts else ""
        self._insert(job.key, number, event, "", text, time, time + wait)

    def _queue_check(self, job: Job, sweep: str, time: int) -> None:
        if not self._database.row(PENDING_CHECK, [sweep, CHECK]):
            self._insert(job.key, 0, CHECK, sweep, "", time, time + CHECK_AFTER)

    def _insert(self, *values: object) -> None:
        holes = ", ".join("?" * (len(values) + 1))
        self._database.write(f"INSERT INTO deliveries VALUES ({holes}, 0)", [str(uuid.uuid4()), *values])

    def _wake(self) -> None:
        self.woken()


def read_facts(text: str) -> Facts:
    """Read the facts of a delivery."""
    return Facts(**json.loads(text))


def _duration(rows: Sequence[sqlite3.Row]) -> float:
    """Return the seconds from the first submission to the last end of a sweep's jobs."""
    return float(max(row[4] for row in rows) - min(row[3] for row in rows)) / 1000
