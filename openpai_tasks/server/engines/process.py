"""Tasks as processes of this machine, each under a runner that outlives the server.

What is known of a task is in its folder (see runner.py), so a new server takes up where the last one was:
``started`` was made: it has begun; the lock is held: it runs; ``exit`` is there: it is over.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from openpai_tasks import home
from openpai_tasks.errors import ConfigError
from openpai_tasks.server import runner
from openpai_tasks.server.bell import bell_path
from openpai_tasks.server.engines import Exit, Launch, leftovers
from openpai_tasks.server.machine import Machine
from openpai_tasks.server.records import Task

LOGS = ("stdout", "stderr", "all")
RUNTIME_FAILED = 256
NODE_LOST = -1001
PATIENCE = 10.0  # seconds for a runner to begin before another one is asked for
ASKED_AT_MOST = 3


class ProcessEngine:
    name = "process"
    uses_images = False

    def __init__(
        self, folder: Path, machine: Machine, storages: Mapping[str, Path] | None = None, grace: float = 5.0
    ) -> None:
        """``folder`` holds the jobs' folders; below each storage's path every user has a folder."""
        shell = shutil.which("bash") or "/bin/sh"
        self._storages = dict(storages or {})
        self._boot = machine.boot
        self._command = [sys.executable, "-I", "-S", runner.__file__, shell]
        self._command += [str(grace), str(bell_path(folder.absolute())), machine.boot]
        self._forker: subprocess.Popen[bytes] | None = None
        self._asked: dict[str, tuple[float, int]] = {}  # uid -> when, how often
        self._failed: dict[str, str] = {}  # uid -> why it could not even be tried

    def start(self, launch: Launch) -> None:
        if _began(launch.folder):
            return
        try:
            self._prepare(launch)
            self._ask(launch.uid, launch.folder)
        except OSError as err:
            self._failed[launch.uid] = f"could not be started: {err.strerror}: {launch.folder}"
        except ConfigError as err:
            self._failed[launch.uid] = f"could not be started: {err}"

    def poll(self, task: Task) -> Exit | None:
        found = self._poll(task)
        if found:
            self._asked.pop(task.uid, None)
            self._failed.pop(task.uid, None)
        return found

    def stop(self, task: Task) -> None:
        if not self._cancel(task.folder) and _alive(task.folder):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(_started(task.folder)[0], signal.SIGTERM)

    def logs(self, task: Task) -> dict[str, Path]:
        paths = {name: task.folder / "logs" / name for name in LOGS}
        return {name: path for name, path in paths.items() if path.exists()}

    def close(self) -> None:
        if self._forker and self._forker.stdin:
            with contextlib.suppress(BrokenPipeError):
                self._forker.stdin.close()
            self._forker.wait()
            self._forker = None

    def _poll(self, task: Task) -> Exit | None:
        done = _exit(task.folder)
        if done:
            return done
        if not _began(task.folder):
            return self._wait_for_runner(task)
        if _alive(task.folder):
            return None
        return _exit(task.folder) or self._abandoned(task)  # it may have ended between the two looks

    def _abandoned(self, task: Task) -> Exit:
        """The runner is gone and has not said how the task ended."""
        boot, group = _started(task.folder)[1], _number(task.folder / "group")
        if boot is None:
            return Exit(None, "was stopped before it began", RUNTIME_FAILED, stopped=True)
        if boot != self._boot:
            return Exit(None, "was running when the machine was restarted", NODE_LOST)
        leftovers.kill(task.uid, group)
        note = _last_line(task.folder / "runner.log")
        return Exit(None, f"lost its runner: {note or 'it was killed'}", RUNTIME_FAILED)

    def _wait_for_runner(self, task: Task) -> Exit | None:
        """A runner was asked for and has not begun: ask again a few times, then make sure it never does."""
        when, times = self._asked.get(task.uid, (0.0, 0))
        failure = self._failed.get(task.uid)
        if failure is None and time.monotonic() - when < PATIENCE:
            return None
        if failure is None and times < ASKED_AT_MOST:
            self._ask_again(task)
            return None
        if task.folder.exists() and not self._cancel(task.folder):
            return None
        return Exit(None, failure or "could not be started: its runner did not begin", RUNTIME_FAILED)

    def _ask_again(self, task: Task) -> None:
        try:
            self._ask(task.uid, task.folder)
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

    def _ask(self, uid: str, folder: Path) -> None:
        self._asked[uid] = time.monotonic(), self._asked.get(uid, (0.0, 0))[1] + 1
        request = os.fsencode(folder.absolute()) + b"\0"
        try:
            self._send(request)
        except BrokenPipeError:
            self.close()
            self._send(request)

    def _send(self, request: bytes) -> None:
        if self._forker is None or self._forker.poll() is not None:
            self._forker = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                bufsize=0,
            )
        assert self._forker.stdin is not None
        self._forker.stdin.write(request)

    def _prepare(self, launch: Launch) -> None:
        """Lay out the task's folder; done again, it makes the same."""
        home.make_private(launch.folder / "work")
        (launch.folder / "logs").mkdir(mode=0o700, exist_ok=True)
        (launch.folder / "mounts").mkdir(mode=0o700, exist_ok=True)
        self._mount(launch)
        variables = "".join(f"{name}={value}\0" for name, value in launch.environment.items())
        _write(launch.folder / "environment", variables)
        _write(launch.folder / "command", launch.command + "\n")

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


def _link(link: Path, target: Path) -> None:
    link.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        link.symlink_to(target, target_is_directory=True)


def _write(path: Path, text: str) -> None:
    """Whole or not at all, since a runner may read it while a new server writes it again."""
    new = path.with_name(f"{path.name}.new")
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(handle, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
        file.write(text)
    new.replace(path)


def _began(folder: Path) -> bool:
    return (folder / "started").exists()


def _alive(folder: Path) -> bool:
    """Whether the runner holds its lock; only asked once it has begun, since asking takes the lock."""
    try:
        handle = os.open(folder / "lock", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def _started(folder: Path) -> tuple[int, str | None]:
    """The runner's process and the machine's start it belongs to, or (0, None) when there was no runner."""
    words = _text(folder / "started").split()
    if len(words) < 2:
        return 0, None
    return int(words[0]), words[2] if len(words) > 2 else ""


def _exit(folder: Path) -> Exit | None:
    """What the runner wrote at the end; a file that a power cut left empty says nothing."""
    values = dict(line.split() for line in _text(folder / "exit").splitlines())
    if "code" not in values:
        return None
    code = int(values["code"])
    lost = int(values["lost"])
    return Exit(
        user_code=code if code >= 0 else 128 - code,
        reason=f"{lost} bytes of its output could not be written" if lost else "",
        stopped=values["stopped"] == "1",
        ended=int(values["ended"]),
    )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdigit() else None


def _last_line(path: Path) -> str:
    return next(reversed(_text(path).strip().splitlines()), "")
