"""Which waiting job starts next, and what becomes of those that run: one thread, asleep when idle."""

from __future__ import annotations

import heapq
import logging
import os
import threading
import time
from collections.abc import Collection, Iterator, Mapping

from openpai_tasks.errors import PaiError
from openpai_tasks.server.engines import Engine
from openpai_tasks.server.engines.bell import Bell, bell_path
from openpai_tasks.server.engines.machine import Machine, Resources
from openpai_tasks.server.scheduling import ports
from openpai_tasks.server.scheduling.agenda import Agenda, Waiting
from openpai_tasks.server.scheduling.allocation import Answer, Room
from openpai_tasks.server.scheduling.launching import Launcher
from openpai_tasks.server.scheduling.progress import Progress
from openpai_tasks.server.ssh.logins import Logins
from openpai_tasks.server.state.records import Task
from openpai_tasks.server.state.state import State, now

log = logging.getLogger(__name__)

LOOK_AFTER = 1.0  # seconds between looks at running tasks, for those whose runner can no longer ring
MOST_CALLED = 500  # tasks looked at one by one; databases take no more values at once than about 1000
PAGE = 50  # waiting jobs that are read at once


class Scheduler:
    """First in, first out inside a virtual cluster; all tasks of a job at once unless it says otherwise."""

    def __init__(
        self,
        state: State,
        engine: Engine,
        machine: Machine,
        virtual_clusters: Mapping[str, Resources],
        enforce: bool = False,
        logins: Logins | None = None,
    ) -> None:
        self._state = state
        self._engine = engine
        self._machine = machine
        self._clusters = dict(virtual_clusters) or {"default": machine.resources}
        self._enforce = enforce
        self._agenda = Agenda(state.database)
        self._progress = Progress(state)
        self._launcher = Launcher(
            state, self._progress, engine, machine, os.environ, logins or Logins(state.folder)
        )
        self._bell = Bell(bell_path(state.folder))
        self._closing = False
        self._next_look = 0.0  # when all running tasks are looked at again
        self._told: dict[str, str] = {}  # why each job at the head of a line waits, as last said
        self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)

    def start(self) -> None:
        self._state.listen(self.wake)
        self._thread.start()

    def wake(self) -> None:
        self._bell.ring()

    def close(self) -> None:
        """End the thread and leave the tasks alone."""
        self._state.listen(lambda: None)
        self._closing = True
        self.wake()
        if self._thread.is_alive():
            self._thread.join()
        self._engine.close()
        self._bell.close()

    def _run(self) -> None:
        recovered, called = False, set[str]()
        while not self._closing:
            try:
                if not recovered:
                    self._launcher.recover(self._agenda.alive())
                    recovered = True
                pause = self._turn(called)
            except Exception:  # as a request's, a turn's failure is its own: the next one may do better
                log.exception("a turn of the scheduler failed")
                pause = LOOK_AFTER
            called = self._bell.wait(pause)

    def _turn(self, called: Collection[str]) -> float | None:
        """Do all there is to do; the seconds after which to look again without being woken.

        ``called`` are the folders of tasks that are said to be over.
        """
        self._collect(called)
        self._stop()
        delays = list(self._start_waiting())
        if self._agenda.is_any_alive():
            delays.append(LOOK_AFTER)
        return min(delays, default=None)

    def _collect(self, called: Collection[str]) -> None:
        """Look at those that called, and from time to time at all."""
        if time.monotonic() < self._next_look and len(called) <= MOST_CALLED:
            for task in self._agenda.alive_in(called) if called else ():
                self._look_at(task)
            return
        began = time.monotonic()
        for task in self._agenda.alive():
            self._look_at(task)
        took = time.monotonic() - began
        self._next_look = time.monotonic() + max(LOOK_AFTER, 10 * took) * 0.9

    def _look_at(self, task: Task) -> None:
        """See whether it is over; a task that cannot be looked at must not keep others waiting."""
        try:
            end = self._engine.poll(task)
            for note in self._engine.notes(task):
                self._state.add_event(task.job, note.type, note.reason, note.message, task, once=True)
            if end:
                self._progress.finish(task, end)
        except (OSError, PaiError):
            log.exception("cannot look after task %s-%s of job %s", task.role, task.index, task.job)

    def _stop(self) -> None:
        """Settle what users want stopped, and see that what must end does."""
        for key in self._agenda.stopping():
            self._told.pop(key, None)
            self._progress.settle(key)
        for task in self._agenda.ending():
            self._engine.stop(task)
            self._look_at(task)  # one that had not begun is over at once

    # Starting

    def _start_waiting(self) -> Iterator[float]:
        """Start what has room; yields the seconds until a delayed retry is due."""
        lines = self._agenda.lines()
        if not lines:
            return
        self._launcher.survey(self._agenda.unfinished())
        room = Room(self._machine.resources, self._clusters, self._state.usage(), self._enforce)
        blocked: dict[str, str] = {}  # virtual cluster -> the job everyone in it waits behind
        for job in heapq.merge(*(self._line(name, blocked) for name in lines), key=lambda job: job.queued):
            if job.virtual_cluster in blocked:
                continue
            if job.not_before > now():
                yield (job.not_before - now()) / 1000
                continue
            answer = self._try_start(job, room)
            if answer.look_after is not None:
                yield answer.look_after
            if not answer.start and not answer.hopeless:
                stuck = lines if answer.machine_full else [job.virtual_cluster]
                blocked.update((name, job.key) for name in stuck if name not in blocked)
        for cluster in lines:
            self._explain(cluster, blocked.get(cluster))

    def _line(self, name: str, blocked: Mapping[str, str]) -> Iterator[Waiting]:
        """The jobs of one line, as long as its first can start."""
        place = 0
        while page := self._agenda.line(name, place, PAGE):
            for job in page:
                if name in blocked:
                    return
                yield job
            place = page[-1].queued

    def _try_start(self, job: Waiting, room: Room) -> Answer:
        try:
            answer = self._start_whole(job, room) if job.gang else self._start_each(job, room)
        except ports.Short as err:
            answer = Answer(False, str(err), machine_full=True, look_after=ports.LOOK_AFTER)
        except PaiError as err:
            self._progress.refuse(job.key, str(err))
            self._launcher.survey(self._agenda.unfinished())  # what it was given is free again
            self.wake()  # and so is its room
            return Answer(True)
        if not answer.start:
            self._tell(job.key, answer)
        return answer

    def _start_whole(self, job: Waiting, room: Room) -> Answer:
        answer = room.judge(job.virtual_cluster, job.need)
        if answer.start:
            tasks = self._launcher.waiting_tasks(job.key)
            self._warn(job.key, answer)
            self._launcher.launch(job.key, tasks)
            room.take(job.virtual_cluster, job.need)
        return answer

    def _start_each(self, job: Waiting, room: Room) -> Answer:
        """Without gang allocation each task starts as soon as there is room for it."""
        ready: list[Task] = []
        answer = Answer(True)
        for task in self._launcher.waiting_tasks(job.key):
            need = self._launcher.need(task)
            answer = room.judge(job.virtual_cluster, need)
            if not answer.start:
                break
            self._warn(job.key, answer)
            room.take(job.virtual_cluster, need)
            ready.append(task)
        if ready:
            self._launcher.launch(job.key, ready)
        return answer

    # Explaining

    def _warn(self, key: str, answer: Answer) -> None:
        self._told.pop(key, None)
        if answer.why:
            self._state.add_event(key, "Warning", "LargerThanCluster", answer.why)

    def _tell(self, key: str, answer: Answer) -> None:
        """Say why the head of a line waits, again only when the reason has changed."""
        if self._told.get(key) != answer.why:
            self._told[key] = answer.why
            self._state.add_event(key, "Warning", "FailedScheduling", answer.why)
            self._agenda.mark_explained(key)

    def _explain(self, cluster: str, head: str | None) -> None:
        """Say once to everyone else in the line that they are in it."""
        behind = f"behind job {head} " if head else ""
        with self._state.database.transaction():
            for key in self._agenda.unexplained(cluster):
                self._state.add_event(key, "Normal", "Queued", f"waits {behind}in virtual cluster {cluster}")
                self._agenda.mark_explained(key)
