"""Views on a terminal: printed once, or redrawn in place; plain text everywhere else."""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING, TextIO

from openpai_tasks import render
from openpai_tasks.tasks.framework import terminal

if TYPE_CHECKING:
    from openpai_tasks.render import View


def print_view(view: View, ages: bool = False) -> None:
    """Print a view as data: fitted and coloured on a terminal, as plain text elsewhere.

    A terminal shows how old times are instead of dates, with ``ages``.
    """
    is_exact = isinstance(view, str) and not isinstance(view, render.Prose)
    if is_exact or not sys.stdout.isatty():
        terminal.put(str(view))
    else:
        _draw(sys.stdout, view, ages)


def say_view(view: View) -> None:
    """Print a view for the user on stderr: fitted and coloured on a terminal, as plain text elsewhere."""
    if sys.stderr.isatty():
        _draw(sys.stderr, view)
    else:
        terminal.say(*str(view).split("\n"), always=True)


def _draw(stream: TextIO, view: View, ages: bool = False) -> None:
    terminal.put_coloured(stream, render.drawing.draw(view, terminal.size(stream).columns, ages))


class LiveView:
    """A view that is redrawn in place on a terminal; elsewhere, a line whenever it changes.

    Messages that are printed meanwhile appear above it. The last view stays, unless ``transient``.
    """

    def __init__(self, stream: TextIO, transient: bool = False, ages: bool = False) -> None:
        self._stream = stream
        self._transient = transient
        self._ages = ages
        self._lines: list[str] = []  # on the screen; the cursor is at the end of the last one
        self._view: View | None = None
        self._last = ""
        self._lock = threading.RLock()  # threads print messages, too

    @property
    def is_drawn(self) -> bool:
        """Whether the stream can be redrawn."""
        return self._stream.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")

    def __enter__(self) -> LiveView:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def show(self, view: View, line: str) -> None:
        """Draw the view over the last one, or print ``line`` if it is new and nothing can be redrawn."""
        if terminal.is_quiet() and self._stream is sys.stderr:
            return
        if self.is_drawn:
            with self._lock:
                if self._view is None:
                    terminal.live_views.append(self._print_above)
                self._view = view
                self._draw()
        elif line != self._last:
            terminal.put_line(self._stream, line)
            self._last = line

    def close(self) -> None:
        """End the drawing: the cursor is below what stays."""
        with self._lock:
            view, self._view = self._view, None
            if view is None:
                return
            terminal.live_views.remove(self._print_above)
            erased = self._erase()
            if not self._transient:  # all of it, also what the terminal had no room for
                erased += (
                    render.drawing.draw(view, terminal.live_size(self._stream).columns, self._ages) + "\n"
                )
            terminal.redraw(self._stream, erased)

    def _draw(self, above: str = "") -> None:
        size = terminal.live_size(self._stream)
        lines = render.drawing.frame(self._view or "", size.columns, size.lines, self._ages)
        if above or lines != self._lines:
            text = self._erase() + above + "\n".join(lines)
            try:
                terminal.redraw(self._stream, text)
            finally:  # Ctrl-C is most often noticed after a write
                self._lines = lines

    def _erase(self) -> str:
        """Return what removes the lines on the screen, which are more if the terminal became narrower."""
        if not self._lines:
            return ""
        columns = terminal.live_size(self._stream).columns
        widths = [render.drawn_width(line) for line in self._lines]
        rows = sum(max(1, -(-wide // columns)) for wide in widths)
        self._lines = []
        return "\r\x1b[2K" + "\x1b[1A\x1b[2K" * (rows - 1)

    def _print_above(self, text: str) -> None:
        with self._lock:
            self._draw(f"{text}\n")
