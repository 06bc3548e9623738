"""The steps of a job, one transaction each, so that a server killed at any point leaves a consistent state.

A task is recorded as running before it is started, and as ended after it has ended; starting and stopping may
be repeated, so that the next server can continue.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from openpai_tasks.protocol import TaskRole, exit_codes, states
from openpai_tasks.protocol.document.scripts import REQUEUED, asks_to_run_again, time_limit
from openpai_tasks.server.engines.base import TaskExit
from openpai_tasks.server.resources import task_demand
from openpai_tasks.server.scheduling import task_end
from openpai_tasks.server.scheduling.completion import (
    AttemptResult,
    is_platform_failure,
    judge,
    may_be_over,
    may_retry,
    retry_delay,
    task_failure,
)
from openpai_tasks.server.scheduling.keeping import KeptFailure
from openpai_tasks.server.state import schema
from openpai_tasks.server.state.database import Database
from openpai_tasks.server.state.records import RELEASED, Job, Task
from openpai_tasks.server.state.state import START, STOP, State, now, task_folder
from openpai_tasks.text.durations import compact_duration
from openpai_tasks.text.plurals import counted

HOST = "127.0.0.1"
_START_WAITING = (
    " ON CONFLICT (uid) DO UPDATE SET state = excluded.state, sub_state = excluded.sub_state,"
    " launched = excluded.launched, gpus = excluded.gpus, ip = excluded.ip, ports = excluded.ports"
    " WHERE state = 'WAITING'"
)
_END = (
    *("state", "sub_state", "exit_code", "user_exit_code", "diagnostics"),
    *("matched", "log_end", "cause", "peak_memory_mb", "cpu_seconds", "gpu_percent", "kept"),
)
CANNOT_BE_MADE = -200  # the platform's code for an impossible task description


class Progress:
    def __init__(self, state: State) -> None:
        self._state = state
        self._database = state.database

    # Beginning

    def save_tasks(self, job: Job, tasks: Iterable[Task]) -> None:
        """Record tasks of the current attempt that have not started before."""
        roles = self._state.document(job.key).roles
        with self._database.transaction():
            for task in tasks:
                _save_task(self._database, task, roles, job.virtual_cluster)

    def new_tasks(self, job: Job, roles: Iterable[TaskRole]) -> list[Task]:
        """Return a first attempt of every task instance of the job's current attempt."""
        folder = self._state.folder
        return [
            _new_task(folder, job, role.name, index, 0) for role in roles for index in range(role.instances)
        ]

    def waiting_tasks(self, job: Job) -> list[Task] | None:
        """Return the tasks of the current attempt that have yet to start; None if it has no tasks yet."""
        where, values = "job = ? AND job_attempt = ?", [job.key, job.attempt]
        if job.state != states.WAITING:  # there may be very many that have started
            where, values = f"{where} AND sub_state = ?", [*values, states.CREATION_PENDING]
        rows = self._database.rows(f"SELECT * FROM tasks WHERE {where} ORDER BY place, task_index", values)
        if not rows and job.state == states.WAITING:
            return None
        return [schema.task(row) for row in rows if row["sub_state"] == states.CREATION_PENDING]

    def queue_in_engine(self, job: Job, tasks: Sequence[Task]) -> None:
        """Record these tasks as waiting in the engine's queue; only then may the engine get them."""
        with self._database.transaction():
            self.save_tasks(job, [dataclasses.replace(task, sub_state=states.PREPARING) for task in tasks])
            self._database.write(
                "UPDATE jobs SET sub_state = CASE state WHEN 'WAITING' THEN ? ELSE sub_state END,"
                f" pending = {_pending(job, tasks)} WHERE key = ?",
                [states.PREPARING, job.key],
            )
            self._database.write(
                "UPDATE attempts SET sub_state = CASE state WHEN 'WAITING' THEN ? ELSE sub_state END"
                " WHERE job = ? AND id = ?",
                [states.PREPARING, job.key, job.attempt],
            )

    def begin(self, job: Job, tasks: Sequence[Task]) -> None:
        """Record these tasks as running, and the job with them; only then may they be started.

        A task that its engine started earlier keeps that time.
        """
        (state, sub_state), time, count = _RUNNING, now(), len(tasks)
        begun = [max(task.created, min(task.launched or time, time)) for task in tasks]
        running = [
            dataclasses.replace(task, state=state, sub_state=sub_state, launched=began)
            for task, began in zip(tasks, begun, strict=True)
        ]
        with self._database.transaction():
            self.save_tasks(job, running)
            self._mark_running(job, tasks, min(begun, default=time))
            started = f"{count} task{'s' if count > 1 else ''} of attempt {job.attempt} started"
            self._state.add_event(job.key, "Normal", "Started", started)

    def begin_queued(self, key: str, tasks: Sequence[Task]) -> None:
        """Record these tasks of an engine's queue as running, unless the user has stopped the job."""
        job = self._state.existing_job(key)
        if job.state in (states.WAITING, states.RUNNING):
            self.begin(job, tasks)

    def _mark_running(self, job: Job, tasks: Sequence[Task], began: int) -> None:
        self._database.write(
            "UPDATE jobs SET state = ?, sub_state = ?, launched = coalesce(launched, ?),"
            f" pending = {_pending(job, tasks)} WHERE key = ?",
            [*_RUNNING, began, job.key],
        )
        self._database.write(
            "UPDATE attempts SET state = ?, sub_state = ?, launched = coalesce(launched, ?)"
            " WHERE job = ? AND id = ?",
            [*_RUNNING, began, job.key, job.attempt],
        )
        if job.launched is None:
            self._state.hooks.record_start(job.key, began, now())

    def refuse(self, key: str, reason: str) -> None:
        """Fail a job that cannot be run at all."""
        with self._database.transaction():
            self._state.add_event(key, "Warning", "CannotRun", reason)
            job = self._state.existing_job(key)
            self._update_attempt(job, _decision(AttemptResult(CANNOT_BE_MADE, None, reason)))
            self._mark_ending(job)
            self._end_tasks(job)
            self.settle(key)

    # Ending

    def keep(self, task: Task, failure: KeptFailure) -> None:
        """Record that a task has failed and is kept; one that is retried is released at once."""
        end = TaskExit(failure.code)
        with self._database.transaction():
            job, document = self._state.existing_job(task.job), self._state.document(task.job)
            done = task_end.with_exit(task, end, job_is_stopped=False)
            done = task_end.with_cause(done, end, failure.log, document.secrets)
            again = job.execution == START and self._may_retry(job, done.exit_code or 0)
            again = again or self._may_retry_task(job, done)
            until = RELEASED if again else failure.until
            done = dataclasses.replace(done, state=task.state, sub_state=task.sub_state, completed=None)
            _update_task(self._database, dataclasses.replace(done, kept=until))
            message = f"the task {done.diagnostics}{'' if again else '; its environment is kept'}"
            self._state.add_event(job.key, "Warning", "TaskFailed", message, done)
            if not again and self._has_failed(job):
                cause = done.cause or f"task {done.role}-{done.index} {done.diagnostics}"
                self._state.hooks.record_failure(job, cause, failure.code, now())

    def _has_failed(self, job: Job) -> bool:
        """Whether the kept tasks of a running job are enough to fail it once they end."""
        rows = self._database.rows(
            "SELECT role, count(*) FROM tasks WHERE job = ? AND job_attempt = ? AND kept > ? GROUP BY role",
            [job.key, job.attempt, RELEASED],
        )
        kept = {row[0]: row[1] for row in rows}
        roles = self._state.document(job.key).roles
        return any(1 <= role.min_failed <= kept.get(role.name, 0) for role in roles)

    def finish(self, task: Task, end: TaskExit, log: bytes = b"") -> None:
        """Record the end of a task, then retry it or settle its job; ``log`` is the end of its log."""
        with self._database.transaction():
            job = self._state.existing_job(task.job)
            if job.state != states.STOPPING:
                self._state.document(job.key)  # raises before any change if it is invalid by now
            requeues = self._requeues(job, end, log)
            if requeues:
                reason = "reached its time limit"
                end = dataclasses.replace(end, reason=reason, platform_code=exit_codes.DEADLINE_EXCEEDED)
            if task.kept:
                done = task_end.with_kept_exit(task, end)
            else:
                done = task_end.with_exit(task, end, job.state == states.STOPPING)
            if done.state == states.FAILED and end.user_code and not task.kept:
                done = task_end.with_cause(done, end, log, self._state.document(job.key).secrets)
            _update_task(self._database, done)
            if done.state == states.FAILED and not requeues:
                if not task.kept:
                    message = f"the task {done.diagnostics}"
                    self._state.add_event(job.key, "Warning", "TaskFailed", message, done)
                if self._retry_task(job, done):
                    return
            self._settle(job)

    def _requeues(self, job: Job, end: TaskExit, log: bytes) -> int:
        """Return how often the job may run again in all, if a time limit ended the task and it may now."""
        if job.state == states.STOPPING or not (end.timed_out or _says_requeue(end, log)):
            return 0
        requeues = self._state.document(job.key).policy.requeues
        return requeues if job.requeues < requeues else 0

    def settle(self, key: str) -> None:
        """Decide the job's attempt if possible, and complete it once none of its tasks is alive."""
        with self._database.transaction():
            self._settle(self._state.existing_job(key))

    def _settle(self, job: Job) -> None:
        is_ending = job.sub_state == states.DELETION_PENDING
        decided = self._state.attempt(job.key, job.attempt) if is_ending else None
        counts = self._counts(job)
        decision: dict[str, object] = {}
        if decided and decided.exit_code is not None:
            code, why = decided.exit_code, decided.diagnostics
        else:
            verdict = self._verdict(job, counts)
            if verdict is None:
                return
            decision, code, why = _decision(verdict), verdict.exit_code, verdict.diagnostics
            if any(state not in states.FINAL for _, state in counts):
                self._end_tasks(job)
                counts = self._counts(job)
        if not any(state in _ALIVE for _, state in counts):
            self._complete(job, code, why, decision)
        elif decision:
            self._update_attempt(job, decision)
            self._mark_ending(job)

    def _verdict(self, job: Job, counts: Mapping[tuple[str, str], int]) -> AttemptResult | None:
        if job.state == states.STOPPING:
            kept = [task for task in self._state.tasks(job.key, job.attempt) if task.kept]
            if kept:
                return task_failure(kept[0])
            why = job.stop_reason or "stopped by the user"
            return AttemptResult(exit_codes.STOPPED_BY_USER, None, why)
        roles = self._state.document(job.key).roles
        if not counts or not may_be_over(roles, counts):
            return None
        return judge(roles, self._state.tasks(job.key, job.attempt))

    def _counts(self, job: Job) -> dict[tuple[str, str], int]:
        """Return the number of task attempts, by role and state."""
        rows = self._database.rows(
            "SELECT role, state, count(*) FROM tasks WHERE job = ? AND job_attempt = ? GROUP BY role, state",
            [job.key, job.attempt],
        )
        return {(row[0], row[1]): row[2] for row in rows}

    def _update_attempt(self, job: Job, columns: Mapping[str, object]) -> None:
        names = ", ".join(f"{name} = ?" for name in columns)
        values = [*columns.values(), job.key, job.attempt]
        self._database.write(f"UPDATE attempts SET {names} WHERE job = ? AND id = ?", values)

    def _mark_ending(self, job: Job) -> None:
        """Record that the job only waits for the end of its tasks."""
        values = [states.DELETION_PENDING, job.key]
        self._database.write("UPDATE jobs SET sub_state = ?, pending = 0 WHERE key = ?", values)

    def _end_tasks(self, job: Job) -> None:
        """Stop the tasks that the engine has, and end those that have not begun."""
        where = "job = ? AND job_attempt = ? AND sub_state IN (?, ?)"
        stopping = (states.STOPPING, states.DELETION_REQUESTED)
        self._database.write(
            f"UPDATE tasks SET state = ?, sub_state = ? WHERE {where}",
            [*stopping, job.key, job.attempt, states.ATTEMPT_RUNNING, states.PREPARING],
        )
        for task in self._state.tasks(job.key, job.attempt):
            if task.state == states.WAITING:
                end = TaskExit(None, "was not started", stopped=True)
                done = task_end.with_exit(task, end, job.state == states.STOPPING)
                _update_task(self._database, done)

    def _complete(self, job: Job, code: int, why: str, decision: Mapping[str, object]) -> None:
        requeue = job.execution == START and code == exit_codes.DEADLINE_EXCEEDED
        again = job.execution == START and not requeue and self._may_retry(job, code)
        restart = job.execution == START and code == exit_codes.STOPPED_BY_USER
        sub_state = states.ATTEMPT_COMPLETED if requeue or again or restart else states.COMPLETED
        ended = self._last_end(job)
        end = {"state": states.final_state(code), "sub_state": sub_state, "completed": ended}
        self._update_attempt(job, {**decision, **end})
        if requeue:
            self._requeue(job)
        elif again:
            self._retry_job(job, code, why)
        elif restart:
            self._state.queue_attempt(job.key, job.attempt + 1, tries=0)
        else:
            self._close(job, code, ended)
            self._settle_dependents(job.key, states.final_state(code))

    def _last_end(self, job: Job) -> int:
        """Return when the last task of the attempt ended, maybe while no server ran; now if it has none."""
        where = "job = ? AND job_attempt = ?"
        rows = self._database.rows(f"SELECT max(completed) FROM tasks WHERE {where}", [job.key, job.attempt])
        return rows[0][0] or now()

    def _may_retry(self, job: Job, code: int) -> bool:
        if code == CANNOT_BE_MADE or not may_retry(code, 0, allowed=-1):
            return False
        return may_retry(code, self._tries(job), self._state.document(job.key).retries)

    def _tries(self, job: Job) -> int:
        tries: int = self._database.rows("SELECT tries FROM jobs WHERE key = ?", [job.key])[0][0]
        return tries

    def _close(self, job: Job, code: int, ended: int) -> None:
        self._database.write(
            "UPDATE jobs SET state = ?, sub_state = ?, completed = ?, exit_code = ?, pending = 0"
            " WHERE key = ?",
            [states.final_state(code), states.COMPLETED, ended, code, job.key],
        )
        platform = f" (the platform's exit code: {code})" if code else ""
        message = f"the job has ended: {states.final_state(code)}{platform}"
        self._state.add_event(job.key, "Normal" if code == 0 else "Warning", "Completed", message)
        self._state.hooks.record_end(job.key, now())
        self._state.forget_document(job.key)

    def _settle_dependents(self, key: str, state: str) -> None:
        """Release the jobs that wait for one that has ended, or stop them and those that wait for them."""
        ended = [(key, state)]
        while ended:
            key, state = ended.pop()
            for dependent, one in self._state.dependencies.settle(key, state):
                if one.is_met_by(state):
                    self._state.release(dependent)
                elif self._stop_waiting(dependent, one.describe(state)):
                    ended.append((dependent, states.STOPPED))

    def _stop_waiting(self, key: str, why: str) -> bool:
        """Stop a job that is waiting for others; return False if its user stops it already."""
        job = self._state.existing_job(key)
        self._database.write("UPDATE jobs SET execution = ? WHERE key = ?", [STOP, key])
        if job.state != states.WAITING:
            return False
        verdict = AttemptResult(exit_codes.STOPPED_BY_USER, None, why)
        ended = now()
        end = {"state": states.STOPPED, "sub_state": states.COMPLETED, "completed": ended}
        self._update_attempt(job, {**dataclasses.asdict(verdict), **end})
        self._state.add_event(key, "Warning", "DependencyNotMet", why)
        self._close(job, exit_codes.STOPPED_BY_USER, ended)
        return True

    def _retry_job(self, job: Job, code: int, why: str) -> None:
        tries = self._tries(job)
        column = "platform_retries" if is_platform_failure(code) else "user_retries"
        self._database.write(f"UPDATE jobs SET {column} = {column} + 1 WHERE key = ?", [job.key])
        self._state.queue_attempt(job.key, job.attempt + 1, tries + 1, now() + retry_delay(tries))
        message = f"attempt {job.attempt} failed ({why}): retrying"
        self._state.add_event(job.key, "Normal", "Retrying", message)

    def _requeue(self, job: Job) -> None:
        """Run the job again after its time limit; as on OpenPAI, that is a retry by the platform."""
        document = self._state.document(job.key)
        self._database.write(
            "UPDATE jobs SET platform_retries = platform_retries + 1, requeues = requeues + 1 WHERE key = ?",
            [job.key],
        )
        self._state.queue_attempt(job.key, job.attempt + 1, self._tries(job))
        limits = [time_limit(document.entrypoint(role.name)) for role in document.roles]
        limit = f" of {compact_duration(limits[0])}" if limits[0] else ""
        times = f"{job.requeues + 1} of {counted(document.policy.requeues, 'time')}"
        message = f"requeued {times} at its time limit{limit}"
        self._state.add_event(job.key, "Normal", "Requeued", message)

    def _retry_task(self, job: Job, task: Task) -> bool:
        """Retry one task alone, which only jobs without gang allocation allow."""
        if not self._may_retry_task(job, task):
            return False
        again = _new_task(self._state.folder, job, task.role, task.index, task.attempt + 1)
        kept = None if task.kept is None else 0
        again = dataclasses.replace(again, ports=task.ports, kept=kept)
        self.save_tasks(job, [again])
        self._database.write(
            "UPDATE jobs SET pending = 1, not_before = ? WHERE key = ?",
            [now() + retry_delay(task.attempt), job.key],
        )
        return True

    def _may_retry_task(self, job: Job, task: Task) -> bool:
        document = self._state.document(job.key)
        role = next(role for role in document.roles if role.name == task.role)
        attempt = self._state.attempt(job.key, job.attempt)
        is_decided = attempt is None or attempt.exit_code is not None or job.state == states.STOPPING
        return not (document.gang or is_decided) and may_retry(
            task.exit_code or 0, task.attempt, role.retries
        )


def _says_requeue(end: TaskExit, log: bytes) -> bool:
    return end.user_code == REQUEUED and asks_to_run_again(log)


def _new_task(jobs: Path, job: Job, role: str, index: int, number: int) -> Task:
    """Return attempt ``number`` of one instance in the job's current attempt.

    ``jobs`` has the jobs' folders.
    """
    return Task(
        uid=str(uuid.uuid4()),
        job=job.key,
        job_attempt=job.attempt,
        role=role,
        index=index,
        attempt=number,
        state=states.WAITING,
        sub_state=states.CREATION_PENDING,
        created=now(),
        ip=HOST,
        folder=task_folder(jobs, job.key, job.attempt, role, index, number),
    )


def _save_task(database: Database, task: Task, roles: Sequence[TaskRole], virtual_cluster: str) -> None:
    """Insert the task, or update the state and the GPUs of one that waits."""
    place = [role.name for role in roles].index(task.role)
    need = task_demand(roles[place])
    row = schema.task_row(task) | {"place": place, "virtual_cluster": virtual_cluster}
    row |= {"cpu": need.cpu, "memory_mb": need.memory_mb, "gpu": need.gpu}
    values = ", ".join(f":{name}" for name in row)
    database.write(f"INSERT INTO tasks ({', '.join(row)}) VALUES ({values}){_START_WAITING}", row)


def _update_task(database: Database, task: Task) -> None:
    """Update the task's state and exit; it cannot have ended before it began."""
    changes = ", ".join(f"{name} = :{name}" for name in _END)
    changes += ", completed = max(:completed, coalesce(launched, created))"
    database.write(f"UPDATE tasks SET {changes} WHERE uid = :uid", schema.task_row(task))


def _decision(verdict: AttemptResult) -> dict[str, object]:
    """Return the columns of an attempt with this result; it is over when its last task has ended."""
    return {**dataclasses.asdict(verdict), "sub_state": states.DELETION_PENDING}


def _pending(job: Job, started: Sequence[Task]) -> str:
    """Return SQL for whether the job has more tasks to start."""
    return "0" if len(started) == job.tasks else _PENDING


_PENDING = (
    "EXISTS (SELECT 1 FROM tasks WHERE job = key AND job_attempt = jobs.attempt"
    f" AND sub_state = '{states.CREATION_PENDING}')"
)
_RUNNING = (states.RUNNING, states.ATTEMPT_RUNNING)
_ALIVE = (states.RUNNING, states.STOPPING)
