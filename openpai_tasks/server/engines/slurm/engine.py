"""The engine: hand tasks to Slurm, and mirror what Slurm says about them."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from openpai_tasks.errors import ConfigError, PaiError
from openpai_tasks.protocol import JobDocument
from openpai_tasks.server.engines import runner, traces
from openpai_tasks.server.engines.base import (
    Engine,
    EngineCapacity,
    Launch,
    Ports,
    StorageFolder,
    TaskExit,
    TaskQueued,
    TaskRunning,
    TaskStatus,
)
from openpai_tasks.server.engines.bell import bell_path
from openpai_tasks.server.engines.machine import Machine
from openpai_tasks.server.engines.process import (
    GRACE,
    NODE_LOST,
    RUNTIME_FAILED,
    ProcessEngine,
    prevent_start,
    remove_inputs,
    write_file,
)
from openpai_tasks.server.engines.runner.task import STOP
from openpai_tasks.server.engines.slurm import batches, needs, programs, reasons, task_files
from openpai_tasks.server.engines.slurm.batches import SlurmBatch
from openpai_tasks.server.engines.slurm.partitions import SlurmPartition
from openpai_tasks.server.engines.slurm.programs import QueueRow, SlurmDown, SlurmRefusal
from openpai_tasks.server.engines.slurm.snapshot import SlurmSnapshot
from openpai_tasks.server.engines.slurm.task_files import BATCH, ID
from openpai_tasks.server.state.records import NewEvent, Task
from openpai_tasks.settings import home
from openpai_tasks.settings.slurm import NO_SITE, SlurmSite

log = logging.getLogger(__name__)

FOLDER = ".slurm"
MARGIN_SECONDS = 10.0  # after the grace period, for runners to kill their tasks
PAUSE_SECONDS = 5.0  # before Slurm is asked again if it did not answer
LATE_SECONDS = 30.0  # that the files of an ended job may take to appear on a network file system
WAITING = frozenset({"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT"})
ACTIVE = WAITING | {"RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING", "STAGE_OUT"}


class SlurmEngine:
    name = "slurm"
    uses_images = False
    queues = True

    def __init__(
        self,
        folder: Path,
        storages: Mapping[str, StorageFolder] | None = None,
        grace: float = GRACE,
        site: SlurmSite = NO_SITE,
    ) -> None:
        """``folder`` contains the jobs' folders, on a file system that all nodes share."""
        jobs = folder.absolute()
        self._folder = home.make_private(jobs / FOLDER)
        self._files = ProcessEngine(folder, storages, Machine("", 0, 0, (), ""), grace)
        self._grace = grace
        script = os.path.join(os.path.dirname(runner.SCRIPT), "start_slurm_task.py")
        self._command = [sys.executable, "-I", "-S", script, shutil.which("bash") or "/bin/sh"]
        self._command += [str(grace), str(bell_path(jobs))]
        self._unsent: dict[str, Launch] = {}  # by uid, while Slurm does not answer
        self._trouble = ""  # why Slurm does not answer
        self._ask_again_at = float("-inf")
        self._failed: dict[str, str] = {}  # uid -> why it could not be submitted
        self._stopping: dict[str, float] = {}  # id -> when it was asked to stop
        self._ended_at: dict[str, float] = {}  # uid -> when its job was first seen without an exit
        self._site = site
        self._cluster = SlurmSnapshot()

    # The cluster

    def capacity(self) -> EngineCapacity:
        return self._cluster.capacity()

    def problem(self, document: JobDocument) -> str:
        name = document.virtual_cluster
        return needs.problem(document, name, self._cluster.virtual_clusters().get(name, SlurmPartition()))

    def hold(self, tasks: Iterable[Task]) -> None:
        """Ports and GPUs are chosen where a task starts."""

    def assign_ports(self, wanted: Mapping[str, Mapping[str, int]]) -> dict[str, Ports]:
        return {uid: {} for uid in wanted}

    def assign_gpus(self, counts: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
        return {uid: () for uid in counts}

    # Starting

    def start(self, *launches: Launch) -> None:
        waiting = [launch for launch in launches if not traces.began(launch.folder)]
        fresh = [launch for launch in waiting if not (launch.folder / ID).exists()]
        self._send(fresh)

    def _send(self, launches: Sequence[Launch]) -> None:
        """Submit tasks that Slurm does not have; keep them for later if it does not answer."""
        known = self._submitted_before(launches)
        ready = [launch for launch in launches if launch.uid not in known and self._prepared(launch)]
        for batch in batches.make_batches(ready):
            try:
                self._refuse_while_pausing()
                self._submit(batch)
            except SlurmDown as err:
                self._note_down(err)
                self._unsent.update((launch.uid, launch) for launch in batch.launches)
            except (SlurmRefusal, OSError) as err:
                for launch in batch.launches:
                    self._failed[launch.uid] = f"could not be started: {err}"

    def _submitted_before(self, launches: Sequence[Launch]) -> set[str]:
        """Find tasks of a server that was killed before it wrote their ids."""
        asked = [launch for launch in launches if task_files.batch_of(launch.folder)]
        if not asked:
            return set()
        try:
            self._refuse_while_pausing()
            jobs = batches.find_by_comment(programs.queue().values())
        except (SlurmDown, SlurmRefusal) as err:
            self._note_down(err)
            self._unsent.update((launch.uid, launch) for launch in asked)
            return {launch.uid for launch in asked}
        found = set()
        for launch in asked:
            name, id, _ = task_files.batch_of(launch.folder)
            if name in jobs:
                write_file(launch.folder / ID, id.replace("JOB", jobs[name]))
                found.add(launch.uid)
        return found

    def _prepared(self, launch: Launch) -> bool:
        try:
            self._files.prepare(launch)
        except (OSError, ConfigError) as err:
            why = f"{err.strerror}: {launch.folder}" if isinstance(err, OSError) else str(err)
            self._failed[launch.uid] = f"could not be started: {why}"
        return launch.uid not in self._failed

    def _submit(self, batch: SlurmBatch) -> None:
        path = self._folder / f"{batch.name}.json"
        known = self._cluster.nodes
        addresses = {node.name: node.address for node in known.nodes}
        write_file(path, batches.describe(batch, addresses))
        for launch, id in zip(batch.launches, batch.ids("JOB"), strict=True):
            write_file(launch.folder / BATCH, f"{batch.name} {id} {'step' if batch.has_steps else 'batch'}")
        settings = batches.ScriptSettings(
            self._command, known.partitions, known.default, self._site.options, batches.conf()
        )
        job = programs.submit(batches.script(batch, path, settings))
        for launch, id in zip(batch.launches, batch.ids(job), strict=True):
            write_file(launch.folder / ID, id)
        self._trouble = ""

    # Watching

    def poll(self, tasks: Sequence[Task]) -> dict[str, TaskStatus]:
        if self._unsent and not self._is_pausing():
            waiting, self._unsent = list(self._unsent.values()), {}
            self._send(waiting)
        found: dict[str, TaskStatus] = {}
        open_tasks: list[Task] = []
        for task in tasks:
            done = self._known_end(task)
            if done:
                found[task.uid] = done
            else:
                open_tasks.append(task)
        if open_tasks:
            found.update(self._ask(open_tasks))
        return found

    def _known_end(self, task: Task) -> TaskExit | None:
        """Return the end of a task that needs no question to Slurm."""
        done = traces.read_exit(task.folder)
        if done is not None and not task_files.is_foreign(task, done):
            return self._over(task, done)
        if task.uid in self._failed:
            return self._over(task, TaskExit(None, self._failed[task.uid], RUNTIME_FAILED))
        if traces.began(task.folder) and traces.started(task.folder).boot is None:
            return TaskExit(None, "was stopped before it started", RUNTIME_FAILED, stopped=True)
        return None

    def _over(self, task: Task, done: TaskExit) -> TaskExit:
        self._failed.pop(task.uid, None)
        self._ended_at.pop(task.uid, None)
        remove_inputs(task.folder)
        return replace(done, place=task_files.place_of(task))

    def _ask(self, tasks: Sequence[Task]) -> dict[str, TaskStatus]:
        """Ask Slurm about tasks without an exit, all at once."""
        try:
            self._refuse_while_pausing()
            rows = programs.queue()
            self._trouble = ""
        except (SlurmDown, SlurmRefusal) as err:
            self._note_down(err)
            return {task.uid: TaskQueued(self._trouble) for task in tasks if not task_files.place_of(task)}
        found = {task.uid: self._status(task, rows) for task in tasks}
        self._kill_overdue(rows)
        return {uid: status for uid, status in found.items() if status is not None}

    def _is_pausing(self) -> bool:
        return time.monotonic() < self._ask_again_at

    def _refuse_while_pausing(self) -> None:
        if self._is_pausing():
            raise SlurmDown(self._trouble)

    def _note_down(self, err: PaiError) -> None:
        """Note that Slurm does not answer; each further question would take many seconds."""
        if not self._is_pausing():
            self._trouble, self._ask_again_at = str(err), time.monotonic() + PAUSE_SECONDS

    def _status(self, task: Task, rows: Mapping[str, QueueRow]) -> TaskStatus | None:
        row = rows.get(task_files.slurm_id(task))
        if row is None and not task_files.slurm_id(task):
            return TaskQueued(self._trouble or "it is being submitted to Slurm")
        if row is not None and row.state in WAITING:
            return TaskQueued(reasons.why_waiting(row))
        if row is not None and row.state in ACTIVE:
            place = task_files.place_of(task)
            return TaskRunning(place) if place else TaskQueued(f"it is starting on {row.nodes}")
        return self._lost(task, row)

    def _lost(self, task: Task, row: QueueRow | None) -> TaskExit | None:
        """Return the end of a task that Slurm has ended, and that has left no exit."""
        first = self._ended_at.setdefault(task.uid, time.monotonic())
        done = traces.read_exit(task.folder)
        if done and not task_files.is_foreign(task, done):
            return self._over(task, done)
        if done:
            why = reasons.STATES.get(row.state if row else "", done.reason)
            return self._over(task, replace(done, stopped=False, reason=why))
        is_late = row is None or row.state in ("COMPLETED", "FAILED")
        if is_late and time.monotonic() - first < LATE_SECONDS:
            return None
        state = row.state if row else ""
        words = reasons.STATES.get(state, "was lost: Slurm does not know it any more")
        stopped = (task.folder / STOP).exists()
        if state == "OUT_OF_MEMORY":
            return self._over(task, TaskExit(137, words))
        code = NODE_LOST if state in ("NODE_FAIL", "BOOT_FAIL", "PREEMPTED", "") else RUNTIME_FAILED
        return self._over(task, TaskExit(None, words, code, stopped=stopped))

    # Stopping

    def stop(self, task: Task) -> None:
        """Cancel a task that waits; send TERM to one that runs, and cancel it after the grace period."""
        if traces.read_exit(task.folder):
            return
        prevent_start(task.folder)
        self._unsent.pop(task.uid, None)
        with contextlib.suppress(OSError):
            write_file(task.folder / STOP, "")
        job = task_files.job_of(task_files.slurm_id(task))
        if not job or job in self._stopping:
            return
        self._stopping[job] = time.monotonic()
        try:
            if task_files.place_of(task):
                programs.ask_to_stop(job, is_batch=not task_files.is_step(task))
            else:
                programs.cancel([job])
        except (SlurmDown, SlurmRefusal) as err:
            del self._stopping[job]
            log.warning("cannot stop job %s of Slurm: %s", job, err)

    def _kill_overdue(self, rows: Mapping[str, QueueRow]) -> None:
        """Cancel what has not ended within the grace period, which its runner could not end."""
        active = {task_files.job_of(row.id) for row in rows.values() if row.state in ACTIVE}
        for job, when in list(self._stopping.items()):
            if job not in active:
                del self._stopping[job]
            elif time.monotonic() - when > self._grace + MARGIN_SECONDS:
                with contextlib.suppress(SlurmDown, SlurmRefusal):
                    programs.cancel([job])

    # The rest

    def forget(self, task: Task) -> None:
        """Remove what is not needed any more; peers that start later may still look for the place."""
        self._files.forget(task)
        batch = task_files.batch_of(task.folder)
        for name in (ID, BATCH):
            with contextlib.suppress(OSError):
                (task.folder / name).unlink()
        if batch:
            self._forget_batch(self._folder / f"{batch[0]}.json")

    def _forget_batch(self, path: Path) -> None:
        """Remove the files of a batch with its last task."""
        with contextlib.suppress(OSError, ValueError):
            tasks = json.loads(path.read_text(encoding="utf-8"))["tasks"]
            if not any(task_files.batch_of(Path(one["folder"])) for one in tasks):
                path.unlink()
                path.with_suffix(".log").unlink(missing_ok=True)

    def notes(self, task: Task) -> Sequence[NewEvent]:
        return self._files.notes(task)

    def logs(self, task: Task) -> dict[str, int]:
        return self._files.logs(task)

    def open_log(self, task: Task, name: str) -> BinaryIO:
        return self._files.open_log(task, name)

    def close(self) -> None:
        self._files.close()


if TYPE_CHECKING:
    _IS_ENGINE: type[Engine] = SlurmEngine
