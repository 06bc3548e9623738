"""The progress of a copy, and how it ends when interrupted."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TextIO

from invoke.context import Context

from openpai_tasks import exits, render, sdk
from openpai_tasks.errors import ConfigError, NotFound, PathError
from openpai_tasks.storage.copying.progress import Interrupted, Watch
from openpai_tasks.tasks import views
from openpai_tasks.tasks.framework import terminal
from openpai_tasks.tasks.framework.base import settings, show
from openpai_tasks.tasks.framework.screen import LiveView
from openpai_tasks.tasks.framework.task import Terminated, terminable
from openpai_tasks.text.plurals import counted

if TYPE_CHECKING:
    from pathlib import Path

    from openpai_tasks.backends.base import Backend
    from openpai_tasks.protocol.models import JobInfo
    from openpai_tasks.sdk.files.job_folders import Mounts
    from openpai_tasks.sdk.jobs.outputs import Outputs
    from openpai_tasks.storage.copying.copy import Copied

PREVIEW = {outcome: f"{outcome} " for outcome in ("copied", "skipped", "removed", "failed")}
DRAW_SECONDS = 0.1
LINE_SECONDS = 5.0  # where nothing can be redrawn


class Meter(Watch):
    """Count files and bytes and show them: a bar on a terminal, a line at intervals elsewhere.

    ``words`` begin the line that is printed for each file, by what happened to it; others get none.
    """

    copied: Copied | None = None
    """What an interrupted copy has done."""

    def __init__(self, stream: TextIO | None = None, words: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self._screen = LiveView(stream or sys.stderr, transient=True)
        self._pause = DRAW_SECONDS if self._screen.is_drawn else LINE_SECONDS
        self._words = words or {}
        self._lock = threading.Lock()
        self._files = self._done = self._removed = self._bytes = self._moved = 0
        self._began = self._drawn = time.monotonic()

    def found(self, size: int) -> None:
        with self._lock:
            self._files, self._bytes = self._files + 1, self._bytes + size

    def moved(self, count: int) -> None:
        with self._lock:
            self._moved += count
            self._draw()

    def ended(self, name: str, outcome: str, size: int) -> None:
        with self._lock:
            if outcome == "removed":
                self._removed += 1
            else:
                self._done += 1
            if outcome == "skipped":
                self._moved += size
            if outcome in self._words:
                terminal.say(self._words[outcome] + name)
            self._draw()

    def skipped(self, sizes: Mapping[str, int]) -> None:
        if "skipped" in self._words:
            return super().skipped(sizes)
        count, size = len(sizes), sum(sizes.values())
        with self._lock:
            self._files, self._done = self._files + count, self._done + count
            self._bytes, self._moved = self._bytes + size, self._moved + size
            self._draw()

    def interrupted(self, copied: Copied) -> None:
        self.copied = copied

    def close(self) -> None:
        """Remove the bar: the summary replaces it."""
        with self._lock:
            self._screen.close()

    def _draw(self) -> None:
        now = time.monotonic()
        if now - self._drawn < self._pause:
            return
        self._drawn = now
        line = self.line(now - self._began)
        self._screen.show(render.Bar(self.share(), line), line)

    def share(self) -> float:
        """Return how much is done, from 0 to 1, by bytes or, if all files are empty, by files."""
        done, whole = (self._moved, self._bytes) if self._bytes else (self._done, self._files)
        return min(1.0, max(0, done) / whole) if whole else 0.0

    def line(self, seconds: float) -> str:
        moved = max(0, self._moved)
        rate = moved / seconds if seconds > 0 else 0.0
        of_all = counted(self._files, "file")
        parts = [f"{self._done}/{of_all}", f"{render.size(moved)} of {render.size(self._bytes)}"]
        parts += [f"{self._removed} removed"] if self._removed else []
        if rate > 0 and not self._removed:  # removals come last, when all bytes are copied
            left = max(0, self._bytes - moved) / rate
            parts += [f"{render.size(int(rate))}/s", f"{render.duration(left)} left"]
        return ", ".join(parts)


def find_outputs(client: Backend, jobs: Sequence[str | JobInfo], mounts: Mounts) -> list[Outputs]:
    """Find the outputs of jobs; of several, report those without any and go on."""
    if len(jobs) == 1:
        return [sdk.jobs.find_outputs(client, jobs[0], mounts)]
    found = []
    for job in jobs:
        try:
            found.append(sdk.jobs.find_outputs(client, job, mounts))
        except (ConfigError, NotFound, PathError) as err:
            terminal.say(f"warning: {err}")
    return found


def download(found: Outputs, folder: Path) -> None:
    """Copy a job's output files, and summarise the copy."""
    with contextlib.closing(Meter()) as meter:
        copied = sdk.jobs.download_outputs(found, folder, meter)
    files = counted(len(found.files), "file")
    summary = f"{files} ({render.size(found.size)}) copied to {folder}"
    terminal.say(*views.listings.describe_copy(copied).split("\n") if copied.failed else [summary])
    sdk.files.check_copied(copied)


def run_copy(c: Context, copy: Callable[[Meter], Copied], output: str | None, preview: bool) -> None:
    """Run a copy that can be resumed and show its result, also when interrupted; raise if files failed."""
    try:
        with copying(PREVIEW if preview else None) as meter:
            copied = copy(meter)
    finally:
        if meter.copied and settings(c, output=output).output != "table":
            show(c, meter.copied, views.listings.describe_copy, output)
    show(c, copied, views.listings.describe_copy, output)
    sdk.files.check_copied(copied)


@contextlib.contextmanager
def copying(words: Mapping[str, str] | None = None) -> Iterator[Meter]:
    """Show the progress of a copy that can be resumed, and what is copied if it is interrupted."""
    with contextlib.closing(Meter(words=words)) as meter, report_interrupt(lambda: _copied_so_far(meter)):
        yield meter


@contextlib.contextmanager
def report_interrupt(describe: Callable[[], str]) -> Iterator[None]:
    """End with one line about what is done when Ctrl-C or SIGTERM arrives."""
    try:
        with terminable():
            yield
    except (KeyboardInterrupt, Interrupted) as err:
        code = exits.TERMINATED if isinstance(err, Terminated) else exits.INTERRUPTED
        raise terminal.ending(code, *f"interrupted: {describe()}".split("\n")) from err


def _copied_so_far(meter: Meter) -> str:
    if meter.copied is None:
        return "nothing was copied yet"
    return f"{views.listings.describe_copy(meter.copied)}; run it again to continue"
