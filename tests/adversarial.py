"""Texts made to mislead a regular expression: what it repeats, again and again, and then no match."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any

try:
    from re import _constants as codes  # type: ignore[attr-defined]
    from re import _parser as parser  # type: ignore[attr-defined]
except ImportError:  # Python 3.10
    import sre_constants as codes
    import sre_parse as parser

MANY = 50  # a part that may be repeated more often can be slow
ENDS = ("", "\n", "\x00!")
CATEGORIES = {
    codes.CATEGORY_DIGIT: "1",
    codes.CATEGORY_NOT_DIGIT: "x",
    codes.CATEGORY_SPACE: " ",
    codes.CATEGORY_NOT_SPACE: "x",
    codes.CATEGORY_WORD: "a",
    codes.CATEGORY_NOT_WORD: "-",
}


def texts(pattern: re.Pattern[Any], length: int) -> Iterator[str]:
    """Yield texts of about this length: a start that fits, and a part that fits again and again."""
    yield from dict.fromkeys(
        (start + part * (length // len(part)))[:length] + end
        for start, part in dict.fromkeys(_repeated(parser.parse(pattern.pattern, pattern.flags)))
        for end in ENDS
    )


def _repeated(tree: Any) -> Iterator[tuple[str, str]]:
    """Yield what to begin with, and what to repeat after it."""
    for nodes, before in _sequences(tree, ""):
        pieces = [_example([node]) for node in nodes]
        edges = [0, *(at for at, node in enumerate(nodes) if _is_long(node)), len(nodes)]
        for first, last in itertools.combinations(sorted({*edges, *(at + 1 for at in edges[1:-1])}), 2):
            if part := "".join(pieces[first:last]):
                yield before + "".join(pieces[:first]), part
                yield "", part
    for letter in " a1\n/":
        yield "", letter


def _sequences(tree: Any, before: str) -> Iterator[tuple[list[Any], str]]:
    """Yield each sequence of parts in the pattern, and an example of what is before it."""
    nodes = list(tree)
    yield nodes, before
    for at, (code, value) in enumerate(nodes):
        start = before + _example(nodes[:at])
        for inner in _inner(code, value):
            yield from _sequences(inner, start)


def _inner(code: Any, value: Any) -> list[Any]:
    if code in (codes.MAX_REPEAT, codes.MIN_REPEAT, getattr(codes, "POSSESSIVE_REPEAT", None)):
        return [value[2]]
    if code is codes.SUBPATTERN:
        return [value[3]]
    if code is codes.BRANCH:
        return list(value[1])
    if code is codes.ASSERT:
        return [value[1]]
    if code is codes.GROUPREF_EXISTS:
        return [one for one in value[1:] if one]
    return [value] if code is getattr(codes, "ATOMIC_GROUP", None) else []


def _is_long(node: Any) -> bool:
    code, value = node
    is_repeat = code in (codes.MAX_REPEAT, codes.MIN_REPEAT) and value[1] > MANY
    return is_repeat or any(_is_long(inner) for one in _inner(code, value) for inner in one)


def _example(nodes: Any) -> str:
    """Return a short text that fits the parts, or nearly."""
    return "".join(_one_example(code, value) for code, value in nodes)


def _one_example(code: Any, value: Any) -> str:
    if code is codes.LITERAL:
        return chr(value)
    if code is codes.NOT_LITERAL:
        return "a" if value != ord("a") else "b"
    if code is codes.ANY:
        return "a"
    if code is codes.IN:
        return _member(value)
    if code is codes.BRANCH:
        return _example(value[1][0])
    inner = _inner(code, value)
    if code in (codes.MAX_REPEAT, codes.MIN_REPEAT):
        return _example(inner[0]) * min(max(value[0], 1), MANY)
    return _example(inner[0]) if inner and code is not codes.ASSERT else ""


def _member(members: Any) -> str:
    """Return a character of a set, of another that is not in it."""
    if members[0][0] is not codes.NEGATE:
        code, value = members[0]
        return _in_set(code, value)
    excluded = re.compile(f"[{''.join(_in_class(code, value) for code, value in members[1:])}]")
    return next((letter for letter in "a1 -/.:<é" if not excluded.match(letter)), "a")


def _in_set(code: Any, value: Any) -> str:
    if code is codes.CATEGORY:
        return CATEGORIES.get(value, "a")
    return chr(value[0] if code is codes.RANGE else value)


def _in_class(code: Any, value: Any) -> str:
    if code is codes.CATEGORY:
        name = str(value)
        letter = {"DIGIT": "d", "SPACE": "s", "WORD": "w"}[name.rpartition("_")[2]]
        return f"\\{letter.upper() if '_NOT_' in name else letter}"
    if code is codes.RANGE:
        return f"{re.escape(chr(value[0]))}-{re.escape(chr(value[1]))}"
    return re.escape(chr(value))
