"""Tasks as processes of this machine, each under a runner that outlives the server.

What is known of a task is in its folder (see runner.py), so a new server takes up where the last one was:
``started`` was made: it has begun; the lock is held: it runs; ``exit`` is there: it is over.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from openpai_tasks.errors import ConfigError
from openpai_tasks.server import ssh
from openpai_tasks.server.engines import Exit, Launch, Note, leftovers, runner, traces
from openpai_tasks.server.engines.bell import bell_path
from openpai_tasks.server.engines.forker import Forker
from openpai_tasks.server.engines.machine import Machine
from openpai_tasks.server.ssh import layout
from openpai_tasks.server.state.records import Task
from openpai_tasks.settings import home

LOGS = ("stdout", "stderr", "all")
RUNTIME_FAILED = 256
NODE_LOST = -1001
PATIENCE = 10.0  # seconds for a runner to begin before another one is asked for
ASKED_AT_MOST = 3
TOGETHER = 20  # tasks that are asked for at once


@dataclass(frozen=True)
class Asked:
    """A runner was asked for: when, of which process, and for the how manieth time."""

    when: float
    forker: int
    times: int


NEVER = Asked(0, 0, 0)
GRACE = (
    30.0  # seconds of a task that is asked to end, as of a pod on the cluster: its results are put away then
)


class ProcessEngine:
    name = "process"
    uses_images = False

    def __init__(
        self, folder: Path, machine: Machine, storages: Mapping[str, Path] | None = None, grace: float = GRACE
    ) -> None:
        """``folder`` holds the jobs' folders; below each storage's path every user has a folder."""
        shell = shutil.which("bash") or "/bin/sh"
        self._storages = dict(storages or {})
        self._boot = machine.boot
        self._shell = shell
        self._told: set[str] = set()  # uids of tasks whose ssh service failed
        self._command = [sys.executable, "-I", "-S", runner.__file__, shell]
        self._command += [str(grace), str(bell_path(folder.absolute())), machine.boot]
        self._forker: Forker | None = None
        self._asked: dict[str, Asked] = {}  # by uid
        self._shared: Mapping[str, str] | None = None  # what was written last
        self._failed: dict[str, str] = {}  # uid -> why it could not even be tried

    def start(self, *launches: Launch) -> None:
        """A few are asked for at a time: the first run while the last are being prepared."""
        waiting = [launch for launch in launches if not traces.began(launch.folder)]
        for first in range(0, len(waiting), TOGETHER):
            ready = [launch for launch in waiting[first : first + TOGETHER] if self._prepared(launch)]
            try:
                self._ask({launch.uid: launch.folder for launch in ready})
            except OSError as err:
                for launch in ready:
                    self._failed[launch.uid] = f"could not be started: {err.strerror}"

    def _prepared(self, launch: Launch) -> bool:
        try:
            self._prepare(launch)
        except OSError as err:
            self._failed[launch.uid] = f"could not be started: {err.strerror}: {launch.folder}"
        except ConfigError as err:
            self._failed[launch.uid] = f"could not be started: {err}"
        return launch.uid not in self._failed

    def poll(self, task: Task) -> Exit | None:
        found = self._poll(task)
        if found is None:
            return None
        self._asked.pop(task.uid, None)
        self._failed.pop(task.uid, None)
        self._told.discard(task.uid)
        _forget_scripts(task.folder)
        failed = bool(found.user_code) and not found.stopped
        return replace(found, log=traces.read_end(task.folder / "logs" / "all")) if failed else found

    def stop(self, task: Task) -> None:
        if not self._cancel(task.folder) and traces.alive(task.folder):
            pid = traces.started(task.folder)[0]
            if pid:  # it has taken its place and may be about to write its number: then the next time
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGTERM)

    def notes(self, task: Task) -> tuple[Note, ...]:
        """Why it has no ssh service, when that could not begin."""
        why = "" if task.uid in self._told else ssh.failure(task.folder)
        if not why:
            return ()
        self._told.add(task.uid)
        return (Note("Warning", ssh.NOT_SERVED, f"there is no ssh service: {why}"),)

    def logs(self, task: Task) -> dict[str, Path]:
        paths = {name: task.folder / "logs" / name for name in LOGS}
        return {name: path for name, path in paths.items() if path.exists()}

    def close(self) -> None:
        if self._forker:
            self._forker.close()
            self._forker = None

    def _poll(self, task: Task) -> Exit | None:
        done = traces.read_exit(task.folder)
        if done:
            return done
        if not traces.began(task.folder):
            return self._wait_for_runner(task)
        if traces.alive(task.folder):
            return None
        return traces.read_exit(task.folder) or self._abandoned(
            task
        )  # it may have ended between the two looks

    def _abandoned(self, task: Task) -> Exit:
        """The runner is gone and has not said how the task ended."""
        boot, group = traces.started(task.folder)[1], traces.read_number(task.folder / "group")
        if boot is None:
            return Exit(None, "was stopped before it began", RUNTIME_FAILED, stopped=True)
        if boot != self._boot:
            return Exit(None, "was running when the machine was restarted", NODE_LOST)
        leftovers.kill(task.uid, group)
        note = traces.last_line(task.folder / "runner.log")
        return Exit(None, f"lost its runner: {note or 'it was killed'}", RUNTIME_FAILED)

    def _wait_for_runner(self, task: Task) -> Exit | None:
        """A runner was asked for and has not begun: ask again a few times, then make sure it never does."""
        asked, failure = self._asked.get(task.uid, NEVER), self._failed.get(task.uid)
        if failure is None and self._may_yet_begin(asked):
            return None
        if failure is None and asked.times < ASKED_AT_MOST:
            self._ask_again(task)
            return None
        if task.folder.is_dir() and not self._cancel(task.folder):
            return None
        return Exit(None, failure or "could not be started: its runner did not begin", RUNTIME_FAILED)

    def _may_yet_begin(self, asked: Asked) -> bool:
        forker = self._forker
        alive = forker is not None and forker.pid == asked.forker and forker.is_alive()
        return alive and time.monotonic() - asked.when < PATIENCE

    def _ask_again(self, task: Task) -> None:
        try:
            self._ask({task.uid: task.folder})
        except OSError as err:
            self._failed[task.uid] = f"could not be started: {err.strerror}"

    def _cancel(self, folder: Path) -> bool:
        """Take the runner's place, so that none can begin; False when one has begun."""
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            (folder / "started").touch(mode=0o600, exist_ok=False)
        except FileExistsError:
            return False
        return True

    def _ask(self, folders: Mapping[str, Path]) -> None:
        """Have a runner forked for each of these tasks, by uid."""
        request = b"".join(os.fsencode(folder.absolute()) + b"\0" for folder in folders.values())
        try:
            forker = self._send(request)
        except BrokenPipeError:
            self.close()
            forker = self._send(request)
        for uid in folders:
            times = self._asked.get(uid, NEVER).times + 1
            self._asked[uid] = Asked(time.monotonic(), forker, times)

    def _send(self, request: bytes) -> int:
        if self._forker and not self._forker.is_alive():
            self.close()
        if self._forker is None:
            self._forker = Forker(self._command)
        self._forker.send(request)
        return self._forker.pid

    def _prepare(self, launch: Launch) -> None:
        """Lay out the task's folder; done again, it makes the same."""
        home.make_private(launch.folder / "work")
        (launch.folder / "logs").mkdir(mode=0o700, exist_ok=True)
        (launch.folder / "mounts").mkdir(mode=0o700, exist_ok=True)
        self._mount(launch)
        self._share(launch)
        write_file(launch.folder / "environment", _variables(self._with_ssh(launch)))
        for name, text in launch.scripts.items():
            write_file(launch.folder / name, text + "\n")

    def _with_ssh(self, launch: Launch) -> dict[str, str]:
        """Have the ssh service run beside the task, if it is to have one; the task's own variables."""
        login = launch.ssh
        if login is None:
            return launch.environment
        command = layout.lay_out(launch.folder, login, self._shell)
        write_file(launch.folder / "beside", "".join(f"{word}\0" for word in command))
        path = launch.environment.get("PATH") or launch.shared.get("PATH", "")
        return {**launch.environment, **layout.variables(launch.folder, login, path)}

    def _share(self, launch: Launch) -> None:
        """Variables that all tasks beside this one have, written once for all of them."""
        if launch.shared and self._shared is not launch.shared:
            write_file(launch.folder.parent / "environment", _variables(launch.shared))
            self._shared = launch.shared

    def _mount(self, launch: Launch) -> None:
        """Links under ``mounts`` stand for what a cluster would mount at the root."""
        if launch.storages is None or launch.user in ("", ".", "..") or "/" in launch.user:
            return
        wanted = [(mount.name, mount.path) for mount in launch.storages]
        for name, path in wanted or [(name, f"/mnt/{name}") for name in self._storages]:
            if name in self._storages:
                own = home.make_private(self._storages[name].absolute() / launch.user)
                _link(mount_point(launch.folder, path), own)


def mount_point(folder: Path, path: str) -> Path:
    """Where a mount path of a document is below a task's folder."""
    parts = [part for part in PurePosixPath(path).parts if part not in ("/", "//", "..")]
    return folder.joinpath("mounts", *parts)


def _forget_scripts(folder: Path) -> None:
    """They may hold secrets, and this task is over: another try writes its own."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        for name in os.listdir(folder):
            if name.startswith("command"):
                (folder / name).unlink(missing_ok=True)


def _link(link: Path, target: Path) -> None:
    link.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        link.symlink_to(target, target_is_directory=True)


def _variables(variables: Mapping[str, str]) -> str:
    return "".join(f"{name}={value}\0" for name, value in variables.items())


def write_file(path: Path, text: str) -> None:
    """Whole or not at all, since a runner may read it while a new server writes it again."""
    new = path.with_name(f"{path.name}.new")
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(handle, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
        file.write(text)
    new.replace(path)
