"""What a copy looks like while it runs."""

from __future__ import annotations

import contextlib
import sys
import threading
import time

from openpai_tasks import exits
from openpai_tasks.lazy import lazy
from openpai_tasks.storage.copying.progress import Interrupted, Watch
from openpai_tasks.tasks.framework import terminal
from openpai_tasks.tasks.framework.base import settings, show
from openpai_tasks.tasks.framework.screen import Screen
from openpai_tasks.tasks.framework.signals import Terminated, terminable

listings = lazy("openpai_tasks.tasks.views.listings")
render = lazy("openpai_tasks.render")

DRAW_SECONDS = 0.1
LINE_SECONDS = 5.0  # where nothing can be drawn over
BAR = 24


class Meter(Watch):
    """Counts files and bytes, and draws them: a bar on a terminal, now and then a line elsewhere."""

    copied = None
    """What a copy that was interrupted has done."""

    def __init__(self, stream=None, names=False):
        super().__init__()
        self._stream = stream or sys.stderr
        self._screen = Screen(self._stream)
        self._pause = DRAW_SECONDS if self._stream.isatty() else LINE_SECONDS
        self._names = names
        self._lock = threading.Lock()
        self._files = self._done = self._removed = self._bytes = self._moved = 0
        self._began = self._drawn = time.monotonic()

    def found(self, size):
        with self._lock:
            self._files, self._bytes = self._files + 1, self._bytes + size

    def moved(self, count):
        with self._lock:
            self._moved += count
            self._draw()

    def ended(self, name, outcome, size):
        with self._lock:
            if outcome == "removed":
                self._removed += 1
            else:
                self._done += 1
            if outcome == "skipped":
                self._moved += size
            if self._names:
                terminal.draw(self._stream, f"{outcome} {render.cell('path', name)}")
            self._draw()

    def interrupted(self, copied):
        self.copied = copied

    def close(self):
        """Take the bar away: the summary says it all."""
        with self._lock:
            self._screen.clear()

    def _draw(self):
        now = time.monotonic()
        if now - self._drawn < self._pause:
            return
        self._drawn = now
        line = self.line(now - self._began)
        self._screen.show(f"{self.bar()} {line}", line)

    def bar(self):
        done, whole = (self._moved, self._bytes) if self._bytes else (self._done, self._files)
        filled = round(BAR * min(1.0, max(0, done) / whole)) if whole else 0
        return "█" * filled + "░" * (BAR - filled)

    def line(self, seconds):
        moved = max(0, self._moved)
        rate = moved / seconds if seconds > 0 else 0.0
        parts = [f"{self._done}/{self._files} files", f"{render.size(moved)} of {render.size(self._bytes)}"]
        parts += [f"{self._removed} removed"] if self._removed else []
        if rate > 0 and not self._removed:  # which comes last, when all bytes are there
            left = max(0, self._bytes - moved) / rate
            parts += [f"{render.size(int(rate))}/s", f"{render.duration(left)} left"]
        return ", ".join(parts)


@contextlib.contextmanager
def metered(names=False):
    """A meter for the time of a copy."""
    meter = Meter(names=names)
    try:
        yield meter
    finally:
        meter.close()


@contextlib.contextmanager
def copying(c, output, names=False):
    """A meter for a copy that can be gone on with: interrupted, it tells what has arrived."""
    with metered(names) as meter:
        try:
            with ended_by(lambda: _what_arrived(meter)):
                yield meter
        finally:
            if meter.copied and settings(c, output=output).output != "table":
                show(c, meter.copied, listings.summary, output)


@contextlib.contextmanager
def ended_by(told):
    """Ctrl-C ends what is done here, and so does SIGTERM; a line says how far it came."""
    try:
        with terminable():
            yield
    except (KeyboardInterrupt, Interrupted) as err:
        code = exits.TERMINATED if isinstance(err, Terminated) else exits.INTERRUPTED
        raise terminal.ending(code, *f"interrupted: {told()}".split("\n")) from err


def _what_arrived(meter):
    if meter.copied is None:
        return "nothing was copied yet"
    return f"{listings.summary(meter.copied)}; run it again, and it continues"
