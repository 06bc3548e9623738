"""Merge the output of several tasks into one stream of labelled lines."""

from __future__ import annotations

import re
from collections.abc import Iterable

from openpai_tasks.text.plain import one_line

LONGEST_PART = 1 << 16
"""Bytes of an unfinished line to hold back; longer lines are passed on in pieces."""

COLOURS = (36, 33, 35, 32, 34, 96, 93, 95, 92, 94)  # of labels, in turn

_SEGMENT = re.compile(rb"([^\r\n]*)([\r\n])")


class Labels:
    """Puts labels before lines.

    Text that ends with a carriage return is written at once, so that progress bars redraw; when another task
    writes, the unfinished line is ended first.
    """

    def __init__(self, coloured: bool = False) -> None:
        self._coloured = coloured
        self._labels: dict[str, bytes] = {}
        self._waiting: dict[str, bytearray] = {}
        self._bars = set[str]()  # tasks whose last line ended with a carriage return
        self._cut = set[str]()  # tasks whose line was ended for another task
        self._writer = ""  # task of the unfinished line
        self._is_returned = False  # whether the cursor is at its start

    def feed(self, task: str, data: bytes) -> bytes:
        """Take a task's output and return what can be written now."""
        waiting = self._waiting.setdefault(task, bytearray())
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        written = b""
        if end:
            written = self._segments(task, bytes(waiting) + data[:end])
            waiting.clear()
            (self._bars.add if data[end - 1 : end] == b"\r" else self._bars.discard)(task)
        waiting += data[end:]
        if len(waiting) >= LONGEST_PART:
            written += self._write(task, bytes(waiting))
            waiting.clear()
        return written

    def pause(self) -> bytes:
        """Return unfinished progress bars, to be shown during a pause."""
        return self._rest(self._bars)

    def end(self) -> bytes:
        """Return all unfinished lines and a final newline."""
        last = self._rest(self._waiting)
        return last + (b"\n" if self._writer else b"")

    def _rest(self, tasks: Iterable[str]) -> bytes:
        found = [(task, self._waiting[task]) for task in self._waiting if task in tasks]
        written = b"".join(self._write(task, bytes(waiting)) for task, waiting in found if waiting)
        for _, waiting in found:
            waiting.clear()
        return written

    def _segments(self, task: str, data: bytes) -> bytes:
        """Label finished lines; after the first one this is a plain replacement."""
        data, written, at = data.replace(b"\r\n", b"\n"), b"", 0
        while not written and at < len(data):
            found = _SEGMENT.match(data, at)
            assert found
            written, at = self._write(task, *found.groups()), found.end()
        if at == len(data):
            return written
        label, last = self._label(task), data[-1:]
        self._writer, self._is_returned = (task, True) if last == b"\r" else ("", False)
        more = data[at:-1].replace(b"\n", b"\n" + label).replace(b"\r", b"\r" + label)
        return written + label + more + last

    def _write(self, task: str, text: bytes, end: bytes = b"") -> bytes:
        """Return one line, or a part of it, with its label where needed."""
        is_same_task = self._writer == task
        was_cut = task in self._cut
        self._cut.discard(task)
        if not text and not is_same_task and (was_cut or end == b"\r"):
            return b""  # its line is already ended, or there is nothing to redraw
        before = b"\n" if self._writer and not is_same_task else b""
        if before:
            self._cut.add(self._writer)
        has_label = not is_same_task or (self._is_returned and bool(text))
        self._writer = "" if end == b"\n" else task
        self._is_returned = end == b"\r"
        return before + (self._label(task) if has_label else b"") + text + end

    def _label(self, task: str) -> bytes:
        if task not in self._labels:
            label, number = f"[{one_line(task)}]", COLOURS[len(self._labels) % len(COLOURS)]
            shown = f"\x1b[{number}m{label}\x1b[0m" if self._coloured else label
            self._labels[task] = f"{shown} ".encode()
        return self._labels[task]
