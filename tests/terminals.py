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
from pathlib import Path

SGR = re.compile(r"\x1b\[[0-9;]*m")
TOKEN = re.compile(r"\x1b\[1A|\x1b\[2K|\r|\n|[^\x1b\r\n]")


def on_terminal(
    argv: list[str], columns: int = 80, lines: int = 24, cwd: Path | None = None, **environment: str
) -> tuple[int, str]:
    """Run a program with a terminal as stdin, stdout and stderr; return its exit code and output."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    hidden = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "COLORTERM")
    inherited = {name: value for name, value in os.environ.items() if name not in hidden}
    with subprocess.Popen(
        argv,
        cwd=cwd,
        env={**inherited, "TERM": "xterm-256color", **environment},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        shown = b""
        while piece := _read(ours):
            shown += piece
    os.close(ours)
    return process.returncode, shown.decode()


def _read(handle: int) -> bytes:
    try:
        return os.read(handle, 65536)
    except OSError:  # the other end is closed
        return b""


def columns_of(text: str) -> int:
    """Count columns by Unicode's table, not by ours or rich's."""
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def screen(text: str, columns: int) -> list[str]:
    """Return the lines that a terminal finally shows, also scrolled ones; unknown sequences are errors."""
    rows: list[list[str]] = [[]]
    at = place = 0
    plain = SGR.sub("", text)
    tokens = TOKEN.findall(plain)
    assert "".join(tokens) == plain, "a sequence that no view should use"
    for token in tokens:
        if token == "\x1b[1A":
            at = max(0, at - 1)
        elif token == "\x1b[2K":
            rows[at] = []
        elif token == "\r":
            place = 0
        elif token == "\n":
            at += 1
        else:
            wide = columns_of(token)
            if place + wide > columns:
                at, place = at + 1, 0
            rows += [[] for _ in range(at + 1 - len(rows))]
            rows[at] += [" "] * (place - len(rows[at]))
            rows[at][place : place + wide] = [token, *[""] * (wide - 1)]
            place += wide
        rows += [[] for _ in range(at + 1 - len(rows))]
    return ["".join(row).rstrip() for row in rows]
