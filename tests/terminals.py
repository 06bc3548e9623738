"""Real terminals for tests: run a program in one, and read its screen."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path

import pyte

from tests import forkserver

SGR = re.compile(r"\x1b\[[0-9;]*m")
OTHER = re.compile(r"\x1b(?!\[1A|\[2K)")


Reaction = str | Callable[[subprocess.Popen[bytes]], object]
"""What is typed, or done to the process, when a text appears."""


def on_terminal(
    argv: list[str],
    columns: int = 80,
    lines: int = 24,
    cwd: Path | None = None,
    reactions: Sequence[tuple[str, Reaction]] = (),
    **environment: str,
) -> tuple[int, str]:
    """Run a program with a terminal as stdin, stdout and stderr; return its exit code and output.

    The ``reactions`` happen one after the other, each when its text appears after the one before.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    hidden = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "COLORTERM")
    inherited = {name: value for name, value in os.environ.items() if name not in hidden}
    known = {**inherited, "TERM": "xterm-256color", **environment}
    streams = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    with _start(argv, cwd or Path.cwd(), known, **streams) as process:
        os.close(theirs)
        shown, at, waiting = b"", 0, list(reactions)
        while piece := _read(ours):
            shown += piece
            while waiting and (found := shown.find(waiting[0][0].encode(), at)) >= 0:
                text, reaction = waiting.pop(0)
                at = found + len(text)
                os.write(ours, reaction.encode()) if isinstance(reaction, str) else reaction(process)
    os.close(ours)
    assert not waiting, f"{waiting[0][0]!r} did not appear in {shown!r}"
    return process.returncode, shown.decode()


def _start(
    argv: list[str], cwd: Path, environment: dict[str, str], **streams: int
) -> subprocess.Popen[bytes]:
    if argv[:-1] == forkserver.CODE:
        return forkserver.start_code(argv[-1], environment, cwd=cwd, **streams)
    return forkserver.start(argv, cwd, environment, text=False, **streams)


def _read(handle: int) -> bytes:
    try:
        return os.read(handle, 65536)
    except OSError:  # the other end is closed
        return b""


def columns_of(text: str) -> int:
    """Count columns by Unicode's table, not by ours or rich's."""
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def screen(text: str, columns: int, lines: int = 24) -> list[str]:
    """Return the lines that a terminal of this size has in the end, with those that it scrolled away.

    Empty lines are left out; a sequence that no view should use is an error.
    """
    assert not OTHER.search(SGR.sub("", text)), "a sequence that no view should use"
    emulated = pyte.HistoryScreen(columns, lines, history=100_000)
    pyte.Stream(emulated).feed(text)
    scrolled = ("".join(row[at].data for at in range(columns)) for row in emulated.history.top)
    return [line.rstrip() for line in (*scrolled, *emulated.display) if line.strip()]


def wrapped(text: str, columns: int) -> list[str]:
    """Return the lines that a terminal makes of a longer one."""
    return [text[at : at + columns].rstrip() for at in range(0, len(text), columns)]
