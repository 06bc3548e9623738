"""Supervise one task's container, from its image to its removal: a script that a task's runner runs.

    python -I -S container_supervisor.py FOLDER

It needs only the standard library. ``container.json`` in FOLDER has the program and its arguments. The script
passes on the container's output as its own, so that the runner keeps the logs, holds the lock and notices the
end as for any process; TERM stops the container. It writes the result to ``outcome`` and events to ``notes``.
It does not poll: it sleeps until the container ends.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import math
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from typing import IO, TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

FAILED = 125  # exit code if the task has none
KILLED, TERMINATED = 137, 143
BY_DAEMON = (KILLED, TERMINATED, 255)  # exit codes of containers that ended with their daemon or machine
SHORTAGES = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)  # of a disk that is full or broken
NOTES_READ = 1 << 16  # bytes
PAUSE = 0.5  # seconds between retries
LONGEST_PAUSE = 8.0  # seconds between attempts to attach, each of which may write a line to the log
ATTACHED = 30.0  # seconds after which an attempt to attach has succeeded
ASK_LIMIT = 10.0  # seconds to send TERM to a container
LAST_LIMIT = 10.0  # seconds for the program to kill its container, and again to notice its end

NODE_LOST, REMOVED_OUTSIDE, OUT_OF_MEMORY = -1001, -101, -1200
NOT_CREATED, NOT_PERMITTED, NO_SHELL, NOT_STARTED, NO_GPU = -1201, -1202, -1203, -1204, -1205
NO_IMAGE = 254
DAEMON_LOST = "its daemon was down; output from that time may be missing"
START_FAILURES = (
    (NO_GPU, ("nvidia", "could not select device driver", "unresolvable cdi devices")),
    (NOT_PERMITTED, ("permission denied",)),
    (NO_SHELL, ("executable file not found", "no such file or directory")),
)
"""Texts in the errors of a container that did not start, and the platform's codes for them."""
USAGE = {
    "memory.peak": ("peak", 1),
    "memory/memory.max_usage_in_bytes": ("peak", 1),
    "cpu.stat usage_usec": ("cpu", 1000),
    "cpuacct/cpuacct.usage": ("cpu", 10**6),
}
"""What a container notes that it used, and the number of its units in a byte or a millisecond."""


class ContainerPlan(NamedTuple):
    """The content of ``container.json``."""

    program: str
    name: str
    image: str
    wanted: str  # full name of the image to pull
    options: list[str]  # options of the program's ``create``
    command: list[str]
    removal: list[str]
    memory_mb: int
    grace: float
    call_limit: float
    pull_limit: float
    patience: float  # seconds to wait for a daemon that is down


class ContainerState(NamedTuple):
    """What the program tells about a container."""

    is_running: bool
    code: int
    has_started: bool
    is_out_of_memory: bool
    error: str

    @classmethod
    def read(cls, answer: str) -> ContainerState:
        """Read the last line of an answer; raise ValueError if it is something else."""
        lines = answer.strip().splitlines()
        found = json.loads(lines[-1] if lines else "")
        if not isinstance(found, dict) or not isinstance(found.get("ExitCode"), int):
            raise ValueError("not the state of a container")
        is_new = found.get("Status") in ("created", "configured", "initialized")
        has_started = not is_new and not str(found.get("StartedAt")).startswith("0001-")
        flags = bool(found.get("Running")), found["ExitCode"], has_started, bool(found.get("OOMKilled"))
        return cls(*flags, str(found.get("Error") or ""))


class ContainerFailed(Exception):
    """Raised when the container fails: the platform's exit code, and the reason."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class StopRequested(Exception):
    """Raised when the task is stopped before its container starts."""


class SignalWaiter:
    """Sleeps until a stop is requested or a child process ends."""

    def __init__(self) -> None:
        self.term = False
        self._end, wake = os.pipe()
        for end in (self._end, wake):
            os.set_blocking(end, False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, self._on_signal)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    def _on_signal(self, number: int, _frame: object) -> None:
        if number != signal.SIGCHLD:
            self.term = True

    def sleep(self, seconds: float | None) -> None:
        select.select([self._end], [], [], None if seconds is None else max(0.0, seconds))
        with contextlib.suppress(BlockingIOError):
            os.read(self._end, 4096)


class Supervisor:
    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.signals = SignalWaiter()
        self.plan = self.when_possible(self.read_plan)
        self.kill_at: float | None = None  # when to kill the container
        self.is_asked = False  # TERM was sent
        self.is_killed = False
        self.is_removed = False  # because killing it had no effect

    def run(self) -> int:
        """Run the container, from the image to the removal; return the exit code."""
        outcome: dict[str, Any]
        try:
            self.create()
            self.check_stop()
            outcome = self.run_container()
        except ContainerFailed as err:
            outcome = {"code": None, "platform": err.code, "reason": str(err)}
        except StopRequested:
            outcome = {"code": None, "reason": "was stopped before its container started"}
        outcome |= self.usage()
        self.remove()
        self.remove_secrets("runtime", "registry")
        self.when_possible(lambda: self.write("outcome", json.dumps(outcome)))
        code = outcome["code"]
        return code if code is not None else TERMINATED if self.signals.term else FAILED

    # Image and container

    def create(self) -> None:
        plan = self.plan
        code, output = self.create_from(plan.image)
        if code and is_missing(output):
            self.pull()
            code, output = self.create_from(plan.wanted)
        self.remove_secrets("registry")
        if code:
            raise ContainerFailed(NOT_CREATED, f"its container could not be created: {error_line(output)}")

    def create_from(self, image: str) -> tuple[int, str]:
        """Create the container once."""
        words = ("create", *self.plan.options, image, *self.plan.command)
        code, output = self.call_daemon(*words, limit=self.plan.call_limit)
        if code and "name" in output and "already in use" in output:
            code = 0  # by a request whose answer was lost: no other container has this name
        return code, output

    def pull(self) -> None:
        """Pull the image, with the job's credentials if it has any."""
        plan = self.plan
        self.note("Normal", "Pulling", f"pulling the image {plan.wanted}, which is not on this machine")
        login = os.path.join(self.folder, "registry")
        own = {"DOCKER_CONFIG": login, "REGISTRY_AUTH_FILE": os.path.join(login, "config.json")}
        began = time.monotonic()
        if not os.path.isdir(login):
            own = {}
        code, output = self.call_daemon("pull", plan.wanted, limit=plan.pull_limit, environment=own)
        if code:
            raise ContainerFailed(
                NO_IMAGE, f"its image {plan.wanted} could not be pulled: {error_line(output)}"
            )
        self.note("Normal", "Pulled", f"pulled the image {plan.wanted} in {time.monotonic() - began:.1f} s")

    # Running container

    def run_container(self) -> dict[str, Any]:
        """Start the container and wait for its end, also across a restart of its daemon."""
        code = self.start()
        is_back = False  # it was running after its daemon was down; podman's `attach` returns another code
        give_up, pause = math.inf, PAUSE
        while (code or is_back) and not self.is_removed:
            state = self.inspect()
            if not state.is_running:
                return self.outcome_of(state, was_lost=state.code != code and not is_back)
            is_back = True
            if give_up == math.inf:
                give_up, pause = time.monotonic() + self.plan.patience, PAUSE
                self.note("Warning", "DaemonLost", DAEMON_LOST)
            elif time.monotonic() > give_up:
                raise ContainerFailed(NODE_LOST, "lost its container's monitor (conmon or containerd-shim)")
            else:
                self.signals.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
            began = time.monotonic()
            code = self.watch("attach", "--no-stdin", "--sig-proxy=false", self.plan.name)
            if time.monotonic() - began > ATTACHED:
                give_up = math.inf
        return {"code": KILLED if self.is_removed else 0}

    def start(self) -> int:
        """Start the container, and wait until the program ends; repeat it if nothing has begun."""
        give_up = math.inf
        while True:
            code = self.watch("start", "--attach", self.plan.name)
            was_asked = code >= 0 and not is_unreachable(self.when_possible(self.stderr))
            if not code or was_asked or self.is_removed or time.monotonic() > give_up:
                return code
            state = self.inspect()
            if state.has_started or state.error:
                return code
            give_up = min(give_up, time.monotonic() + self.plan.patience)
            self.signals.sleep(PAUSE)
            self.check_stop()

    def outcome_of(self, state: ContainerState, was_lost: bool) -> dict[str, Any]:
        """Return the outcome of a container that did not succeed."""
        code = state.code
        if not state.has_started:
            output = state.error or self.when_possible(self.stderr)
            raise ContainerFailed(start_failure(output), f"its container did not start: {error_line(output)}")
        if code and (state.is_out_of_memory or self.is_noted("OutOfMemory")):
            amount = f"the {self.plan.memory_mb} MB of memory" if self.plan.memory_mb else "the memory"
            reached = self.usage().get("peak", 0) >> 20
            reason = f"it used more than {amount} that it asked for"
            reason += f" (it reached {reached} MB)" if reached else ""
            return {"code": code, "platform": OUT_OF_MEMORY, "reason": reason}
        has_ended = bool(self.usage())  # the command; its first process notes this last
        if was_lost and code in BY_DAEMON and not (has_ended or self.signals.term):
            raise ContainerFailed(NODE_LOST, f"ended with its daemon, which was restarted (exit code {code})")
        return {"code": code}

    def watch(self, *arguments: str) -> int:
        """Run the program with this script's output until it ends; pass on a stop request."""
        process = self.spawn(arguments, None)
        pause = self.advance()
        while (code := process.poll()) is None:
            self.signals.sleep(pause)
            pause = self.advance()  # the process may end meanwhile, so it is polled before a sleep
            if self.is_removed:
                process.kill()
        return code

    def advance(self) -> float | None:
        """Stop the container, or kill it; return the seconds until the next step.

        The grace period begins once TERM was sent, which takes a while on a busy machine.
        """
        if not self.signals.term:
            return None
        if self.kill_at is None:
            self.kill_at = time.monotonic() + ASK_LIMIT
        if not self.is_asked and self.send_term(self.kill_at - time.monotonic()):
            self.is_asked, self.kill_at = True, time.monotonic() + self.plan.grace
        rest = self.kill_at - time.monotonic()
        if rest > 0:
            return rest if self.is_asked else min(rest, PAUSE)
        if not self.is_killed:  # a container that has ended meanwhile keeps its exit code
            self.call("kill", "--signal", "KILL", self.plan.name, limit=LAST_LIMIT, stoppable=False)
            self.is_asked = self.is_killed = True
            self.kill_at = time.monotonic() + LAST_LIMIT
            return LAST_LIMIT
        self.remove()
        self.is_removed = True
        return 0

    def send_term(self, seconds: float) -> bool:
        """Send TERM to all its processes, as to the process group of any other task."""
        # Its first process, which is not signalled, is ours and ends with the command.
        if seconds <= 0:
            return False
        code, _ = self.call(
            "exec", self.plan.name, "/bin/sh", "-c", "kill -TERM -1", limit=seconds, stoppable=False
        )
        return code == 0

    def inspect(self) -> ContainerState:
        """Return the container's state; wait for a daemon that is being restarted."""
        give_up = time.monotonic() + self.plan.patience
        while True:
            code, output = self.call(
                "inspect", "--type", "container", "--format", "{{json .State}}", self.plan.name,
                limit=self.plan.call_limit, stoppable=False,
            )  # fmt: skip
            if code == 0:
                try:
                    return ContainerState.read(output)
                except (ValueError, RecursionError) as err:
                    text = error_line(output)
                    raise ContainerFailed(NODE_LOST, f"its state could not be read: {text}") from err
            if "no such" in output.lower():
                raise ContainerFailed(REMOVED_OUTSIDE, "its container was removed from outside")
            if time.monotonic() > give_up or self.signals.term:
                raise ContainerFailed(NODE_LOST, f"lost its daemon: {error_line(output)}")
            self.signals.sleep(PAUSE)

    def remove(self) -> None:
        """Remove the container; if its daemon is down, the next server does it."""
        self.call(*self.plan.removal, self.plan.name, limit=self.plan.call_limit, stoppable=False)

    # The program

    def call_daemon(
        self, *arguments: str, limit: float, environment: dict[str, str] | None = None
    ) -> tuple[int, str]:
        """Run the program; repeat it if it was killed, or if its daemon is down or restarted meanwhile."""
        give_up = math.inf
        while True:
            code, output = self.call(*arguments, limit=limit, environment=environment)
            now = time.monotonic()
            if not code or not (code < 0 or is_unreachable(output)) or now > give_up:
                return code, output
            give_up = min(give_up, now + self.plan.patience)
            self.signals.sleep(PAUSE)
            self.check_stop()

    def check_stop(self) -> None:
        if self.signals.term:
            raise StopRequested

    def call(
        self,
        *arguments: str,
        limit: float,
        stoppable: bool = True,
        environment: dict[str, str] | None = None,
    ) -> tuple[int, str]:
        """Run the program until it ends or the limit is reached; return its exit code and output.

        The exit code is negative only if others have killed the program.
        """
        with scratch_file() as file:
            process = self.spawn(arguments, file, environment)
            end = time.monotonic() + limit
            while process.poll() is None and time.monotonic() < end and not (stoppable and self.signals.term):
                self.signals.sleep(end - time.monotonic())
            is_late = process.poll() is None
            process.kill()
            code = process.wait()
            if stoppable:
                self.check_stop()
            file.seek(0)
            output = file.read().decode(errors="replace")
        return (FAILED, f"no answer within {limit:g} s") if is_late else (code, output)

    def spawn(
        self, arguments: tuple[str, ...], output: IO[bytes] | None, environment: dict[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start the program in a new session, so that it does not get the TERM for this script."""
        return subprocess.Popen(
            [self.plan.program, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT if output else None,
            env={**os.environ, **(environment or {})},
            cwd=self.folder,
            start_new_session=True,
        )

    # The task's folder

    def when_possible(self, action: Callable[[], T]) -> T:
        """Do something with files; while the disk is full or broken, try again every second."""
        while True:
            try:
                return action()
            except OSError as err:
                if err.errno not in SHORTAGES:
                    raise
                self.signals.sleep(1)

    def read_plan(self) -> ContainerPlan:
        with open(os.path.join(self.folder, "container.json"), encoding="utf-8") as file:
            return ContainerPlan(**json.load(file))

    def note(self, type: str, reason: str, message: str) -> None:
        """Write a note; it is lost if the disk is full or broken."""
        path = os.path.join(self.folder, "notes")
        with contextlib.suppress(OSError), open(path, "a", encoding="utf-8") as file:
            file.write(f"{type} {reason} {message}\n")

    def is_noted(self, reason: str) -> bool:
        """Whether the container wrote this note; not every podman reports running out of memory."""
        return any(words[1:2] == [reason] for words in self.when_possible(self.read_notes))

    def usage(self) -> dict[str, int]:
        """Return the memory in bytes and the CPU time in milliseconds that the container has noted."""
        found: dict[str, int] = {}
        for words in self.when_possible(self.read_notes):
            name, unit = USAGE.get(" ".join(words[1:-1]), ("", 1))
            if words[:1] == ["Usage"] and name and words[-1].isdecimal() and len(words[-1]) < 19:
                found[name] = int(words[-1]) // unit
        return found

    def read_notes(self) -> list[list[str]]:
        """Return the words of the last lines; the container can write any amount to the file."""
        with open(os.path.join(self.folder, "notes"), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - NOTES_READ))
            lines = file.read(NOTES_READ).decode(errors="replace").splitlines()
        return [line.split() for line in lines]

    def stderr(self) -> str:
        with open(os.path.join(self.folder, "logs", "stderr"), "rb") as file:
            return file.read(1 << 16).decode(errors="replace")

    def remove_secrets(self, *names: str) -> None:
        """Remove folders that may contain secrets."""
        for name in names:
            path = os.path.join(self.folder, name)
            self.when_possible(functools.partial(remove_folder, path))

    def write(self, name: str, text: str) -> None:
        path = os.path.join(self.folder, name)
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            file.write(text)
        os.rename(f"{path}.new", path)


def scratch_file() -> IO[bytes]:
    """Open a file without a name: in memory, as the disk may be full, or where the system cannot, on disk."""
    if hasattr(os, "memfd_create"):
        return open(os.memfd_create("output"), "w+b")
    return tempfile.TemporaryFile()


def remove_folder(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        for file in os.listdir(path):
            os.unlink(os.path.join(path, file))
        os.rmdir(path)


def is_missing(output: str) -> bool:
    """Whether the output means that the image is missing."""
    words = output.lower()
    return "no such image" in words or "image not known" in words or "unable to find image" in words


def is_unreachable(output: str) -> bool:
    """Whether the output means that the daemon is down, or the connection to it was lost."""
    words = output.lower()
    return any(mark in words for mark in ("cannot connect", "error during connect", "unexpected eof"))


def start_failure(output: str) -> int:
    words = output.lower()
    return next((code for code, marks in START_FAILURES if any(mark in words for mark in marks)), NOT_STARTED)


def error_line(output: str) -> str:
    """Return the most informative line of a program's error output."""
    plain = (re.sub(r"\x1b\[[0-?]*[ -/]*[@-~]", "", line) for line in output.splitlines())
    lines = ["".join(one if one.isprintable() else " " for one in line).strip() for line in plain]
    lines = [line for line in lines if line]
    errors = [line for line in lines if "error" in line.lower() or "denied" in line.lower()] or lines
    line = (errors or ["no reason given"])[-1]
    for prefix in ("Error response from daemon:", "Error:", "docker:"):
        line = line.removeprefix(prefix).strip()
    return line if len(line) <= 500 else f"{line[:500]}…"


def main(arguments: list[str]) -> NoReturn:
    os.umask(0o077)
    sys.exit(Supervisor(arguments[0]).run())


if __name__ == "__main__":
    main(sys.argv[1:])
