"""Wrap prose between words; commands in backticks stay on one line, so that they can be copied."""

from __future__ import annotations

import re
from collections.abc import Iterator

from openpai_tasks.text.plain import width

_WORDS = re.compile(r"[^ `]*`[^`]*`[^ `]*|[^ ]+")
_MARK = re.compile(r" *(?:- |\| )?")


def wrap(text: str, columns: int) -> str:
    """Wrap each line of a text to so many columns; quoted lines (``  | ``) stay as they are."""
    return "\n".join(part for line in text.split("\n") for part in wrap_line(line, columns))


def wrap_line(line: str, columns: int) -> Iterator[str]:
    """Yield the lines of a line; a word that is longer than a line stays behind the one before it.

    Further lines are indented as far as the first, also behind the dash of a list.
    """
    mark = _MARK.match(line)
    first = mark[0] if mark else ""
    if first.endswith("| ") or width(line) <= columns:
        yield line
        return
    indent, shown = " " * len(first), first
    for word in _words(line[len(first) :], columns - len(first)):
        is_begun = shown.strip() not in ("", "-")
        if is_begun and width(shown) + 1 + width(word) > columns >= len(first) + width(word):
            yield shown.rstrip()
            shown, is_begun = indent, False
        shown += f" {word}" if is_begun else word
    yield shown


def _words(text: str, room: int) -> Iterator[str]:
    """Yield the words; a command in backticks is one if it fits."""
    for found in _WORDS.findall(text):
        yield from [found] if width(found) <= room else found.split(" ")
