"""Boxes around tracebacks and errors, as rich and Typer draw them, rewritten as plain lines."""

from __future__ import annotations

import re
from collections.abc import Sequence

TRACEBACK = "Traceback (most recent call last)"
_TOP = re.compile(rf"[╭+][─-]{{1,500}} ({re.escape(TRACEBACK)}|Error) [─-]{{1,500}}[╮+]\s*$")
_ROW = re.compile(r"[│|] (.*) [│|]\s*$")
_BORDER = tuple("╭│╰+|")
_FRAME = re.compile(r"(/.{1,1000}):(\d{1,9})(?: ?in (.{1,200}))?$")  # no space: the place filled a row
_LONGEST = 500
"""Lines of a box; one that is longer stays as it is."""
_MOST_LINES = 10
"""Lines of a message below a box."""


def without_boxes(lines: Sequence[str]) -> list[str]:
    """Return the lines with tracebacks as Python prints them, and errors as ``Error: ...``."""
    found: list[str] = []
    at = 0
    while at < len(lines):
        top = _TOP.search(lines[at]) if lines[at].rstrip().endswith(("─╮", "-+")) else None
        end = _end(lines, at, lines[at][: top.start()]) if top else 0
        if not top or not end:
            found.append(lines[at])
            at += 1
            continue
        prefix, width = lines[at][: top.start()], len(top[0].rstrip())
        own = (line[len(prefix) :] for line in lines[at + 1 : end] if line.startswith(prefix))
        rows = [row[1] for row in map(_ROW.match, own) if row]
        at = end + 1
        if top[1] == TRACEBACK:
            found += [f"{prefix}{line}" for line in _traceback(rows)]
            message, at = _message(lines, at, prefix, width)
            found += [f"{prefix}{message}"] if message else []
        else:
            found.append(f"{prefix}Error: {_joined([row.rstrip() for row in rows], width - 4)}")
    return found


def _end(lines: Sequence[str], top: int, prefix: str) -> int:
    """Return the number of the last line of a box; 0 if it has none."""
    bottoms = (f"{prefix}╰", f"{prefix}+-")
    following = range(top + 1, min(len(lines), top + _LONGEST))
    return next((at for at in following if lines[at].startswith(bottoms)), 0)


def _traceback(rows: Sequence[str]) -> list[str]:
    """Return the frames in the rows of a box: places, which may be wrapped, and code, which is indented."""
    found, place = [f"{TRACEBACK}:"], list[str]()
    for row in (*rows, ""):
        if row.strip() and (place or row.startswith("/")):
            place.append(row.rstrip())
            continue
        frame = _FRAME.match(_joined(place, len(rows[0]) if rows else 0)) if place else None
        if frame:
            found.append(f'  File "{frame[1]}", line {frame[2]}, in {frame[3] or "?"}')
        place = []
    return found


def _message(lines: Sequence[str], at: int, prefix: str, width: int) -> tuple[str, int]:
    """Return the exception below a box, unwrapped, and the number of the line after it."""
    while at < len(lines) and lines[at].startswith(tuple(prefix + mark for mark in _BORDER)):
        at += 1  # a syntax error has a box of its own
    wrapped: list[str] = []
    for line in lines[at : at + _MOST_LINES]:
        own = line.removeprefix(prefix).rstrip()
        left = width - len(wrapped[-1]) if wrapped else 0  # negative on a screen wider than the box
        is_wrapped = wrapped and 0 <= left <= len(own.partition(" ")[0])
        if not own or not line.startswith(prefix) or (wrapped and not is_wrapped):
            break
        wrapped.append(own)
    return _joined(wrapped, width), at + len(wrapped)


def _joined(rows: Sequence[str], width: int) -> str:
    """Return wrapped rows as one line; a word that was longer than a row was cut."""
    text = ""
    for row in rows:
        text += row if len(row) >= width and " " not in row else f"{row} "
    return text.rstrip()
