"""The engine: hand tasks to Slurm, and mirror what Slurm says about them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from openpai_tasks.files import shortages
from openpai_tasks.protocol import JobDocument
from openpai_tasks.server.engines import runner, task_state
from openpai_tasks.server.engines.base import (
    Engine,
    EngineCapacity,
    Launch,
    MemoryLimits,
    SchedulingEngine,
    TaskStatus,
)
from openpai_tasks.server.engines.container_files import container_variables
from openpai_tasks.server.engines.containers import SUPERVISOR_GRACE, ContainerNotes
from openpai_tasks.server.engines.machine import Machine, gpu_variables
from openpai_tasks.server.engines.process import GRACE, ProcessEngine, write_file
from openpai_tasks.server.engines.slurm import batches, images, needs, programs, task_files
from openpai_tasks.server.engines.slurm.batches import SlurmBatch
from openpai_tasks.server.engines.slurm.mirror import QueueMirror
from openpai_tasks.server.engines.slurm.partitions import SlurmPartition
from openpai_tasks.server.engines.slurm.programs import SlurmDown, SlurmRefusal
from openpai_tasks.server.engines.slurm.site import read_site
from openpai_tasks.server.engines.slurm.snapshot import SlurmSnapshot
from openpai_tasks.server.engines.slurm.task_files import BATCH, ID
from openpai_tasks.server.engines.slurm.watcher import OVER, WAITING, TaskWatcher
from openpai_tasks.server.engines.wakeups import pipe_path
from openpai_tasks.server.state.records import NewEvent, Task
from openpai_tasks.settings import home
from openpai_tasks.settings.engines import TROUBLE, EngineOptions

FOLDER = ".slurm"
SUBMITTING = "submitting"  # a file that every sbatch keeps locked, since it may outlive the server


class SlurmEngine(SchedulingEngine, ProcessEngine):
    """Has the task folders of a process engine; Slurm starts what runs in them."""

    name = "slurm"
    serves_ssh_in_image = False  # it runs on the node, next to the image
    where = "the nodes, with what these have"

    def __init__(self, folder: Path, grace: float = GRACE, options: EngineOptions | None = None) -> None:
        """``folder`` contains the jobs' folders, on a file system that all nodes share."""
        jobs = folder.absolute()
        self._folder = jobs / FOLDER
        super().__init__(folder, Machine("", 0, 0, (), ""), grace, limits=False)
        self.memory = MemoryLimits(True, "by Slurm, as its administrators have set it up")
        self._site = read_site(options or {})
        program = images.find_program(self._site.images)
        self._images = images.ImageRunner(program, str(jobs), grace) if program else None
        self.uses_images = self.mounts_at_root = program is not None
        self._notes = ContainerNotes()
        grace += SUPERVISOR_GRACE if self.uses_images else 0
        script = os.path.join(os.path.dirname(runner.SCRIPT), "start_slurm_task.py")
        self._task_command = [sys.executable, "-I", "-S", script, self._shell]
        self._task_command += [str(grace), str(pipe_path(jobs))]
        self._unsent: dict[str, Launch] = {}  # by uid, while Slurm does not answer
        self._left: dict[str, int] = {}  # batch -> how many of its tasks are not forgotten
        self._ended = {path.stem for path in self._folder.glob("*.tasks") if not any(_tasks_left(path))}
        """Batches without tasks, of which Slurm may still have a job, or have put it back into the queue."""
        self._mirror = QueueMirror(jobs.parent / TROUBLE, self._folder)
        self._watcher = TaskWatcher(self._mirror, grace, self._failed)
        self._cluster = SlurmSnapshot(self._folder / "nodes", self._mirror)
        home.make_private(self._folder)

    # The cluster

    def capacity(self) -> EngineCapacity:
        return self._cluster.capacity()

    def problem(self, document: JobDocument) -> str:
        name = document.virtual_cluster
        return needs.problem(document, name, self._cluster.virtual_clusters().get(name, SlurmPartition()))

    def priority_note(self, document: JobDocument) -> str:
        return needs.priority_note(document, self._site)

    def variables(self, task: Task) -> dict[str, str]:
        """Hide all GPUs: where the task starts, Slurm says which ones it sees."""
        total = self.capacity().total.gpu
        if self.uses_images:
            return container_variables(task, total)
        return {**super().variables(task), **gpu_variables((), total)}

    # Starting

    def start(self, *launches: Launch) -> None:
        waiting = [launch for launch in launches if not task_state.has_begun(launch.folder)]
        fresh = [launch for launch in waiting if not (launch.folder / ID).exists()]
        self._submit_new(fresh)

    def _submit_new(self, launches: Sequence[Launch]) -> None:
        """Submit tasks that Slurm does not have; keep them for later if it does not answer."""
        known = self._submitted_before(launches)
        ready = [launch for launch in launches if launch.uid not in known and self._try_prepare(launch)]
        for batch in batches.make_batches(ready):
            try:
                self._mirror.check_answering()
                self._submit_parts(batch)
            except SlurmDown as err:
                self._mirror.note_down(err)
                self._unsent.update((launch.uid, launch) for launch in batch.launches)
            except (SlurmRefusal, OSError) as err:
                uids = [launch.uid for launch in batch.launches]
                if shortage := shortages.find_shortage(err):
                    self._unrequested |= dict.fromkeys(uids, shortages.describe(shortage))
                    self._unsent.update(zip(uids, batch.launches, strict=True))
                else:
                    self._failed |= dict.fromkeys(uids, f"could not be started: {err}")

    def _submitted_before(self, launches: Sequence[Launch]) -> set[str]:
        """Find tasks of a server that was killed before it wrote their ids."""
        asked = [launch for launch in launches if task_files.batch_of(launch.folder)]
        if not asked:
            return set()
        try:
            self._mirror.check_answering()
            self._check_submitted()
            jobs = batches.find_by_comment(programs.queue().values())
        except (SlurmDown, SlurmRefusal) as err:
            self._mirror.note_down(err)
            self._unsent.update((launch.uid, launch) for launch in asked)
            return {launch.uid for launch in asked}
        found = set()
        for launch in asked:
            name, id, _ = task_files.batch_of(launch.folder)
            if name in jobs:
                write_file(launch.folder / ID, id.replace("JOB", jobs[name]))
                found.add(launch.uid)
        return found

    def _check_submitted(self) -> None:
        """Raise SlurmDown while an sbatch of a killed server runs, or one that took too long."""
        with contextlib.suppress(FileNotFoundError), open(self._folder / SUBMITTING, "r+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as err:
                raise SlurmDown("Slurm does not answer: an earlier sbatch has not ended") from err

    def can_link(self, path: str) -> bool:
        """Return False: the nodes may have another kernel, with other rules."""
        return False

    def prepare(self, launch: Launch) -> None:
        super().prepare(self._images.prepare(launch) if self._images else launch)

    def _submit_parts(self, batch: SlurmBatch) -> None:
        """Submit a batch, or its halves if Slurm takes only smaller arrays (``MaxArraySize``)."""
        try:
            self._submit(batch)
        except SlurmRefusal as err:
            if batch.gang or "array" not in str(err):
                raise
            _remove_batch(self._folder / f"{batch.name}.tasks")
            for half in batch.halves():
                self._submit_parts(half)

    def _submit(self, batch: SlurmBatch) -> None:
        path = self._folder / f"{batch.name}.tasks"
        known = self._cluster.nodes
        addresses = {node.name: node.address for node in known.nodes}
        write_file(path, batches.describe(batch, addresses))
        write_file(path.with_suffix(".log"), "")  # private, while the task has the user's umask
        replaced: set[str] = set()
        for launch, id in zip(batch.launches, batch.ids("JOB"), strict=True):
            replaced.update(task_files.batch_of(launch.folder)[:1])
            write_file(launch.folder / BATCH, f"{batch.name} {id} {'step' if batch.has_steps else 'batch'}")
        for name in replaced - {batch.name}:
            self._end_replaced(self._folder / f"{name}.tasks")
        script = batches.script(batch, path, self._task_command, self._site, known)
        with open(self._folder / SUBMITTING, "w", opener=partial(os.open, mode=0o600)) as lock:
            fcntl.flock(lock, fcntl.LOCK_SH)
            job = programs.submit(script, [lock.fileno()])
        for launch, id in zip(batch.launches, batch.ids(job), strict=True):
            write_file(launch.folder / ID, id)
            self._unrequested.pop(launch.uid, None)
        self._mirror.poll_soon()

    def _end_replaced(self, path: Path) -> None:
        """Keep a job that sbatch has submitted, but that comes into the queue late, from running tasks."""
        if not any(_tasks_left(path)):
            _remove_batch(path)
            self._ended.add(path.stem)

    # Watching and stopping

    def poll(self, tasks: Sequence[Task]) -> dict[str, TaskStatus]:
        self.start_delayed()
        if self._unsent and not self._mirror.is_pausing:
            waiting, self._unsent = list(self._unsent.values()), {}
            self._submit_new(waiting)
        rows, found = self._mirror.rows, self._watcher.poll(tasks)
        if self._ended and self._mirror.rows is not rows:
            self._remove_ended(WAITING)
        return found

    def _remove_ended(self, unwanted: Collection[str]) -> None:
        """Remove the files of ended batches; cancel their jobs in one of the unwanted states."""
        rows = [row for row in self._mirror.rows.values() if batches.name_of(row) in self._ended]
        requeued = {task_files.job_of(row.id) for row in rows if row.state in unwanted}
        try:
            programs.cancel(requeued)
        except SlurmDown as err:
            return self._mirror.note_down(err)
        active = {batches.name_of(row) for row in rows if row.state not in (*OVER, *unwanted)}
        for name in self._ended - active:
            _remove_batch(self._folder / f"{name}.tasks")
        self._ended &= active

    def stop(self, task: Task) -> None:
        self._unsent.pop(task.uid, None)
        self._watcher.stop(task)

    # The rest

    def forget(self, task: Task) -> None:
        """Remove what is not needed any more; peers that start later may still look for the place."""
        super().forget(task)
        batch = task_files.batch_of(task.folder)
        for name in (ID, BATCH):
            with contextlib.suppress(OSError):
                (task.folder / name).unlink()
        if batch:
            self._count_down(batch[0])

    def _count_down(self, name: str) -> None:
        """Note that a batch has ended with its last task."""
        if name in self._left:
            self._left[name] -= 1
        else:
            self._left[name] = len(list(_tasks_left(self._folder / f"{name}.tasks")))
        if self._left[name] <= 0:
            del self._left[name]
            self._ended.add(name)

    def notes(self, task: Task) -> tuple[NewEvent, ...]:
        return (*super().notes(task), *(self._notes.read_new(task) if self.uses_images else ()))

    def close(self) -> None:
        if self._ended:
            self._mirror.poll_soon()
            if self._mirror.refresh():
                self._remove_ended({*WAITING, "COMPLETING"})  # one that is being requeued looks like that
        self._cluster.close()
        super().close()


def _tasks_left(path: Path) -> Iterator[Path]:
    """Yield the folders of a batch's tasks that are not forgotten, by its file."""
    try:
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return
    yield from (folder for folder in batches.folders(text) if path.stem in task_files.batch_of(folder))


def _remove_batch(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
        path.with_suffix(".log").unlink(missing_ok=True)


if TYPE_CHECKING:
    _IS_ENGINE: type[Engine] = SlurmEngine
