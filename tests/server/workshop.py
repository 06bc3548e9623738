"""A cluster core for tests: real database, real scheduler and real processes, in a temporary folder."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import pytest

from openpai_tasks.protocol import validate
from openpai_tasks.protocol.states import FINAL
from openpai_tasks.server.engines.base import Engine
from openpai_tasks.server.engines.gpus import Gpu
from openpai_tasks.server.engines.machine import Machine
from openpai_tasks.server.engines.process import ProcessEngine
from openpai_tasks.server.resources import ResourceAmount
from openpai_tasks.server.scheduling.scheduler import Scheduler
from openpai_tasks.server.state.database import Database
from openpai_tasks.server.state.records import Job, Task
from openpai_tasks.server.state.state import SCHEMA, State
from openpai_tasks.server.storages import Storage

T = TypeVar("T")
BOOT = Machine.detect().boot
GRACE = 30.0  # seconds; enough for a task that handles SIGTERM, however busy the machine
WHEN_READY = 'sleep() { until test -e ready; do command sleep 0.05; done; command sleep "$1"; }\n'
"""In front of a result of ``limit_time``: the clock begins when the command has created ``ready``."""


def until(look: Callable[[], T | None], seconds: float = 60) -> T:
    """Poll ``look``, and return its first true result."""
    start = time.monotonic()
    while (waited := time.monotonic() - start) < seconds:
        found = look()
        if found:
            return found
        time.sleep(min(0.005 + waited / 10, 0.1))  # each look may cost a process
    raise AssertionError(f"still {look()!r} after {seconds} s")


def text(path: Path) -> str:
    """Return the content of the file, or nothing while it does not exist."""
    return path.read_text() if path.exists() else ""


def role(command: str, instances: int = 1, cpu: int = 1, gpu: int = 0, **more: object) -> dict[str, object]:
    resources = {
        "cpu": cpu,
        "memoryMB": 10,
        "gpu": gpu,
        **({"ports": more.pop("ports")} if "ports" in more else {}),
    }
    return {
        "instances": instances,
        "dockerImage": "image",
        "resourcePerInstance": resources,
        "commands": [command],
        **more,
    }


def document(name: str, roles: Mapping[str, object], **more: object) -> str:
    image = {"type": "dockerimage", "name": "image", "uri": "some/image:1"}
    head = {"protocolVersion": 2, "name": name, "type": "job", "prerequisites": [image]}
    return json.dumps({**head, "taskRoles": roles, **more})


def machine(cpus: int = 2, gpus: int = 0) -> Machine:
    uuid = f"GPU-{os.getpid()}"  # servers of other test processes would respect the locks of the same GPUs
    installed = (Gpu(index, f"{uuid}-{index}", "test", 0) for index in range(gpus))
    return Machine("here", cpus, 1000, tuple(installed), BOOT)


class Workshop:
    """The server without its HTTP API; ``close`` and ``open`` stop and restart it."""

    def __init__(
        self,
        folder: Path,
        here: Machine,
        clusters: dict[str, ResourceAmount],
        enforce: bool,
        grace: float = GRACE,
    ) -> None:
        self.folder, self.machine, self.clusters, self.enforce = folder, here, clusters, enforce
        self.grace = grace
        self.open()

    def open(self) -> None:
        self.database = Database(self.folder / "cluster.db", SCHEMA)
        self.state = State(self.database, self.folder / "jobs")
        self.engine = self.make_engine()
        self.scheduler = Scheduler(
            self.state, self.engine, self.clusters, self.enforce, storages=self.storages
        )
        self.scheduler.start()

    def make_engine(self) -> Engine:
        return ProcessEngine(self.folder / "jobs", self.machine, self.grace)

    @property
    def storages(self) -> dict[str, Storage]:
        return {"home": Storage("home", self.folder / "storage")}

    def close(self) -> None:
        self.scheduler.close()
        self.database.close()

    def clean(self) -> None:
        """Stop all jobs, so that no process is left, and close."""
        for key in self.state.active():
            self.state.set_execution(key, "STOP")
        until(lambda: not self.state.active())
        self.close()

    def submit(self, name: str, command: str | Mapping[str, object], user: str = "alice", **more: Any) -> str:
        roles = {"main": role(command)} if isinstance(command, str) else command
        text = document(name, roles, **more)
        return self.state.submit(user, validate(text), text).key

    def job(self, key: str) -> Job:
        found = self.state.job(key)
        assert found
        return found

    def wait(self, key: str, *wanted: str) -> Job:
        """Return the job once it is in one of these states, or has ended if none is given."""
        until(lambda: self.job(key).state in (wanted or FINAL))
        return self.job(key)

    def run(self, name: str, command: str | Mapping[str, object], **more: Any) -> Job:
        return self.wait(self.submit(name, command, **more))

    def tasks(self, key: str) -> list[Task]:
        return self.state.tasks(key, self.job(key).attempt)

    def output(self, key: str, log: str = "stdout", number: int = 0) -> str:
        with self.engine.open_log(self.tasks(key)[number], log) as file:
            return file.read().decode()

    def reasons(self, key: str) -> dict[str, str]:
        """Return the messages of the job's events by reason."""
        return {event.reason: event.message for event in self.state.events(key)}


@pytest.fixture
def workshop(tmp_path: Path) -> Iterator[Callable[..., Workshop]]:
    """Create workshops, which are cleaned up after the test."""
    made: list[Workshop] = []

    def make(
        cpus: int = 2,
        gpus: int = 0,
        clusters: dict[str, ResourceAmount] | None = None,
        enforce: bool = False,
        grace: float = GRACE,
    ) -> Workshop:
        here = machine(cpus, gpus)
        made.append(Workshop(tmp_path, here, clusters or {"default": here.resources}, enforce, grace))
        return made[-1]

    yield make
    for one in made:
        one.clean()
