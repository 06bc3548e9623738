"""Run a command in many containers at once, or read what they use."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from openpai_tasks.backends.base import Backend
from openpai_tasks.compat import wait_for_event
from openpai_tasks.errors import Lost, PaiError, Unreachable
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.sdk.containers import endpoints, sessions, top
from openpai_tasks.sdk.containers.endpoints import Container, RunningJob
from openpai_tasks.sdk.parallel import map_parallel
from openpai_tasks.sdk.ssh.connection import Remote
from openpai_tasks.settings.config import Settings
from openpai_tasks.storage.copying.progress import Interrupted

MOST_AT_ONCE = 16
POLL_SECONDS = 0.2
LONGEST_LINE = 1 << 20  # longer lines are split
END_SECONDS = 3 * sessions.GRACE_SECONDS + 2 * sessions.SEND_SECONDS  # for all commands to end after Ctrl-C

OnLine = Callable[[str, bytes], object]
"""Called with a container's label and a line of its output."""


@dataclass(frozen=True)
class CommandResult:
    """How the command ended in one container; ``error`` is set if it could not run."""

    container: str
    code: int
    error: str = ""


class Fanout:
    """Selected containers of a job, each with a connection that is opened when first needed."""

    def __init__(
        self, client: Backend, found: RunningJob, containers: Sequence[Container], settings: Settings
    ) -> None:
        self._client, self._found, self._settings = client, found, settings
        self.containers = tuple(containers)
        self._remotes: dict[str, Remote] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> Fanout:
        return self

    def __exit__(self, *exc: object) -> None:
        for remote in list(self._remotes.values()):
            remote.close()

    def run(self, command: str, out: OnLine, err: OnLine) -> list[CommandResult]:
        """Run the command in all containers; Ctrl-C, TERM and output without a reader end it everywhere."""
        ended: dict[str, CommandResult] = {}
        failures: list[Exception] = []
        stop, slots = threading.Event(), threading.BoundedSemaphore(MOST_AT_ONCE)

        def work(container: Container, done: threading.Event) -> None:
            try:
                with slots:
                    ended[container.label] = self._run(container, command, out, err, stop)
            except Exception as failure:  # of `out` or `err`
                failures.append(failure)
                stop.set()
            finally:
                done.set()

        # Not Thread.join: after a Ctrl-C in it, a running thread may look finished.
        waited = [(one, threading.Event()) for one in self.containers]
        for pair in waited:
            threading.Thread(target=work, args=pair, daemon=True).start()
        try:
            for _, done in waited:
                while not wait_for_event(done, POLL_SECONDS):
                    pass
        except (KeyboardInterrupt, SystemExit):
            stop.set()
            limit = time.monotonic() + END_SECONDS
            for _, done in waited:
                wait_for_event(done, limit - time.monotonic())
            raise
        if failures:
            raise failures[0]
        return [ended[one.label] for one in self.containers]

    def _run(
        self, container: Container, command: str, out: OnLine, err: OnLine, stop: threading.Event
    ) -> CommandResult:
        label = container.label
        lines = _LineBuffer(label, out), _LineBuffer(label, err)
        try:
            if stop.is_set():
                raise Interrupted("interrupted")
            remote = self._remote(container, lambda line: err(label, line.encode()))
            code = sessions.run_command(remote, command, lines[0].add, lines[1].add, stop=stop)
            return CommandResult(label, code)
        except Lost as err_:
            error = endpoints.explain_lost(self._client, self._found, container, err_)
            return CommandResult(label, error.exit_code, str(error))
        except PaiError as err_:
            return CommandResult(label, err_.exit_code, str(err_))
        finally:
            for one in lines:
                one.end()

    def renew(self) -> None:
        """Look the containers up again, as a restarted task has a new one."""
        try:
            found = endpoints.reach(self._client, self._found.job.key, self._settings)
        except Unreachable:
            return  # none now; looking at one reports why
        now = {one.label: one for one in found.containers}
        for before in self.containers:
            after = now.get(before.label, before)
            if after.attempt != before.attempt:
                with self._lock:
                    remote = self._remotes.pop(before.label, None)
                if remote is not None:
                    remote.close()
        self._found = found
        self.containers = tuple(now.get(one.label, one) for one in self.containers)

    def look(self) -> list[top.ContainerUsage]:
        """Return what each container uses, within a time limit for all."""

        def late(container: Container) -> top.ContainerUsage:
            return top.ContainerUsage(container.label, error=f"no answer within {top.ANSWER_SECONDS:g} s")

        return map_parallel(self._usage, self.containers, top.ANSWER_SECONDS, late)

    def _usage(self, container: Container) -> top.ContainerUsage:
        try:
            return top.read_usage(self._remote(container), container.label)
        except PaiError as err:
            return top.ContainerUsage(container.label, error=str(err))

    def _remote(self, container: Container, say: Callable[[str], object] | None = None) -> Remote:
        """Return the connection; with ``say``, wait for a container that is starting."""
        with self._lock:
            there = self._remotes.get(container.label)
        if there is not None and there.is_open:
            return there
        arguments = (self._client, self._found, container, self._settings)
        made = endpoints.open_when_ready(*arguments, say) if say else endpoints.open_remote(*arguments)
        with self._lock:
            self._remotes[container.label] = made
        return made


class _LineBuffer:
    """Splits output into lines, so that those of several containers do not mix."""

    def __init__(self, label: str, on_line: OnLine) -> None:
        self._label, self._on_line, self._rest = label, on_line, bytearray()

    def add(self, piece: bytes) -> None:
        *lines, last = piece.split(b"\n")
        for line in lines:
            self._on_line(self._label, bytes(self._rest) + line)
            self._rest.clear()
        self._rest += last
        if len(self._rest) > LONGEST_LINE:
            self.end()

    def end(self) -> None:
        if self._rest:
            self._on_line(self._label, bytes(self._rest))
            self._rest.clear()
