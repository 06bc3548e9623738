"""The cause of a failure in a program's output: the last Python traceback, or an error of the shell."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence

from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.text.plain import one_line

LONGEST = 300
"""Characters of a cause."""
_HEADER = re.compile(r"(?:Exception Group )?Traceback \(most recent call last\):\s*$")
_FRAME = re.compile(r'  File "([^"\n]{1,1000})", line (\d{1,9})')
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]{0,200}(?=: |:?$)")
_USUAL = re.compile(r"(?:Error|Exception|Warning|Interrupt|Exit|Group|Failure|Timeout|Iteration)$")
_SYNTAX = re.compile(r"(?:SyntaxError|IndentationError|TabError): ")
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib(?:64)?/python\d|/\.pai-runtime/")
_TASK_FOLDER = re.compile(r"/\d{1,9}/[^/]{1,200}-\d{1,9}-\d{1,9}/work/")
_SHELL = re.compile(r"(?:[^:\s]{1,300}: (?:line )?\d{1,9}|(?:/\S{1,20}/)?(?:ba|da|z)?sh): (.+)")
_SHELL_WORDS = ("not found", "No such file", "Permission denied", "cannot execute", "syntax error")
_NO_SCRIPT = re.compile(r"\S{1,300}: (can't open file .+)")
_TIME_LIMIT = re.compile(r"exit code \d+: (the time limit of \d{1,9} s was reached)$")
_PREFIX_CHARACTERS = 100  # before a traceback, as launchers of several processes put it


@dataclass(frozen=True)
class Traceback:
    """The exception at the end of a traceback, its line number in the output, and the frames before it."""

    exception: str
    at: int
    frames: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        place = _own_place(self.frames)
        return f"{one_line(self.exception)[:LONGEST]}{place and f' ({place})'}"


def find_cause(lines: Sequence[str]) -> str:
    """Return the last error that a Python program or a shell reported; empty if there is none."""
    found = last_traceback(lines)
    later = range(len(lines) - 1, found.at if found else -1, -1)
    return next(filter(None, (_shell_error(lines[at]) for at in later)), str(found) if found else "")


def last_traceback(lines: Sequence[str]) -> Traceback | None:
    """Return the last complete traceback; of chained ones, this is the exception that ended the program."""
    for at in range(len(lines) - 1, -1, -1):
        header = _HEADER.search(lines[at], 0, _PREFIX_CHARACTERS + 60)
        if header and (found := _read(lines, at + 1, _prefix(lines[at][: header.start()]))):
            return found
        if _SYNTAX.match(lines[at]) and (found := _syntax_error(lines, at)):
            return found
    return None


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
        if line.startswith("  "):
            if frame := _FRAME.match(line):
                frames.append((frame[1], int(frame[2])))
            continue
        name = _EXCEPTION.match(line) if frames else None
        if name and (_USUAL.search(name[0]) or _is_end(lines[at + 1 : at + 5], prefix)):
            return Traceback(line, at, tuple(frames))
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
            return Traceback(lines[at], at, ((frame[1], int(frame[2])),))
    return None


def _own_place(frames: Sequence[tuple[str, int]]) -> str:
    """Return the file and line of the innermost frame in the user's own sources."""
    own = [(path, line) for path, line in frames if not _LIBRARY.search(path) and not path.startswith("<")]
    if not own:
        return ""
    path, line = own[-1]
    return f"{one_line(_relative(path, own[0][0]))}, line {line}"


def _relative(path: str, script: str) -> str:
    """Return the path relative to the task's working folder, else to the folder of the program's script."""
    found = _TASK_FOLDER.search(path)
    if found:
        return path[found.end() :]
    folder = os.path.dirname(script)
    return path[len(folder) + 1 :] if folder and path.startswith(f"{folder}/") else path


def _shell_error(line: str) -> str:
    return next(filter(None, _shell_errors(line[:LONGEST])), "")


def _shell_errors(line: str) -> Iterator[str]:
    found = _SHELL.fullmatch(line)
    if found and any(word in found[1] for word in _SHELL_WORDS):
        yield one_line(found[1])
    for pattern in (_NO_SCRIPT, _TIME_LIMIT):
        if found := pattern.fullmatch(line):
            yield one_line(found[1])
