"""Tasks in containers of docker or podman, one for each, made from the job's own image.

Every container has a carrier (see carrier.py), and the carrier is a process under a runner. So all that
lets processes outlive the server, start once and be found again does the same here, and a container whose
runner is gone is one that nobody waits for: it is removed.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from openpai_tasks.errors import ConfigError
from openpai_tasks.server import ssh
from openpai_tasks.server.engines import Exit, Launch, Note, creation, leftovers, traces
from openpai_tasks.server.engines.creation import DOCKER, PODMAN, Dialect
from openpai_tasks.server.engines.machine import Machine
from openpai_tasks.server.engines.preparing import SECRET, Workshop, prepare
from openpai_tasks.server.engines.process import GRACE, RUNTIME_FAILED, ProcessEngine
from openpai_tasks.server.engines.program import Program
from openpai_tasks.server.ssh import in_container
from openpai_tasks.server.state.job_files import open_regular
from openpai_tasks.server.state.records import Task

LAST_CARE = 60.0  # seconds of a carrier, besides the grace, to ask, to kill and to remove its container
NOTES_READ = 1 << 16
_LOST = "lost its carrier, which was killed; its container was removed"


class ContainerEngine:
    """One of the two programs; the rest of the server sees no difference from processes."""

    uses_images = True

    def __init__(
        self,
        dialect: Dialect,
        folder: Path,
        machine: Machine,
        storages: Mapping[str, Path] | None = None,
        grace: float = GRACE,
    ) -> None:
        self.name = dialect.name
        self._program = Program(dialect)
        self._workshop = Workshop(
            self._program, str(folder.absolute()), machine.cpus, dict(storages or {}), grace
        )
        self._processes = ProcessEngine(folder, machine, grace=grace + LAST_CARE)
        self._failed: dict[str, str] = {}  # uid -> why it could not even be tried
        self._told: dict[str, int] = {}  # uid -> how many of its notes
        self._sweep()

    def start(self, *launches: Launch) -> None:
        waiting = [launch for launch in launches if not traces.began(launch.folder)]
        self._processes.start(*[ready for launch in waiting if (ready := self._prepared(launch))])

    def _prepared(self, launch: Launch) -> Launch | None:
        try:
            return prepare(launch, self._workshop)
        except OSError as err:
            self._failed[launch.uid] = f"could not be started: {err.strerror}: {launch.folder}"
        except ConfigError as err:
            self._failed[launch.uid] = f"could not be started: {err}"
        return None

    def poll(self, task: Task) -> Exit | None:
        if task.uid in self._failed:
            self._processes.stop(task)  # so that it never begins
            _forget(task.folder)
            return Exit(None, self._failed.pop(task.uid), RUNTIME_FAILED)
        found = self._processes.poll(task)
        if found is None or not (task.folder / "container.json").exists():
            return found
        end = _outcome(task.folder, found) or self._abandoned(task, found)
        if end.platform_code is not None:
            leftovers.kill(task.uid, None)  # a daemon that crashed may have forgotten that it runs
        _forget(task.folder)
        return end

    def _abandoned(self, task: Task, found: Exit) -> Exit:
        """The carrier did not come to its end, so its container may be there yet."""
        if traces.started(task.folder)[1] is not None:
            self._program.remove(creation.container_name(task.uid))
        if found.user_code is None or found.stopped:
            return found
        return replace(found, user_code=None, platform_code=RUNTIME_FAILED, reason=_LOST, log=b"")

    def stop(self, task: Task) -> None:
        self._processes.stop(task)

    def notes(self, task: Task) -> tuple[Note, ...]:
        found = tuple(_read_notes(task.folder / "notes"))
        fresh = found[self._told.pop(task.uid, 0) :]
        if found and not (task.folder / "exit").exists():
            self._told[task.uid] = len(found)
        if any(note.reason == in_container.SERVED for note in fresh):
            with contextlib.suppress(FileNotFoundError):
                (task.folder / ssh.FOLDER / ssh.READY).touch(mode=0o600)
        return fresh

    def logs(self, task: Task) -> dict[str, Path]:
        return self._processes.logs(task)

    def close(self) -> None:
        self._processes.close()

    def _sweep(self) -> None:
        """Remove what was left behind; where the engine is not usable at all, this is where it shows."""
        found = self._program.containers(self._workshop.home)
        self._program.remove(*[one.name for one in found if not traces.alive(Path(one.folder))])


class DockerEngine(ContainerEngine):
    def __init__(self, folder: Path, machine: Machine, storages: Mapping[str, Path] | None = None) -> None:
        super().__init__(DOCKER, folder, machine, storages)


class PodmanEngine(ContainerEngine):
    def __init__(self, folder: Path, machine: Machine, storages: Mapping[str, Path] | None = None) -> None:
        super().__init__(PODMAN, folder, machine, storages)


def _outcome(folder: Path, found: Exit) -> Exit | None:
    """How the carrier says it went, if it came so far."""
    try:
        said = json.loads((folder / "outcome").read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    reason = "; ".join(words for words in (said.get("reason", ""), found.reason) if words)
    code = said["code"]
    log = found.log if code else b""
    return replace(found, user_code=code, platform_code=said.get("platform"), reason=reason, log=log)


def _read_notes(path: Path) -> Iterator[Note]:
    """What stands there, one a line: the type, the reason, and words. The container writes it too."""
    try:
        with open_regular(path) as file:
            text = file.read(NOTES_READ).decode("utf-8", errors="replace")
    except OSError:
        return
    for line in text.splitlines():
        match = re.fullmatch(r"(Normal|Warning) ([A-Za-z]{1,40}) (.{1,1000})", line)
        if match:
            yield Note(*match.groups())


def _forget(folder: Path) -> None:
    """What may hold secrets and is not needed when a task is over; mostly its carrier has done it."""
    for name in SECRET:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(folder / name)
