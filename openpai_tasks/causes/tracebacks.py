"""Python tracebacks in the output of a program, also in the middle of other output."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from openpai_tasks.lazy_dataclass import dataclass

LONGEST = 300
"""Characters of a cause."""
MOST_READ = 50
"""Tracebacks that are read."""
_HEADER = re.compile(r"(?:Exception Group |Original )?Traceback \(most recent call last\):\s*$")
_FRAME = re.compile(r'(?:  |> )File "([^"\n]{1,1000})", line (\d{1,9})')  # loguru marks one with >
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]{0,200}(?=: |:?$)")
_USUAL = re.compile(r"(?:Error|Exception|Warning|Interrupt|Exit|Group|Failure|Timeout|Iteration)$")
_SYNTAX = re.compile(r"(?:SyntaxError|IndentationError|TabError): ")
_LIBRARY = re.compile(
    r"/(?:site|dist)-packages/|/lib(?:64)?/python\d|/\.pai-runtime/|^/(?!.*/work/)(?:.*/)?bin/[^/.]+$"
)
_TASK_FOLDER = re.compile(r"/\d{1,9}/[^/]{1,200}-\d{1,9}-\d{1,9}/work/")
_CONSEQUENCE = re.compile(
    r"ChildFailedError|CalledProcessError|BrokenProcessPool|Connection (?:closed|reset) by peer"
    r"|[Rr]emote process (?:exited|has terminated)|SIGTERM"
)
_PREFIX_CHARACTERS = 100  # before a traceback, as launchers of several processes put it


@dataclass(frozen=True)
class Traceback:
    """The exception at the end of a traceback, its line number in the output, and the frames before it.

    ``start`` is the line number of the header, or of the first frame if there is none.
    """

    exception: str
    start: int
    at: int
    frames: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        file, line = self.place
        where = f" ({file}, line {line})" if file else ""
        return f"{shorten(self.exception.rstrip(), max(0, LONGEST - len(where)))}{where}"

    @property
    def is_consequence(self) -> bool:
        """Whether the exception only reports that another process has failed."""
        return bool(_CONSEQUENCE.search(self.exception))

    @property
    def is_start_of_program(self) -> bool:
        """Whether Python could not start another program."""
        return self.frames[-1][0].endswith("/subprocess.py")

    @property
    def place(self) -> tuple[str, int]:
        """The file and line of the innermost frame in the user's own sources; the file may be empty."""
        own = [frame for frame in self.frames if not _LIBRARY.search(frame[0]) and frame[0][0] != "<"]
        return (_relative(own[-1][0], own[0][0]), own[-1][1]) if own else ("", 0)


def last_traceback(lines: Sequence[str]) -> Traceback | None:
    """Return the last complete traceback; of chained ones, this is the exception that ended the program.

    If that only reports the failure of another process, the traceback before it is the one that explains it.
    """
    consequence, left = None, MOST_READ
    for at in range(len(lines) - 1, -1, -1):
        header = _HEADER.search(lines[at], 0, _PREFIX_CHARACTERS + 60) if left else None
        left -= bool(header)
        found = _read(lines, at + 1, _prefix(lines[at][: header.start()])) if header else None
        if not found and _SYNTAX.match(lines[at]):
            found = _syntax_error(lines, at)
        if found and not found.is_consequence and not _repeats_another(lines, at):
            return found
        consequence = consequence or found
    return consequence


def shorten(text: str, longest: int) -> str:
    """Return the text, or its beginning with an ellipsis."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def task_paths_removed(text: str) -> str:
    """Return the text with paths below the task's working folder relative to it."""
    while found := _TASK_FOLDER.search(text):
        start = max(text.rfind(mark, 0, found.start()) for mark in " '\"(:=`") + 1
        text = text[:start] + text[found.end() :]
    return text


def _relative(path: str, script: str) -> str:
    """Return the path relative to the task's working folder, else to the folder of the program's script."""
    found = _TASK_FOLDER.search(path)
    if found:
        return path[found.end() :]
    folder = os.path.dirname(script)
    return path[len(folder) + 1 :] if folder and path.startswith(f"{folder}/") else path


def _repeats_another(lines: Sequence[str], at: int) -> bool:
    """Whether a traceback is that of waiting for a worker process, whose own one is quoted before it."""
    return at >= 4 and lines[at - 4].endswith('"""') and "direct cause" in lines[at - 2]


def _prefix(before: str) -> str:
    """Return what the lines after a header begin with; in exception groups, ``+`` is only before headers."""
    return before.replace("+", "|") if before.strip() == "+" else before


def _read(lines: Sequence[str], start: int, prefix: str) -> Traceback | None:
    """Read frames and the exception after a header; lines of others in between are skipped."""
    frames: list[tuple[str, int]] = []
    for at in range(start, len(lines)):
        if not lines[at].startswith(prefix):
            continue
        line = lines[at][len(prefix) :]
        if line.startswith(("  ", "> ")):
            if frame := _FRAME.match(line):
                frames.append((frame[1], int(frame[2])))
            continue
        name = _EXCEPTION.match(line) if frames else None
        if name and (_USUAL.search(name[0]) or _is_end(lines[at + 1 : at + 5], prefix)):
            return Traceback(line, start - 1, at, tuple(frames))
    return None


def _is_end(following: Sequence[str], prefix: str) -> bool:
    """Whether a traceback has no more lines here, so that an unusual name before them is its exception."""
    own = [line[len(prefix) :] for line in following if line.startswith(prefix)]
    names = filter(None, map(_EXCEPTION.match, own))
    return not any(map(_FRAME.match, own)) and not any(_USUAL.search(name[0]) for name in names)


def _syntax_error(lines: Sequence[str], at: int) -> Traceback | None:
    """Read the error of a script that could not be parsed, which has no header."""
    for before in range(at - 1, max(-1, at - 6), -1):
        if frame := _FRAME.match(lines[before]):
            return Traceback(lines[at], before, at, ((frame[1], int(frame[2])),))
    return None
