"""The rules of ``.gitignore`` and ``.paiignore`` files."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from openpai_tasks.errors import PathError
from openpai_tasks.files.regular import read_limited
from openpai_tasks.text.wildcards import Part, compile_name, matches_path, read_letter

LARGEST_FILE, LONGEST_LINE = 1 << 20, 4096  # no path is longer than such a line
MAGIC = frozenset("*?[\\")
CLASSES = {
    "alnum": "a-zA-Z0-9",
    "alpha": "a-zA-Z",
    "blank": " \t",
    "cntrl": "\0-\x1f\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": "!-/:-@\\[-`{-~",
    "space": " \t-\r",
    "upper": "A-Z",
    "xdigit": "0-9A-Fa-f",
}


class _Rule(NamedTuple):
    is_ignored: bool
    only_folders: bool
    parts: tuple[Part, ...]


class IgnoreRules:
    """The rules in one folder, for the paths below it."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._rules = [rule for line in lines if (rule := _parse(line))][::-1]

    def verdict(self, path: str, is_folder: bool) -> bool | None:
        """Return whether a relative path is ignored, by the last rule that matches it; None without one."""
        names = path.split("/")
        for is_ignored, only_folders, parts in self._rules:
            if (is_folder or not only_folders) and matches_path(names, parts):
                return is_ignored
        return None


def read_lines(file: Path) -> list[str]:
    """Return the lines of a file of rules."""
    try:
        lines = read_limited(file, LARGEST_FILE, errors="replace").splitlines()
    except OSError as err:
        raise PathError(f"cannot read {file}: {err.strerror}") from err
    for number, line in enumerate(lines, 1):
        if len(line) > LONGEST_LINE:
            raise PathError(f"{file}, line {number}: longer than {LONGEST_LINE} characters; shorten it")
    return lines


def _parse(line: str) -> _Rule | None:
    """Return the rule; None for a comment, an empty line, and a pattern that git never matches."""
    text = _without_spaces(line)
    if not text or text.startswith("#"):
        return None
    body = text.removeprefix("!")
    path = body.removesuffix("/")
    parts: list[Part] = [] if "/" in path else [None]
    try:
        for name in path.removeprefix("/").split("/") if path else ():
            is_any_depth = len(name) > 1 and not name.strip("*")
            parts.append(None if is_any_depth else _matcher(name))
    except ValueError:
        return None
    if path and parts[-1] is None:
        parts.append(bool)  # all that is inside, but not the folder itself
    return _Rule(body == text, body != path, tuple(parts)) if path else None


def _without_spaces(line: str) -> str:
    """Remove spaces at the end, except one after a backslash."""
    text = line.rstrip()
    is_escaped = (len(text) - len(text.rstrip("\\"))) % 2 == 1
    return line[: len(text) + is_escaped]


def _matcher(pattern: str) -> Part:
    if MAGIC.isdisjoint(pattern):
        return pattern.__eq__
    expression = compile_name(pattern, _members)
    return lambda name: expression.fullmatch(name) is not None


def _members(pattern: str, at: int) -> tuple[str, int]:
    """Return the characters in brackets as an expression, and the position after them."""
    text, begun = "[", at
    if pattern[at : at + 1] in ("!", "^"):
        text, begun = "[^", at + 1
    at = begun
    while pattern[at : at + 1] != "]" or at == begun:
        if pattern.startswith("[:", at):
            name, end, _ = pattern[at + 2 :].partition(":]")
            if not end or name not in CLASSES:
                raise ValueError("unknown class of characters")
            text, at = text + CLASSES[name], at + len(name) + 4
            continue
        first, at = _member(pattern, at)
        if pattern[at : at + 1] == "-" and pattern[at + 1 : at + 2] not in ("", "]"):
            last, at = _member(pattern, at + 1)
            text += f"{re.escape(first)}-{re.escape(last)}" if first <= last else ""
        else:
            text += re.escape(first)
    if text in ("[", "[^"):  # a range such as z-a has no members
        return ("(?!)" if text == "[" else "."), at + 1
    return f"{text}]", at + 1


def _member(pattern: str, at: int) -> tuple[str, int]:
    return read_letter(pattern, at + (pattern[at : at + 1] == "\\"))
