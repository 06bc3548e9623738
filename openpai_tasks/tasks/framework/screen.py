"""Views on a terminal: printed once, or redrawn in place; plain text everywhere else."""

from __future__ import annotations

import os
import sys
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from openpai_tasks import render
from openpai_tasks.tasks.framework import terminal

if TYPE_CHECKING:
    from rich.live import Live

    from openpai_tasks.render import View


def print_view(view: View) -> None:
    """Print a view as data: fitted and coloured on a terminal, as plain text elsewhere."""
    if isinstance(view, str) or sys.stdout is None or not sys.stdout.isatty():
        terminal.put(str(view))
    else:
        terminal.put_coloured(render.drawing.draw(view))


def say_view(view: View) -> None:
    """Print a view for the user on stderr: fitted and coloured on a terminal, as plain text elsewhere."""
    if sys.stderr is not None and sys.stderr.isatty():
        terminal.say_coloured(render.drawing.draw(view))
    else:
        terminal.say(*str(view).split("\n"), always=True)


class LiveView:
    """A view that is redrawn in place on a terminal; elsewhere, a line whenever it changes.

    Messages that are printed meanwhile appear above it. The last view stays, unless ``transient``.
    """

    def __init__(self, stream: TextIO, transient: bool = False) -> None:
        self._stream = stream
        self._transient = transient
        self._live: Live | None = None
        self._last = ""

    @property
    def is_drawn(self) -> bool:
        """Whether the stream can be redrawn."""
        return self._stream.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")

    def __enter__(self) -> LiveView:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, err: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def show(self, view: View, line: str) -> None:
        """Draw the view over the last one, or print ``line`` if it is new and nothing can be redrawn."""
        if terminal.is_quiet() and self._stream is sys.stderr:
            return
        if self.is_drawn:
            live = self._start()
            live.update(render.drawing.live(view, live.console.width), refresh=True)
        elif line != self._last:
            terminal.put_line(self._stream, line)
            self._last = line

    def close(self) -> None:
        """End the drawing: the cursor is below what stays."""
        live, self._live = self._live, None
        if live is None:
            return
        terminal.live_views.remove(self._print_above)
        if self._transient:
            live.update(render.drawing.unwrapped(""))
        live.stop()

    def _start(self) -> Live:
        if self._live is None:
            from rich.live import Live

            self._live = Live(
                render.drawing.unwrapped(""),
                console=render.drawing.console(terminal.canvas(self._stream)),
                auto_refresh=False,
                transient=self._transient,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            terminal.live_views.add(self._print_above)
            self._live.start()
        return self._live

    def _print_above(self, text: str) -> None:
        if self._live is not None:
            self._live.console.print(render.drawing.unwrapped(text), crop=False)
