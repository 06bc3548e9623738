"""Helpers for engine tests: tasks to run on an engine, and a small engine with its own queue."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from openpai_tasks.server.engines.base import (
    ContainerSpec,
    Engine,
    Launch,
    TaskExit,
    TaskPlace,
    TaskQueued,
    TaskRunning,
    TaskStatus,
)
from openpai_tasks.server.engines.process import ProcessEngine
from openpai_tasks.server.state.records import Task
from tests.server.workshop import until

WHY = "Priority"


def unique_uid(uid: str) -> str:
    """Return a uid that no other test has: everything with the uid of a lost task is killed."""
    return f"{uid}-{os.getpid()}-{EngineBench.made}"


def task(folder: Path, uid: str = "uid") -> Task:
    place = {"job": "alice~job", "job_attempt": 0, "role": "main", "index": 0, "attempt": 0}
    times = {"created": 0, "launched": 0}
    states = {"state": "RUNNING", "sub_state": "AttemptRunning"}
    return Task(uid=unique_uid(uid), ip="", folder=folder / uid, **place, **times, **states)  # type: ignore[arg-type]


class EngineBench:
    """An engine on a folder, and its tasks by short names."""

    image = "some/image"
    made = 0  # benches of this process

    def __init__(self, folder: Path, make: Callable[[Path], Engine]) -> None:
        self.folder, self._make = folder, make
        EngineBench.made += 1
        self.open()

    def open(self) -> None:
        """Replace the engine by a new one over the same folder, as a restart of the server does."""
        self.engine = self._make(self.folder)

    def launch(self, uid: str, command: str, **more: Any) -> Launch:
        container = ContainerSpec(**{"memory_mb": 64, "cpu": 1, **more.pop("container", {})})
        variables = {"FC_POD_UID": unique_uid(uid), **self.engine.variables(task(self.folder, uid))}
        variables |= more.pop("environment", {"PATH": os.environ["PATH"]} if not self.uses_images else {})
        values = {"user": "alice", "image": self.image, "role": "main", **more}
        return Launch(
            uid=unique_uid(uid),
            folder=self.folder / uid,
            scripts={"command": command},
            environment=variables,
            container=container,
            **values,
        )

    @property
    def uses_images(self) -> bool:
        return self.engine.uses_images

    def start(self, uid: str, command: str, **more: Any) -> Task:
        self.engine.start(self.launch(uid, command, **more))
        return task(self.folder, uid)

    def run(self, uid: str, command: str, **more: Any) -> TaskExit:
        self.start(uid, command, **more)
        return until(lambda: self.end(uid))

    def status(self, uid: str) -> TaskStatus:
        one = task(self.folder, uid)
        return self.engine.poll([one])[one.uid]

    def end(self, uid: str) -> TaskExit | None:
        found = self.status(uid)
        return found if isinstance(found, TaskExit) else None

    def log(self, uid: str, name: str = "stdout") -> str:
        """Return what the task has written, or nothing while it has no log."""
        try:
            with self.engine.open_log(task(self.folder, uid), name) as file:
                return file.read().decode()
        except FileNotFoundError:
            return ""

    def place(self, uid: str) -> TaskPlace | None:
        found = self.status(uid)
        return found.place if isinstance(found, TaskRunning) else None

    def begun(self, uid: str, word: str = "ready") -> None:
        until(lambda: self.end(uid) or word in self.log(uid))  # a queueing engine starts tasks in a poll
        assert word in self.log(uid)

    def notes(self, uid: str) -> dict[str, str]:
        return {note.reason: note.message for note in self.engine.notes(task(self.folder, uid))}

    def work(self, uid: str, name: str) -> Path:
        """Return the path of a file in the folder where the command runs."""
        return self.folder / uid / "work" / name


class QueueingEngine:
    """A process engine with its own queue: it runs ``slots`` tasks at a time, in order."""

    name, uses_images, mounts_at_root, schedules = "queueing", False, False, True
    places_late = serves_ssh_in_image = False
    separates_streams = records_usage = True
    where, has_task_folders = "this machine", True

    def __init__(self, inner: ProcessEngine, slots: int) -> None:
        self._inner, self._slots = inner, slots
        self._waiting: dict[str, Launch] = {}
        self._running: set[str] = set()
        self.polled: list[int] = []  # the number of tasks in each poll
        same = "capacity hold assign_ports assign_gpus taken_gpus address variables wakeups forget notes logs"
        for name in [*same.split(), "open_log", "close"]:
            setattr(self, name, getattr(inner, name))

    def start(self, *launches: Launch) -> None:
        for launch in launches:
            if (launch.folder / "started").exists():
                self._running.add(launch.uid)
            elif launch.uid not in self._running:
                self._waiting.setdefault(launch.uid, launch)
        self._fill()

    def poll(self, tasks: Sequence[Task]) -> dict[str, TaskStatus]:
        self.polled.append(len(tasks))
        found = self._inner.poll([one for one in tasks if one.uid not in self._waiting])
        self._running -= {uid for uid, status in found.items() if isinstance(status, TaskExit)}
        self._fill()
        queued = {one.uid: TaskQueued(WHY) for one in tasks if one.uid in self._waiting}
        return {**found, **queued}

    def stop(self, one: Task) -> None:
        self._waiting.pop(one.uid, None)
        self._inner.stop(one)

    def _fill(self) -> None:
        while self._waiting and len(self._running) < self._slots:
            uid = next(iter(self._waiting))
            self._running.add(uid)
            self._inner.start(self._waiting.pop(uid))
