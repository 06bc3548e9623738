"""Run tasks as processes of this machine, each under a runner that outlives the server.

The state of a task is in its folder (see runner/), so that a new server can continue: if ``started`` exists,
the task has begun; while it is locked, the task runs; if ``exit`` exists, it has ended. Once the end is
recorded, the logs and the files of the job are left.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from openpai_tasks.errors import ConfigError
from openpai_tasks.files import shortages
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.protocol.fields import MALFORMED
from openpai_tasks.server import ssh, variables
from openpai_tasks.server.engines import cgroups, leftovers, runner, task_state
from openpai_tasks.server.engines.base import (
    Engine,
    Launch,
    MemoryLimits,
    TaskExit,
    TaskRunning,
    TaskStatus,
)
from openpai_tasks.server.engines.machine import LocalEngine, Machine
from openpai_tasks.server.engines.runner import gpu_locks, memory
from openpai_tasks.server.engines.runner.task import LINK
from openpai_tasks.server.engines.wakeups import WakePipe, pipe_path
from openpai_tasks.server.job_errors import JOB_ERRORS, describe
from openpai_tasks.server.ssh import layout
from openpai_tasks.server.state.records import NewEvent, Task
from openpai_tasks.server.storages import FOLDER, Mount
from openpai_tasks.settings import home
from openpai_tasks.settings.engines import EngineOptions

log = logging.getLogger(__name__)

RUNTIME_FAILED = 256
NODE_LOST = -1001
BEGIN_SECONDS = 10.0  # seconds for a runner to begin before it is requested again
MOST_REQUESTS = 3
BATCH = 20  # tasks that are requested together
_INPUTS = ("environment", "prologue", "sidecar", memory.FILE, gpu_locks.FILE, LINK, ssh.CRASH)
UNLIMITED = MemoryLimits(False, "left to the engine that uses this one")
_STATE = ("exit", "started")
GRACE = 30.0  # seconds between TERM and KILL, as for pods of OpenPAI, for jobs to save their results


@dataclass(frozen=True)
class RunnerRequest:
    """When a runner was last requested, from which process, and how many times."""

    when: float
    forker: int
    times: int


NEVER = RunnerRequest(0, 0, 0)


class ProcessEngine(LocalEngine):
    name = "process"
    uses_images = False
    mounts_at_root = False
    serves_ssh_in_image = False

    def __init__(
        self,
        folder: Path,
        machine: Machine | None = None,
        grace: float = GRACE,
        limits: bool = True,
        options: EngineOptions | None = None,
    ) -> None:
        """``folder`` contains the jobs' folders.

        Without ``limits``, processes may use more memory than their tasks ask for.
        """
        super().__init__(machine or Machine.detect())
        self._jobs = folder.absolute()
        self.wakeups = WakePipe(pipe_path(home.make_private(self._jobs)))
        self._groups, self.memory = cgroups.task_groups() if limits else (None, UNLIMITED)
        self._shell = shutil.which("bash") or "/bin/sh"
        self._boot = self.machine.boot
        self._ssh_failures: set[str] = set()  # uids of tasks whose failed SSH service was reported
        self._command = [sys.executable, "-I", "-S", runner.SCRIPT, self._shell]
        self._command += [str(grace), str(pipe_path(self._jobs)), self._boot]
        self._forker: Forker | None = None
        self._requests: dict[str, RunnerRequest] = {}  # by uid
        self._shared: Mapping[str, str] | None = None  # the variables written last
        self._failed: dict[str, str] = {}  # uid -> why no runner could be requested
        self._delayed: dict[str, tuple[Launch, str]] = {}  # uid -> what there was no space for, and why
        self._unrequested: dict[str, str] = {}  # uid -> why its runner could not be requested yet

    def start(self, *launches: Launch) -> None:
        """Start in batches, so that the first tasks run while the last ones are prepared."""
        for first in range(0, len(launches), BATCH):
            ready = [launch for launch in launches[first : first + BATCH] if self._try_prepare(launch)]
            if ready:
                self._request({launch.uid: launch.folder for launch in ready})

    def _try_prepare(self, launch: Launch) -> bool:
        """Write the task's folder; if the disk has no space for it, try again with the next poll."""
        self._delayed.pop(launch.uid, None)
        try:
            if task_state.has_begun(launch.folder):
                return False
            self.prepare(launch)
        except (OSError, *JOB_ERRORS) as err:
            cause = shortages.find_shortage(err) or err
            why = f"{cause.strerror}: {launch.folder}" if isinstance(cause, OSError) else describe(err)
            if shortages.is_shortage(cause):
                self._delayed[launch.uid] = launch, why
            else:
                self._failed[launch.uid] = f"could not be started: {why}"
        return launch.uid not in self._failed and launch.uid not in self._delayed

    def start_delayed(self) -> None:
        """Start the tasks for which there was no space before."""
        if self._delayed:
            self.start(*(launch for launch, _ in self._delayed.values()))

    def poll(self, tasks: Sequence[Task]) -> dict[str, TaskStatus]:
        self.start_delayed()
        found: dict[str, TaskStatus] = {}
        for task in tasks:
            try:
                found[task.uid] = self._end(task) or TaskRunning()
            except (OSError, *MALFORMED):  # one task must not hide the others
                log.exception("cannot read the state of task %s", task.uid)
        return found

    def _end(self, task: Task) -> TaskExit | None:
        found = self._poll(task)
        if found is not None:
            self._requests.pop(task.uid, None)
            self._failed.pop(task.uid, None)
            self._delayed.pop(task.uid, None)
            self._unrequested.pop(task.uid, None)
            self._ssh_failures.discard(task.uid)
            self._gpus.release(task.uid)
            remove_inputs(task.folder)
        elif self._gpus.has_claim(task.uid) and task_state.read_started(task.folder).group is not None:
            self._gpus.release_locks(task.uid)
        return found

    def forget(self, task: Task) -> None:
        folder = str(task.folder)
        for name in _STATE:
            with contextlib.suppress(OSError):
                os.unlink(f"{folder}/{name}")
        for name in runner.FOLDERS:
            with contextlib.suppress(OSError):  # it is not empty
                os.rmdir(f"{folder}/{name}")

    def stop(self, task: Task) -> None:
        if not prevent_start(task.folder) and task_state.is_alive(task.folder):
            begun = task_state.read_started(task.folder)
            if begun.pid:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(begun.pid, signal.SIGTERM)
        self._delayed.pop(task.uid, None)

    def notes(self, task: Task) -> tuple[NewEvent, ...]:
        """Return why the task has not started yet, or why its SSH service failed to start, once."""
        _, delay = self._delayed.get(task.uid, (None, self._unrequested.get(task.uid)))
        if delay:
            return (NewEvent("Warning", "StartDelayed", f"cannot start yet: {delay}"),)
        why = "" if task.uid in self._ssh_failures else ssh.failure(task.folder)
        if not why:
            return ()
        self._ssh_failures.add(task.uid)
        return (NewEvent("Warning", ssh.NOT_SERVED, f"there is no ssh service: {why}"),)

    def close(self) -> None:
        self._close_forker()
        self._gpus.close()
        self.wakeups.close()

    def _close_forker(self) -> None:
        if self._forker:
            self._forker.close()
            self._forker = None

    def _poll(self, task: Task) -> TaskExit | None:
        done = task_state.read_exit(task.folder)
        if done:
            return done
        if not task_state.has_begun(task.folder):
            return self._wait_for_runner(task)
        self._unrequested.pop(task.uid, None)
        if task_state.is_alive(task.folder):
            return None
        # It may have ended since the first check.
        return task_state.read_exit(task.folder) or self._abandoned(task)

    def _abandoned(self, task: Task) -> TaskExit:
        """Return the exit of a task whose runner ended without writing one."""
        begun = task_state.read_started(task.folder)
        if begun.boot is None:
            return TaskExit(None, "was stopped before it started", RUNTIME_FAILED, stopped=True)
        if begun.boot != self._boot:
            ended = task_state.last_sign(task.folder)
            return TaskExit(None, "was running when the machine was restarted", NODE_LOST, ended=ended)
        was_running = leftovers.kill(task.uid, begun.group) or self.uses_images  # others run containers
        with contextlib.suppress(ValueError):  # the job has changed its file
            if group := memory.group_of(str(task.folder)):
                group.remove()
        note = task_state.last_line(task.folder / "runner.log")
        ended = None if was_running else task_state.last_sign(task.folder)
        return TaskExit(None, f"lost its runner: {note or 'it was killed'}", RUNTIME_FAILED, ended=ended)

    def _wait_for_runner(self, task: Task) -> TaskExit | None:
        """Request a late runner again a few times, then make sure that it never begins."""
        if task.uid in self._delayed:
            return None
        request, failure = self._requests.get(task.uid, NEVER), self._failed.get(task.uid)
        if failure is None and self._may_yet_begin(request):
            return None
        if failure is None and (why := find_shortage(task.folder)):  # for which a runner waits, too
            self._unrequested[task.uid] = why
            self._requests[task.uid] = RunnerRequest(time.monotonic(), request.forker, request.times)
            return None
        if failure is None and request.times < MOST_REQUESTS:
            self._request({task.uid: task.folder})
            return None
        if task.folder.is_dir() and not prevent_start(task.folder):
            return None
        return TaskExit(None, failure or "could not be started: its runner did not begin", RUNTIME_FAILED)

    def _may_yet_begin(self, request: RunnerRequest) -> bool:
        forker = self._forker
        alive = forker is not None and forker.pid == request.forker and forker.is_alive()
        return alive and time.monotonic() - request.when < BEGIN_SECONDS

    def _request(self, folders: Mapping[str, Path]) -> None:
        """Request a runner for each of these tasks, by uid."""
        request = b"".join(os.fsencode(folder.absolute()) + b"\0" for folder in folders.values())
        try:
            forker = self._send(request)
        except OSError as err:
            if shortages.is_shortage(err):  # the next poll requests them again
                self._unrequested |= dict.fromkeys(folders, f"{err.strerror}")
            else:
                self._failed |= dict.fromkeys(folders, f"could not be started: {err.strerror}")
            return
        for uid in folders:
            self._unrequested.pop(uid, None)
            times = self._requests.get(uid, NEVER).times + 1
            self._requests[uid] = RunnerRequest(time.monotonic(), forker, times)

    def _send(self, request: bytes) -> int:
        """Send a request to the forker, or to a new one if it has ended; return its pid."""
        if self._forker and not self._forker.is_alive():
            self._close_forker()
        if self._forker is None:
            self._forker = Forker(self._command)
        try:
            self._forker.send(request)
        except BrokenPipeError:
            self._close_forker()
            self._forker = Forker(self._command)
            self._forker.send(request)
        return self._forker.pid

    def prepare(self, launch: Launch) -> None:
        """Write the task's folder, in which its runner makes others; repeating this changes nothing."""
        folder = home.make_private(launch.folder)
        self._mount(launch)
        self._share(launch)
        write_file(f"{folder}/environment", _variables(self._with_ssh(launch)))
        limit = launch.container.memory_mb if launch.container.is_memory_asked else 0
        if limit and self._groups:
            write_file(f"{folder}/{memory.FILE}", f"{limit << 20}\n{self._groups}/openpai-{launch.uid}\n")
        if uuids := self._gpus.uuids_to_lock(launch.uid, launch.container.gpus):
            write_file(f"{folder}/{gpu_locks.FILE}", "".join(f"{uuid}\0" for uuid in uuids))
        if launch.link and self.can_link(launch.link):
            write_file(f"{folder}/{LINK}", f"{launch.link}\0")
        for name, text in launch.scripts.items():
            write_file(f"{folder}/{name}", text + "\n")

    def can_link(self, path: str) -> bool:
        """Try it in another process: the kernel's rules and modules decide."""
        if os.path.lexists(path):
            return False
        program = os.path.join(os.path.dirname(runner.SCRIPT), "own_root.py")
        command = [sys.executable, "-I", "-S", program, str(self._jobs), path]
        return not subprocess.run(command, capture_output=True, check=False).returncode

    def _with_ssh(self, launch: Launch) -> dict[str, str]:
        """Set up the SSH service to run next to the task; return the task's variables."""
        login = launch.ssh
        if login is None:
            return launch.environment
        command = layout.write_files(launch.folder, login, self._shell)
        write_file(launch.folder / "sidecar", "".join(f"{word}\0" for word in command))
        path = launch.environment.get("PATH") or launch.shared.get("PATH", "")
        return {**launch.environment, **layout.variables(launch.folder, login, path)}

    def _share(self, launch: Launch) -> None:
        """Write the variables that all tasks of the attempt share, once."""
        if launch.shared and self._shared is not launch.shared:
            write_file(launch.folder.parent / "environment", _variables(launch.shared))
            self._shared = launch.shared

    def _mount(self, launch: Launch) -> None:
        """Link storages below ``mounts``, where OpenPAI mounts them at the root."""
        for mount in launch.mounts:
            link = mount_point(launch.folder, mount.path)
            home.make_private(link.parent)
            with contextlib.suppress(FileExistsError):
                link.symlink_to(local_folder(mount), target_is_directory=True)


def local_folder(mount: Mount) -> Path:
    """Return the folder of a mount on this machine; make that of a user if it is missing."""
    if mount.kind != FOLDER:
        raise ConfigError(f"cannot mount {mount.address}: only folders of this machine can be mounted here")
    return home.make_private(Path(mount.address)) if mount.is_private else Path(mount.address)


def find_shortage(folder: Path) -> str:
    """Return why nothing can be written into a folder now; empty if it can, or if the folder is gone."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"0")
    except OSError as err:
        return str(err.strerror) if shortages.is_shortage(err) else ""
    return ""


def prevent_start(folder: Path) -> bool:
    """Create ``started`` in the runner's place, so that none can begin; return False if one has begun."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / "started").touch(mode=0o600, exist_ok=False)
    except FileExistsError:
        return False
    return True


def mount_point(folder: Path, path: str) -> Path:
    """Return the location of a document's mount path below a task's folder."""
    if "\0" in path:
        raise ConfigError(f"cannot mount a storage at {path!r}")
    parts = [part for part in PurePosixPath(path).parts if part not in ("/", "//", "..")]
    return folder.joinpath("mounts", *parts)


def remove_inputs(folder: Path) -> None:
    """Remove what the runner has read, which may contain secrets; another attempt writes its own."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        for name in os.listdir(folder):
            if name in _INPUTS or name.startswith("command"):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(f"{folder}/{name}")


def _variables(variables: Mapping[str, str]) -> str:
    return "".join(f"{name}={value}\0" for name, value in variables.items())


def write_file(path: str | Path, text: str) -> None:
    """Write a file that no runner reads before it is complete.

    A runner may read it while a new server writes it again, so an existing file is replaced.
    """
    content = text.encode("utf-8", "surrogateescape")
    try:
        _write_new(path, content, os.O_EXCL)
    except FileExistsError:
        _write_new(f"{path}.new", content, os.O_TRUNC)
        os.replace(f"{path}.new", path)


def _write_new(path: str | Path, content: bytes, flag: int) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | flag, 0o600)
    try:
        with open(handle, "wb") as file:
            file.write(content)
    except OSError:  # the disk is full: a part of a script must never run
        with contextlib.suppress(OSError):
            os.unlink(path)
        raise


class Forker:
    """The process that forks runners (see runner/), controlled through a pipe; closing the pipe ends it.

    It has the variables of tasks, and init as its parent, as tasks can read the variables of ancestors.
    """

    def __init__(self, command: Sequence[str]) -> None:
        end, stdout = os.pipe()  # closed when the forker ends, which alone holds the other side
        try:
            with subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=stdout,
                stderr=subprocess.DEVNULL,
                env=variables.for_tasks(os.environ),
                start_new_session=True,
                bufsize=0,
            ) as process:
                assert process.stdin is not None
                self._requests, process.stdin = process.stdin, None
        except BaseException:
            os.close(end)
            raise
        finally:
            os.close(stdout)
        self._end = end
        self.pid = int(os.read(end, 20) or 0)  # written once it is a child of init

    def is_alive(self) -> bool:
        poller = select.poll()
        poller.register(self._end, select.POLLIN)
        return not poller.poll(0)

    def send(self, request: bytes) -> None:
        self._requests.write(request)

    def close(self) -> None:
        """End the process and wait for it; its runners continue."""
        with contextlib.suppress(BrokenPipeError):
            self._requests.close()
        while os.read(self._end, 1):
            pass
        os.close(self._end)


if TYPE_CHECKING:
    _IS_ENGINE: type[Engine] = ProcessEngine
