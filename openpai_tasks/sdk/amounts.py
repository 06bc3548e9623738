"""Read the values of options: numbers, sizes, durations and ``NAME=VALUE``.

A reader takes a value, or its text on a command line, and raises ValueError with what is wrong about it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, TypeVar

from openpai_tasks.errors import InvalidOption
from openpai_tasks.text.durations import seconds as seconds

if TYPE_CHECKING:
    from decimal import Decimal

T = TypeVar("T")

MOST_WORKERS = 64
IDLE, NEVER = "2h", "never"
"""How long a job that serves somebody may be idle, and the value for no limit."""

SECRET_WORDS = re.compile(r"pass|secret|key|token|sas|pwd", re.IGNORECASE)
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?b)?", re.IGNORECASE | re.ASCII)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def read(field: str, reader: Callable[[Any], T], value: Any) -> T:
    """Return the value of an option; errors name the option."""
    try:
        return reader(value)
    except ValueError as err:
        raise InvalidOption(field, str(err)) from None


def parse_option(text: str, known: Collection[str], owner: str, instead: str) -> tuple[str, str]:
    """Parse ``NAME=VALUE``; ``owner`` has the known options, ``instead`` says how to give a secret."""
    name, equals, value = text.partition("=")
    if SECRET_WORDS.search(name):
        raise InvalidOption("option", f"{name}: do not put a secret on the command line; {instead}")
    if not equals or not value:
        raise InvalidOption("option", f"needs NAME=VALUE, got {text!r}")
    if name not in known:
        names = f"known: {', '.join(known)}" if known else "it has none"
        raise InvalidOption("option", f"{name}: unknown option of {owner} ({names})")
    return name, value


def parse_int(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"needs a whole number, got {text!r}") from None


def idle_seconds(text: str) -> int:
    """Read the time after which an idle job ends; 0 if it never does."""
    return 0 if text == NEVER else seconds(text)


def at_least(least: int) -> Callable[[Any], int]:
    """Return a reader of whole numbers."""

    def read_number(number: Any) -> int:
        if isinstance(number, bool) or not isinstance(number, int):
            raise ValueError(f"needs a whole number, got {number!r}")
        if number < least:
            raise ValueError(f"must be at least {least}, got {number}")
        return number

    return read_number


def workers(number: int) -> int:
    """Check a number of workers; more would only wait for each other."""
    if read("workers", at_least(1), number) > MOST_WORKERS:
        raise InvalidOption("workers", f"must be at most {MOST_WORKERS}, got {number}")
    return number


def size(least: int = 0) -> Callable[[str | int], int]:
    """Return a reader of ``256M``, ``1.5g``, ``64KiB`` or a plain number of bytes."""

    def read_size(value: str | int) -> int:
        amount = _bytes(value, "")
        if amount is None or int(amount) < least:
            raise ValueError(f"needs bytes or a size such as 256M or 1G, got {str(value)!r}")
        return int(amount)

    return read_size


def megabytes(value: str | int) -> int:
    """Read ``16g``, ``512m`` or a plain number of megabytes."""
    amount = _bytes(value, "m")
    if not amount or amount % _UNITS["m"]:
        raise ValueError(f"needs megabytes or a size such as 512m or 16g, got {str(value)!r}")
    return int(amount) // _UNITS["m"]


def _bytes(value: str | int, plain: str) -> Decimal | None:
    """Read a size; ``plain`` is the unit of a number without one."""
    from decimal import Decimal

    match = _SIZE.fullmatch(str(value).strip())
    if match is None:
        return None
    number, unit, has_unit = match[1], match[2].lower(), match[2] or match[3]
    return Decimal(number) * _UNITS[unit if has_unit else plain]
