"""Durations as users type them."""

from __future__ import annotations

import re

from openpai_tasks.errors import ConfigError

LONGEST_DAYS = 3650
"""The longest duration: timestamps of ten digits can still hold its end."""

_TIME = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s?)?", re.IGNORECASE | re.ASCII)


def parse_seconds(text: str, where: str) -> int:
    """Parse ``90``, ``90s``, ``30m``, ``2h``, ``1h30m`` or ``1d``; errors name ``where`` it was given."""
    match = _TIME.fullmatch(text.strip())
    days, hours, minutes, rest = (int(part or 0) for part in match.groups()) if match else (0, 0, 0, 0)
    total = ((days * 24 + hours) * 60 + minutes) * 60 + rest
    if not total:
        raise ConfigError(f"{where} must be a duration above 0, such as 90s, 1h30m or 30d, got {text!r}")
    if total > LONGEST_DAYS * 24 * 60 * 60:
        raise ConfigError(f"{where} must be at most {LONGEST_DAYS}d, got {text!r}")
    return total
