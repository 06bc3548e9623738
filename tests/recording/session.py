"""A short session in a shell on a real terminal, as the screens that it showed."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import pyte

COMMANDS = [
    'pai job.sub "python train.py" --sources train.py --job-name digits --follow',
    "pai job.list",
    "pai job.metrics digits --metric accuracy --plot",
]
TRAIN = """
import math, time
from openpai_tasks import runtime

for epoch in range(1, 7):
    time.sleep(0.3)
    loss = math.exp(-0.6 * epoch)
    runtime.log_metric("accuracy", 1 - loss / 2, step=epoch)
    print(f"epoch {epoch}  loss {loss:.3f}  accuracy {1 - loss / 2:.1%}", flush=True)
"""
PROMPT, CURSOR = "$ ", "█"
COLUMNS, LINES = 80, 34
KEY, THOUGHT, SHORTEST, LONGEST, END = 0.05, 0.6, 0.05, 0.8, 8.0  # seconds

Row = tuple[tuple[str, str], ...]
"""Pieces of a line: a text, and its style as words such as ``green bold``."""


@dataclass(frozen=True)
class Frame:
    """What the terminal shows, and for how many seconds."""

    rows: tuple[Row, ...]
    seconds: float


def record(folder: Path, commands: Sequence[str] = COMMANDS) -> list[Frame]:
    """Run the commands on an embedded cluster with its home and project in the folder."""
    project = folder / "digits"
    project.mkdir()
    (project / "train.py").write_text(TRAIN)
    environment = {
        "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
        "HOME": str(folder),
        "OPENPAI_HOME": str(folder / "home"),
        "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring",
        "LANG": "C.UTF-8",
        "TERM": "xterm-256color",
        "PS1": PROMPT.replace("$", "\x1b[32m$\x1b[0m"),
    }
    subprocess.run(
        ["pai", "-q", "cluster.start"], cwd=project, env=environment, check=True, stdout=subprocess.DEVNULL
    )
    try:
        with Terminal(project, environment) as terminal:
            return list(_merged(terminal.play(commands)))
    finally:
        subprocess.run(["pai", "-q", "cluster.stop"], cwd=project, env=environment, check=True)


class Terminal:
    """A shell on a pseudo-terminal, and an emulated screen of what it writes."""

    def __init__(self, project: Path, environment: dict[str, str]) -> None:
        self._screen = pyte.Screen(COLUMNS, LINES)
        self._stream = pyte.ByteStream(self._screen)
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        self._shell = subprocess.Popen(
            ["sh", "-i", "+m"], cwd=project, env=environment, stdin=theirs, stdout=theirs, stderr=theirs
        )
        os.close(theirs)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._ours)  # the shell ends with its terminal
        self._shell.wait()

    def play(self, commands: Sequence[str]) -> Iterator[Frame]:
        """Type each command at a prompt, and yield what is seen until the next prompt."""
        yield from self._until_prompt()
        for command in commands:
            yield self._frame(THOUGHT)
            yield from self._type(command)
            yield self._frame(THOUGHT)
            os.write(self._ours, b"\n")
            yield from self._until_prompt()
        yield self._frame(END)

    def _type(self, command: str) -> Iterator[Frame]:
        for column, key in enumerate(command, len(PROMPT) + 1):
            os.write(self._ours, key.encode())
            while self._screen.cursor.x < column:
                self._read()
            yield self._frame(KEY)

    def _until_prompt(self) -> Iterator[Frame]:
        """Yield screens with the time that they were seen, but not longer than anybody wants to wait."""
        since = time.monotonic()
        while not self._at_prompt():
            frame = self._frame(0)
            self._read()
            now = time.monotonic()
            yield Frame(frame.rows, min(now - since, LONGEST))
            since = now

    def _at_prompt(self) -> bool:
        cursor = self._screen.cursor
        return cursor.x == len(PROMPT) and self._screen.display[cursor.y].rstrip() == PROMPT.rstrip()

    def _read(self) -> None:
        self._stream.feed(os.read(self._ours, 65536))

    def _frame(self, seconds: float) -> Frame:
        return Frame(tuple(self._row(line) for line in range(LINES)), seconds)

    def _row(self, line: int) -> Row:
        cells = [self._cell(line, column) for column in range(COLUMNS)]
        while cells and cells[-1] == (" ", ""):
            cells.pop()
        pieces = groupby(cells, key=lambda cell: cell[1])
        return tuple(("".join(text for text, _ in piece), style) for style, piece in pieces)

    def _cell(self, line: int, column: int) -> tuple[str, str]:
        cursor, char = self._screen.cursor, self._screen.buffer[line][column]
        if (line, column) == (cursor.y, cursor.x) and not cursor.hidden and char.data == " ":
            return CURSOR, "cursor"
        return char.data, " ".join(
            [*([char.fg] if char.fg != "default" else []), *(["bold"] if char.bold else [])]
        )


def _merged(frames: Iterable[Frame]) -> Iterator[Frame]:
    """Yield each screen once, and leave out those that were seen for too short a time."""
    waited = 0.0
    for rows, same in groupby(frames, key=lambda frame: frame.rows):
        waited += sum(frame.seconds for frame in same)
        if waited >= SHORTEST:
            yield Frame(rows, waited)
            waited = 0.0
