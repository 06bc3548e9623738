"""A picture that replaces itself on a terminal, and plain lines everywhere else."""

from __future__ import annotations

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
                print(line, file=self._stream, flush=True)
            self._last = line
            return
        if self._lines:
            self._stream.write(UP_AND_CLEAR.format(lines=self._lines))
        print(picture, file=self._stream, flush=True)
        self._lines = picture.count("\n") + 1

    def clear(self):
        """Take the picture away, to make room for what stays."""
        if self._lines:
            self._stream.write(UP_AND_CLEAR.format(lines=self._lines))
            self._stream.flush()
        self._lines = 0
