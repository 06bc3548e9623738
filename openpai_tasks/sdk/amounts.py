"""Numbers and sizes that people type, as values; what cannot be one ends in a line that names the flag."""

from __future__ import annotations

import re
from decimal import Decimal

from openpai_tasks.errors import ConfigError

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE | re.ASCII)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def size(text: str | int, where: str, least: int = 0) -> int:
    """``256M``, ``1.5g``, ``64KiB`` or a plain number of bytes."""
    match = _SIZE.fullmatch(str(text).strip())
    amount = int(Decimal(match[1]) * _UNITS[match[2].lower()]) if match else -1
    if amount < least:
        raise ConfigError(f"{where} needs bytes or a size such as 256M or 1G, got {str(text)!r}")
    return amount


def at_least(number: int, least: int, where: str) -> int:
    if number < least:
        raise ConfigError(f"{where} must be at least {least}, got {number}")
    return number
