"""Watch tasks and stop them: compare what Slurm answers with the files that tasks leave."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from openpai_tasks.server.engines import task_state
from openpai_tasks.server.engines.base import TaskExit, TaskPlace, TaskQueued, TaskRunning, TaskStatus
from openpai_tasks.server.engines.containers import read_outcome, remove_secrets
from openpai_tasks.server.engines.process import (
    NODE_LOST,
    RUNTIME_FAILED,
    prevent_start,
    remove_inputs,
    write_file,
)
from openpai_tasks.server.engines.runner.task import STOP
from openpai_tasks.server.engines.slurm import batches, programs, reasons, task_files
from openpai_tasks.server.engines.slurm.mirror import QueueMirror
from openpai_tasks.server.engines.slurm.programs import QueueRow, SlurmDown
from openpai_tasks.server.state.records import Task

MARGIN_SECONDS = 10.0  # after the grace period, for runners to kill their tasks
LATE_SECONDS = 30.0  # that the files of an ended job may take to appear on a network file system
WAITING = frozenset({"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT"})
OVER = frozenset({"COMPLETED", *reasons.STATES})  # a state that is not known may be one of a job that runs
_NODES_FAULT = ("NODE_FAIL", "BOOT_FAIL", "PREEMPTED")


class TaskWatcher:
    """The states of tasks that Slurm has, with few questions to Slurm and to the shared file system."""

    def __init__(self, mirror: QueueMirror, grace: float, failed: dict[str, str]) -> None:
        """``failed`` has the reasons, by uid, why tasks could not be submitted."""
        self._mirror, self._grace, self._failed = mirror, grace, failed
        self._ids: dict[str, str] = {}  # uid -> its id in Slurm
        self._batches: dict[str, str] = {}  # uid -> the name of its batch
        self._places: dict[str, TaskPlace] = {}  # uid -> where it runs
        self._to_signal: dict[str, bool] = {}  # job -> whether its script is its only task
        self._to_cancel: set[str] = set()  # jobs
        self._unnamed: dict[str, list[str]] = {}  # uid -> batch, of stopped tasks without an id
        self._owners: dict[str, str] = {}  # job that is to end -> its batch
        self._stopping: dict[str, float] = {}  # job -> when it was asked to stop
        self._ended_at: dict[str, float] = {}  # uid -> when its job was first seen without an exit

    def poll(self, tasks: Sequence[Task]) -> dict[str, TaskStatus]:
        begun = self._places.keys() & {task.uid for task in tasks}
        if self._to_signal or self._to_cancel or self._unnamed:
            self._mirror.poll_soon()
        is_new = self._mirror.refresh()
        if is_new:
            self._find_unnamed()
            self._kill_overdue(self._mirror.rows)
            self._stop_requested()
        found = {task.uid: self._status(task, is_new, task.uid in begun) for task in tasks}
        return {uid: status for uid, status in found.items() if status is not None}

    def _status(self, task: Task, is_new: bool, has_begun: bool) -> TaskStatus | None:
        """Return the state of a task; ``has_begun`` if it was running before Slurm was asked."""
        row = self._mirror.rows.get(self._id(task))
        if row is not None and self._mirror.is_of_other(row, self._batches.get(task.uid, "")):
            row = None
        if self._mirror.trouble or (row is not None and row.state not in OVER):
            self._ended_at.pop(task.uid, None)
        if row is not None and row.state in WAITING and not self._is_stopping(task):
            if is_new and has_begun:
                return self._end_requeued(task, row)
            if is_new or not self._place(task):  # otherwise, it has begun since Slurm was asked
                return TaskQueued(self._mirror.trouble or reasons.why_waiting(row))
        return self._known_end(task) or self._by_row(task, row)

    def _by_row(self, task: Task, row: QueueRow | None) -> TaskStatus | None:
        """Return the state of a task without an exit."""
        place = self._place(task)
        if self._mirror.trouble:
            return TaskRunning(place) if place else TaskQueued(self._mirror.trouble)
        if not self._id(task):
            if not task_state.has_begun(task.folder):
                return TaskQueued("it is being submitted to Slurm")
            row = self._find_row(task)
        if row is None or row.state in OVER:
            return self._end_without_exit(task, row)
        if place:
            return TaskRunning(place)
        return TaskQueued(
            reasons.why_waiting(row) if row.state in WAITING else f"it is starting on {row.nodes}"
        )

    def _find_row(self, task: Task) -> QueueRow | None:
        """Return the row of a task that has begun although the id of its job was never written."""
        name, id, _ = task_files.batch_of(task.folder) or ("", "", "")
        job = batches.find_by_comment(self._mirror.rows.values()).get(name)
        if job is None:
            return None
        write_file(task.folder / task_files.ID, id.replace("JOB", job))
        return self._mirror.rows.get(self._id(task))

    def _known_end(self, task: Task) -> TaskExit | None:
        """Return the end of a task that needs no question to Slurm."""
        done = task_state.read_exit(task.folder)
        if done is not None and not task_files.is_foreign(task, done):
            return self._finish(task, done)
        if task.uid in self._failed:
            return self._finish(task, TaskExit(None, self._failed[task.uid], RUNTIME_FAILED))
        if task.uid in self._places and not self._is_stopping(task):
            return None
        if task.uid in self._unnamed or task_files.job_of(self._id(task)) in self._to_cancel:
            return None  # Slurm still has it, and does not answer
        if task_state.has_begun(task.folder) and task_state.read_started(task.folder).boot is None:
            words = "was stopped before it started"
            return self._finish(task, TaskExit(None, words, RUNTIME_FAILED, stopped=True))
        return None

    def _end_without_exit(self, task: Task, row: QueueRow | None) -> TaskExit | None:
        """Return the end of a task that Slurm has ended, and that has written no exit."""
        first = self._ended_at.setdefault(task.uid, time.monotonic())
        task_files.look_again(task.folder)
        done = task_state.read_exit(task.folder)
        if done and not task_files.is_foreign(task, done):
            return self._finish(task, done)
        state = row.state if row else ""
        if done:
            return self._finish(task, _explain_exit(done, state, task_files.is_step(task)))
        is_late = row is None or row.state in ("COMPLETED", "FAILED")
        if is_late and time.monotonic() - first < LATE_SECONDS:
            return None
        words = reasons.STATES.get(state, "was lost: Slurm does not know it any more")
        if state == "COMPLETED":  # our script does so without an exit if the task has begun before
            words = "ended without a result" if task_files.is_step(task) else reasons.REQUEUED
        stopped = (task.folder / STOP).exists()
        if state == "OUT_OF_MEMORY":
            return self._finish(task, TaskExit(137, words))
        code = NODE_LOST if state in (*_NODES_FAULT, "") or words == reasons.REQUEUED else RUNTIME_FAILED
        return self._finish(task, TaskExit(None, words, code, stopped=stopped, timed_out=state == "TIMEOUT"))

    def _end_requeued(self, task: Task, row: QueueRow) -> TaskStatus | None:
        """End a task that ran, and that Slurm would run a second time; None if it could not be cancelled."""
        if not task_state.has_begun(task.folder):  # it was waiting for its peers
            del self._places[task.uid]
            return TaskQueued(reasons.why_waiting(row))
        job = task_files.job_of(self._id(task))
        self._owners[job] = self._batches.get(task.uid, "")
        self._to_cancel.add(job)
        self._stop_requested()
        if self._to_cancel:
            return None
        done = task_state.read_exit(task.folder)
        if done and not task_files.is_foreign(task, done):  # it had ended before
            return self._finish(task, done)
        return self._finish(task, TaskExit(None, reasons.REQUEUED, NODE_LOST))

    def _finish(self, task: Task, done: TaskExit) -> TaskExit:
        place = self._place(task)
        for known in (self._failed, self._ended_at, self._ids, self._batches, self._places):
            known.pop(task.uid, None)
        remove_inputs(task.folder)
        remove_secrets(task.folder)
        ended = done.ended or task_state.last_sign(task.folder)
        return replace(read_outcome(task.folder, done) or done, place=place, ended=ended)

    def _id(self, task: Task) -> str:
        if task.uid not in self._ids and (found := task_files.slurm_id(task)):
            self._ids[task.uid] = found
            self._batches[task.uid] = next(iter(task_files.batch_of(task.folder)), "")
            self._place(task)  # if it has begun before this server
        return self._ids.get(task.uid, "")

    def _place(self, task: Task) -> TaskPlace | None:
        if task.uid not in self._places and (found := task_files.place_of(task)):
            self._places[task.uid] = found
        return self._places.get(task.uid)

    def _is_stopping(self, task: Task) -> bool:
        return task.state == "STOPPING" or task_files.job_of(self._id(task)) in self._stopping

    # Stopping

    def stop(self, task: Task) -> None:
        """Cancel a task that waits; send TERM to one that runs, and cancel it after the grace period.

        Slurm is asked with the next poll, once for many tasks.
        """
        if task_state.read_exit(task.folder):
            return
        prevent_start(task.folder)
        with contextlib.suppress(OSError):
            write_file(task.folder / STOP, "")
        job = task_files.job_of(self._id(task))
        if not job and (batch := task_files.batch_of(task.folder)):
            self._unnamed[task.uid] = batch
        if not job or job in self._stopping:
            return
        self._stopping[job], self._owners[job] = time.monotonic(), self._batches.get(task.uid, "")
        if self._place(task):
            self._to_signal[job] = not task_files.is_step(task)
        else:
            self._to_cancel.add(job)

    def _find_unnamed(self) -> None:
        """Cancel what was submitted for stopped tasks although sbatch did not say so."""
        jobs = batches.find_by_comment(self._mirror.rows.values())
        for name, id, _ in self._unnamed.values():
            if name in jobs:
                job = task_files.job_of(id.replace("JOB", jobs[name]))
                self._owners[job] = name
                self._to_cancel.add(job)
        self._unnamed = {}

    def _stop_requested(self) -> None:
        """Ask Slurm to end jobs, given rows of just now: not those that have the id of a lost job."""
        if not (self._to_signal or self._to_cancel) or self._mirror.is_pausing:
            return
        for row in self._mirror.rows.values():
            for job in {task_files.job_of(row.id), batches.base_id(row.id)} & self._owners.keys():
                if self._mirror.is_of_other(row, self._owners[job]):
                    self._to_signal.pop(job, None)
                    self._to_cancel.discard(job)
        alone = {job for job, is_alone in self._to_signal.items() if is_alone}
        try:
            programs.cancel(alone, "--signal=TERM", "--batch")
            # Every process of a task gets this signal, which means something to runners only.
            programs.cancel(self._to_signal.keys() - alone, "--signal=CONT")
            programs.cancel(self._to_cancel)
        except SlurmDown as err:
            self._mirror.note_down(err)
            return
        self._to_signal, self._to_cancel = {}, set()
        self._owners = {job: name for job, name in self._owners.items() if job in self._stopping}
        self._mirror.poll_soon()

    def _kill_overdue(self, rows: Mapping[str, QueueRow]) -> None:
        """Cancel what has not ended within the grace period, which its runner could not end."""
        active = {task_files.job_of(row.id) for row in rows.values() if row.state not in OVER}
        over = {task_files.job_of(row.id) for row in rows.values()} - active
        for job, when in list(self._stopping.items()):
            is_overdue = time.monotonic() - when > self._grace + MARGIN_SECONDS
            if is_overdue and job not in over:
                self._to_cancel.add(job)
            if job in over or (is_overdue and job not in active):  # one answer may lack it
                del self._stopping[job]


def _explain_exit(done: TaskExit, state: str, is_step: bool) -> TaskExit:
    """Return the exit of a task that a signal has ended, given the state of its job."""
    if state in _NODES_FAULT:
        return TaskExit(None, reasons.STATES[state], NODE_LOST, ended=done.ended)
    if state == "COMPLETED" and done.stopped and not is_step:  # so its script was run a second time
        return TaskExit(None, reasons.REQUEUED, NODE_LOST, ended=done.ended)
    if state in ("COMPLETED", "FAILED", ""):
        return replace(done, stopped=False)
    return replace(done, stopped=False, reason=reasons.STATES[state], timed_out=state == "TIMEOUT")
