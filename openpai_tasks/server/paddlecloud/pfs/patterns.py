r"""Patterns of names by the rules of PaddleCloud's server: ``*``, ``?``, ``[a-z]``, ``[^a]``.

``\`` takes the next character as it is. A name that exists is never a pattern.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from openpai_tasks import wildcards
from openpai_tasks.server.paddlecloud.pfs.tree import Names, Tree

MAGIC = frozenset("*?[\\")


def matches(tree: Tree, names: Names) -> Iterator[Names]:
    """Yield the files and folders that the names mean, in order."""
    if _exists(tree, names):
        yield names
    elif any(MAGIC & set(name) for name in names):
        yield from _expand(tree, (), names)


def _exists(tree: Tree, names: Names) -> bool:
    try:
        tree.stat(names)
    except OSError:
        return False
    return True


def _expand(tree: Tree, above: Names, rest: Names) -> Iterator[Names]:
    if not rest:
        yield above
        return
    name, below = rest[0], rest[1:]
    if not MAGIC & set(name):
        if _exists(tree, (*above, name)):
            yield from _expand(tree, (*above, name), below)
        return
    wanted = compile_name(name)
    try:
        found = [facts.names[-1] for facts in tree.list(above)]
    except OSError:
        return
    for one in found:
        if wanted.fullmatch(one):
            yield from _expand(tree, (*above, one), below)


def compile_name(pattern: str) -> re.Pattern[str]:
    """Return the regular expression of one name; raise ValueError for a malformed pattern."""
    return wildcards.compile_name(pattern, _group)


def _group(pattern: str, at: int) -> tuple[str, int]:
    text = "["
    if pattern[at : at + 1] == "^":
        text, at = "[^", at + 1
    begun = at
    while pattern[at : at + 1] != "]" or at == begun:
        first, at = _member(pattern, at)
        text += re.escape(first)
        if pattern[at : at + 1] == "-":
            last, at = _member(pattern, at + 1)
            if last < first:
                raise ValueError("syntax error in pattern")
            text += f"-{re.escape(last)}"
    return f"{text}]", at + 1


def _member(pattern: str, at: int) -> tuple[str, int]:
    letter = pattern[at : at + 1]
    if letter in ("", "-", "]"):
        raise ValueError("syntax error in pattern")
    return wildcards.read_letter(pattern, at + 1) if letter == "\\" else (letter, at + 1)
