"""Parse numbers, sizes and times; errors name the flag."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from openpai_tasks.errors import ConfigError
from openpai_tasks.times import LONGEST_DAYS as LONGEST_DAYS
from openpai_tasks.times import parse_seconds as parse_seconds

if TYPE_CHECKING:
    from decimal import Decimal

MOST_WORKERS = 64

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?b)?", re.IGNORECASE | re.ASCII)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def parse_int(text: str, where: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"{where} needs a whole number, got {text!r}") from None


def at_least(number: int, least: int, where: str) -> int:
    if isinstance(number, bool) or not isinstance(number, int):
        raise ConfigError(f"{where} needs a whole number, got {number!r}")
    if number < least:
        raise ConfigError(f"{where} must be at least {least}, got {number}")
    return number


def workers(number: int) -> int:
    """Check a number of workers; more would only wait for each other."""
    if at_least(number, 1, "--workers") > MOST_WORKERS:
        raise ConfigError(f"--workers must be at most {MOST_WORKERS}, got {number}")
    return number


def size(text: str | int, where: str, least: int = 0) -> int:
    """Parse ``256M``, ``1.5g``, ``64KiB`` or a plain number of bytes."""
    amount = _bytes(text, "")
    if amount is None or int(amount) < least:
        raise ConfigError(f"{where} needs bytes or a size such as 256M or 1G, got {str(text)!r}")
    return int(amount)


def megabytes(text: str | int, where: str) -> int:
    """Parse ``16g``, ``512m`` or a plain number of megabytes."""
    amount = _bytes(text, "m")
    if not amount or amount % _UNITS["m"]:
        raise ConfigError(f"{where} needs megabytes or a size such as 512m or 16g, got {str(text)!r}")
    return int(amount) // _UNITS["m"]


def _bytes(text: str | int, plain: str) -> Decimal | None:
    """Parse a size; ``plain`` is the unit of a number without one."""
    from decimal import Decimal

    match = _SIZE.fullmatch(str(text).strip())
    if match is None:
        return None
    number, unit, has_unit = match[1], match[2].lower(), match[2] or match[3]
    return Decimal(number) * _UNITS[unit if has_unit else plain]
