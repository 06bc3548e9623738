"""Wildcards, matched in linear time, however many stars a pattern has."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Sequence

Part = Callable[[str], bool] | None
"""Returns whether one name of a path matches; None matches any number of names."""


def matches(name: str, pattern: str) -> bool:
    """Return whether a name matches a shell pattern (``*``, ``?``, ``[a-z]``, ``[!a]``)."""
    return fnmatch.fnmatchcase(name, pattern)


def compile_name(pattern: str, read_set: Callable[[str, int], tuple[str, int]]) -> re.Pattern[str]:
    """Return the expression for a whole name; raise ValueError for a malformed pattern.

    ``read_set`` returns the expression for the set of characters after a ``[``, and the position after it:
    its rules differ between programs.
    """
    pieces, at = [""], 0
    while at < len(pattern):
        letter = pattern[at]
        at += 1
        if letter == "*":
            pieces.append("")
        elif letter == "?":
            pieces[-1] += "."
        elif letter == "[":
            letters, at = read_set(pattern, at)
            pieces[-1] += letters
        else:
            if letter == "\\":
                letter, at = read_letter(pattern, at)
            pieces[-1] += re.escape(letter)
    return _compile(pieces)


def read_letter(pattern: str, at: int) -> tuple[str, int]:
    """Return the character at a position, and the next position."""
    if at >= len(pattern):
        raise ValueError("syntax error in pattern")
    return pattern[at], at + 1


def _compile(pieces: Sequence[str]) -> re.Pattern[str]:
    """Return the expression for a whole name: these expressions of fixed length, with a star between them.

    The first place where a piece fits is as good as any later one: a lookahead finds it, and none is tried
    again.
    """
    *start, end = pieces
    text = "".join(start[:1])
    for number, piece in enumerate(filter(None, start[1:])):
        text += f"(?=(?P<g{number}>.*?{piece}))(?P=g{number})"
    return re.compile(f"{text}.*{end}" if start else end, re.DOTALL)


def matches_path(names: Sequence[str], pattern: Sequence[Part]) -> bool:
    """Return whether all names of a path match; only the last part that takes any number is tried again."""
    at = position = first = 0
    star = -1
    while position < len(names):
        part = pattern[at] if at < len(pattern) else _nothing
        if part is None:
            if at + 2 == len(pattern) and (last := pattern[-1]) is not None:
                return last(names[-1])  # most rules of ignore files
            at, star, first = at + 1, at, position
        elif part(names[position]):
            at, position = at + 1, position + 1
        elif star >= 0:
            first += 1
            at, position = star + 1, first
        else:
            return False
    return all(part is None for part in pattern[at:])


def _nothing(name: str) -> bool:
    return False
