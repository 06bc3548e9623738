"""The same in many containers at once: a command with its output told apart, or a look at what they use."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import Lost, PaiError, TimedOut, Unreachable
from openpai_tasks.interruptible import wait_for_event
from openpai_tasks.sdk.containers import container_end, endpoints, sessions, top
from openpai_tasks.sdk.containers.endpoints import Container, Reach
from openpai_tasks.sdk.parallel import abreast
from openpai_tasks.sdk.ssh.connection import Remote
from openpai_tasks.settings.config import Settings
from openpai_tasks.storage.copying.progress import Interrupted

ABREAST = 16
LOOK_UP = 0.2
LONGEST_LINE = 1 << 20  # a longer one is told as several
LAST_WORDS = 3 * sessions.GRACE  # seconds for all commands to end after Ctrl-C

Line = Callable[[str, bytes], object]
"""Takes the label of a container and a line of its output."""


@dataclass(frozen=True)
class Ended:
    """How the command ended in one container; ``error`` says why it did not even run."""

    container: str
    code: int
    error: str = ""


class Fanout:
    """The containers of a job that are meant, each with its connection, made when it is first needed."""

    def __init__(
        self, client: Backend, found: Reach, containers: Sequence[Container], settings: Settings
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

    def run(self, command: str, out: Line, err: Line) -> list[Ended]:
        """Run the command in all of them; Ctrl-C ends it in all of them, as does TERM."""
        ended: dict[str, Ended] = {}
        stop, places = threading.Event(), threading.BoundedSemaphore(ABREAST)

        def work(container: Container, done: threading.Event) -> None:
            try:
                with places:
                    ended[container.label] = self._run(container, command, out, err, stop)
            finally:
                done.set()

        # Not Thread.join: a Ctrl-C in it can make a thread that runs look as if it was over.
        waited = [(one, threading.Event()) for one in self.containers]
        for pair in waited:
            threading.Thread(target=work, args=pair, daemon=True).start()
        try:
            for _, done in waited:
                while not wait_for_event(done, LOOK_UP):
                    pass
        except (KeyboardInterrupt, SystemExit):
            stop.set()
            _wait_for_all((done for _, done in waited), LAST_WORDS)
            raise
        return [ended[one.label] for one in self.containers]

    def _run(self, container: Container, command: str, out: Line, err: Line, stop: threading.Event) -> Ended:
        label = container.label
        lines = _Lines(label, out), _Lines(label, err)
        try:
            if stop.is_set():
                raise Interrupted("interrupted")
            remote = self._remote(container, lambda line: err(label, line.encode()))
            limits = sessions.Limits(stop=stop)
            code = sessions.run_command(remote, command, lines[0].add, lines[1].add, limits=limits)
            return Ended(label, code)
        except Lost as err_:
            told = container_end.explain_lost(self._client, self._found, container, err_)
            return Ended(label, told.exit_code, str(told))
        except PaiError as err_:
            return Ended(label, err_.exit_code, str(err_))
        finally:
            for one in lines:
                one.end()

    def renew(self) -> None:
        """Take the containers as they are now: a task that was started again has another one."""
        try:
            found = endpoints.reach(self._client, self._found.job.key, self._settings)
        except Unreachable:
            return  # none are there now; who looks at one is told why
        now = {one.label: one for one in found.containers}
        for before in self.containers:
            after = now.get(before.label, before)
            if after.attempt != before.attempt:
                self._forget(before)
        self._found = found
        self.containers = tuple(now.get(one.label, one) for one in self.containers)

    def look(self) -> list[top.Usage]:
        """What each of them uses; one that does not answer holds up nobody."""

        def late(container: Container) -> top.Usage:
            return top.failed(container.label, TimedOut(f"no answer within {top.SECONDS:g} s"))

        return abreast(self._usage, self.containers, top.SECONDS, late)

    def _usage(self, container: Container) -> top.Usage:
        try:
            return top.usage(self._remote(container), container.label)
        except PaiError as err:
            return top.failed(container.label, err)

    def _remote(self, container: Container, tell: Callable[[str], object] | None = None) -> Remote:
        """The connection; who wants to be told can also wait for one that is just starting."""
        with self._lock:
            there = self._remotes.get(container.label)
        if there is not None and there.is_open:
            return there
        way = (self._client, self._found, container, self._settings)
        made = endpoints.open_when_ready(*way, tell) if tell else endpoints.open_remote(*way)
        with self._lock:
            self._remotes[container.label] = made
        return made

    def _forget(self, container: Container) -> None:
        with self._lock:
            remote = self._remotes.pop(container.label, None)
        if remote is not None:
            remote.close()


def _wait_for_all(events: Iterable[threading.Event], seconds: float) -> None:
    limit = time.monotonic() + seconds
    for event in events:
        wait_for_event(event, limit - time.monotonic())


class _Lines:
    """Cuts pieces of output into lines, so that those of several containers do not mix."""

    def __init__(self, label: str, tell: Line) -> None:
        self._label, self._tell, self._rest = label, tell, bytearray()

    def add(self, piece: bytes) -> None:
        *lines, last = piece.split(b"\n")
        for line in lines:
            self._tell(self._label, bytes(self._rest) + line)
            self._rest.clear()
        self._rest += last
        if len(self._rest) > LONGEST_LINE:
            self.end()

    def end(self) -> None:
        if self._rest:
            self._tell(self._label, bytes(self._rest))
            self._rest.clear()
