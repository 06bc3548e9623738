"""Run tasks in containers of docker or podman, created from the job's image.

Every container has a supervisor (see container_supervisor.py), which is a process under a runner. So
everything that lets processes outlive the server, start once and be found again also works here. A container
without a runner is abandoned, and removed.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from openpai_tasks.files.regular import open_regular
from openpai_tasks.protocol import fields
from openpai_tasks.protocol.json_text import parse
from openpai_tasks.server import ssh
from openpai_tasks.server.engines import container_program, leftovers, task_state
from openpai_tasks.server.engines.base import Engine, Launch, TaskExit
from openpai_tasks.server.engines.container_files import (
    SECRET,
    ContainerSettings,
    container_variables,
    prepare,
)
from openpai_tasks.server.engines.container_program import DOCKER, PODMAN, ContainerProgram, ProgramDialect
from openpai_tasks.server.engines.machine import Machine
from openpai_tasks.server.engines.process import GRACE, RUNTIME_FAILED, ProcessEngine
from openpai_tasks.server.ssh import in_container
from openpai_tasks.server.state.records import NewEvent, Task
from openpai_tasks.settings.engines import EngineOptions

SUPERVISOR_GRACE = 60.0  # seconds, in addition to the task's, to stop, kill and remove a container
NOTES_READ = 1 << 16
LONGEST_NOTE = 1000  # characters
_LOST = "lost its supervisor, which was killed; its container was removed"


class ContainerEngine(ProcessEngine):
    """Runs tasks with one of the two programs, which a subclass names; a supervisor is a process."""

    uses_images = True
    mounts_at_root = True
    serves_ssh_in_image = True
    dialect: ProgramDialect

    def __init__(
        self,
        folder: Path,
        machine: Machine | None = None,
        grace: float = GRACE,
        options: EngineOptions | None = None,
    ) -> None:
        super().__init__(folder, machine, grace + SUPERVISOR_GRACE, limits=False)
        self.name = self.dialect.name
        self._program = ContainerProgram(self.dialect)
        self.memory = self._program.memory()
        self._settings = ContainerSettings(self._program, str(folder.absolute()), self.machine.cpus, grace)
        self._notes = ContainerNotes()
        self._remove_abandoned()

    def variables(self, task: Task) -> dict[str, str]:
        return container_variables(task, len(self.machine.gpus))

    def prepare(self, launch: Launch) -> None:
        super().prepare(prepare(launch, self._settings))

    def _end(self, task: Task) -> TaskExit | None:
        """Return the exit of the container, given the exit of its supervisor."""
        found = super()._end(task)
        if found is None:
            return None
        if (task.folder / "container.json").exists():
            found = replace(found, **task_state.usage(None, None))  # what the supervisor used
            found = read_outcome(task.folder, found) or self._abandoned_container(task, found)
            if found.platform_code is not None:
                leftovers.kill(task.uid, None)  # a daemon that crashed may have lost track of it
        remove_secrets(task.folder)
        return found

    def _abandoned_container(self, task: Task, found: TaskExit) -> TaskExit:
        """Remove the container of a supervisor that did not write an outcome."""
        if task_state.read_started(task.folder).boot is not None:
            self._program.remove(container_program.container_name(task.uid))
        if found.user_code is None or found.stopped:
            return found
        return replace(found, user_code=None, platform_code=RUNTIME_FAILED, reason=_LOST)

    def notes(self, task: Task) -> tuple[NewEvent, ...]:
        fresh = self._notes.read_new(task)
        if any(note.reason == in_container.SERVED for note in fresh):
            with contextlib.suppress(FileNotFoundError):
                (task.folder / ssh.FOLDER / ssh.READY).touch(mode=0o600)
        return fresh

    def _remove_abandoned(self) -> None:
        """Remove containers without a runner; raise if the engine cannot be used at all."""
        found = self._program.containers(self._settings.home)
        self._program.remove(
            *(name for name, folder in found.items() if not task_state.is_alive(Path(folder)))
        )


class DockerEngine(ContainerEngine):
    dialect = DOCKER


class PodmanEngine(ContainerEngine):
    dialect = PODMAN


class ContainerNotes:
    """The events that containers and their supervisors have written."""

    def __init__(self) -> None:
        self._reported: dict[str, int] = {}  # uid -> the number of notes returned

    def read_new(self, task: Task) -> tuple[NewEvent, ...]:
        """Return the new ones of a task."""
        found = tuple(_read_notes(task.folder / "notes"))
        fresh = found[self._reported.get(task.uid, 0) :]
        if (task.folder / "exit").exists():
            self._reported.pop(task.uid, None)
        elif found:  # otherwise there are none, or they cannot be read now
            self._reported[task.uid] = len(found)
        return fresh


def read_outcome(folder: Path, found: TaskExit) -> TaskExit | None:
    """Return the exit that the supervisor wrote, or None; a job may have changed it."""
    try:
        outcome = fields.mapping(parse(task_state.read_text(folder / "outcome")))
    except ValueError:
        return None
    if "code" not in outcome:
        return None
    reason = "; ".join(words for words in (fields.text(outcome.get("reason")), found.reason) if words)
    code, platform, peak, cpu = (
        fields.whole(outcome.get(name)) for name in ("code", "platform", "peak", "cpu")
    )
    return replace(
        found, user_code=code, platform_code=platform, reason=reason, **task_state.usage(peak, cpu)
    )


def _read_notes(path: Path) -> Iterator[NewEvent]:
    """Yield one event per line: type, reason and message; the container can also write to the file."""
    try:
        with open_regular(path) as file:
            text = file.read(NOTES_READ).decode("utf-8", errors="replace")
    except OSError:
        return
    for line in text.splitlines():
        match = re.fullmatch(r"(Normal|Warning) ([A-Za-z]{1,40}) (.+)", line)
        if match:
            yield NewEvent(match[1], match[2], match[3][:LONGEST_NOTE])


def remove_secrets(folder: Path) -> None:
    """Remove files that may contain secrets, if the supervisor has not done so."""
    for name in SECRET:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            shutil.rmtree(folder / name)


if TYPE_CHECKING:
    _ARE_ENGINES: tuple[type[Engine], ...] = (DockerEngine, PodmanEngine)
