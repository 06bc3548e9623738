"""Read a command line with options as Go programs take them, in any order with the other words.

``-x v``, ``-x=v``, ``--x v`` and ``--x=v`` are the same; a switch is ``-x`` or ``-x=false``. ``--`` ends the
options. The value of an option that is given twice is the last one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from openpai_tasks.paddlecloud.request import Option
from openpai_tasks.tasks.framework.suggestions import suggestion

Value = bool | str | int

_TRUE = ("1", "t", "T", "true", "TRUE", "True")
_FALSE = ("0", "f", "F", "false", "FALSE", "False")


class UsageError(Exception):
    """Raised for a command line that cannot be read; the text is one line for the user."""


class Line(NamedTuple):
    """The words of a command line, and the values of its options by name, and how they were written."""

    words: list[str]
    values: dict[str, Value]
    spelling: dict[str, str]


def read_line(argv: Iterable[str], options: Iterable[Option]) -> Line:
    """Split a command line into words and options."""
    known = {name: option for option in options for name in (option.name, option.short) if name}
    line, rest = Line([], {}, {}), list(argv)[::-1]
    while rest:
        word = rest.pop()
        if word == "--":
            line.words.extend(rest[::-1])
            break
        if not is_option(word):
            line.words.append(word)
            continue
        name, equals, text = word.lstrip("-").partition("=")
        option = known.get(name.replace("-", "_"))
        if option is None:
            hint = suggestion(f"-{name}", [f"-{one}" for one in known])
            raise UsageError(f"unknown option {word.partition('=')[0]}{hint}")
        if not equals and option.kind is not bool:
            text = _next_value(word, rest, known)
        line.values[option.name] = _value(option, text if equals or option.kind is not bool else "true")
        line.spelling[option.name] = word.partition("=")[0]
    return line


def is_option(word: str) -> bool:
    return word.startswith("-") and word.strip("-") != ""


def _next_value(word: str, rest: list[str], known: Mapping[str, Option]) -> str:
    """Return the next word; a known option there is more likely a forgotten value."""
    if not rest:
        raise UsageError(f"{word} needs a value")
    following = rest.pop()
    if is_option(following) and following.lstrip("-").partition("=")[0] in known:
        raise UsageError(f"{word} needs a value, but {following} is an option (or write {word}={following})")
    return following


def _value(option: Option, text: str) -> Value:
    if option.kind is bool:
        if option.name == "v" and text.isdigit():  # the Go client has levels of logging before the command
            return text != "0"
        if text not in _TRUE + _FALSE:
            raise UsageError(f"-{option.name} is true or false, got {text!r}")
        return text in _TRUE
    if option.kind is int:
        digits = text.removeprefix("-").removeprefix("+")
        if not (digits.isascii() and digits.isdigit() and len(digits) < 20):
            raise UsageError(f"-{option.name} needs a whole number, got {text!r}")
        return int(text)
    return text
