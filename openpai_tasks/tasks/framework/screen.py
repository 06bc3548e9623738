"""A picture that replaces itself on a terminal, and plain lines everywhere else."""

from __future__ import annotations

from openpai_tasks.tasks.framework import terminal

UP_AND_CLEAR = "\x1b[{lines}F\x1b[J"


class Screen:
    def __init__(self, stream):
        self._stream = stream
        self._lines = 0
        self._last = None

    def show(self, picture, line):
        """Draw ``picture`` over the last one, or print ``line`` where nothing can be drawn over."""
        if not self._stream.isatty():
            if line != self._last:
                terminal.draw(self._stream, line)
            self._last = line
            return
        terminal.draw(self._stream, picture, UP_AND_CLEAR.format(lines=self._lines) if self._lines else "")
        self._lines = picture.count("\n") + 1

    def say(self, line):
        """Tell something that stays, in the place of the picture."""
        self.clear()
        terminal.say(line)

    def clear(self):
        """Take the picture away, to make room for what stays."""
        if self._lines:
            terminal.steer(self._stream, UP_AND_CLEAR.format(lines=self._lines))
        self._lines = 0
