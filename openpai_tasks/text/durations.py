"""Durations as users type and read them."""

from __future__ import annotations

import re

from openpai_tasks.errors import ConfigError

LONGEST_DAYS = 3650
"""The longest duration: timestamps of ten digits can still hold its end."""

_TIME = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s?)?", re.IGNORECASE | re.ASCII)


def parse_seconds(text: str, where: str) -> int:
    """Parse a duration of ``seconds``; errors name ``where`` it was given."""
    try:
        return seconds(text)
    except ValueError as err:
        raise ConfigError(f"{where} {err}") from None


def seconds(value: str | int) -> int:
    """Return ``90``, ``90s``, ``30m``, ``1h30m`` or ``1d`` in seconds; raise ValueError for other texts."""
    match = _TIME.fullmatch(str(value).strip())
    days, hours, minutes, rest = (int(part or 0) for part in match.groups()) if match else (0, 0, 0, 0)
    total = ((days * 24 + hours) * 60 + minutes) * 60 + rest
    if not total:
        raise ValueError(f"must be a duration above 0, such as 90s, 1h30m or 30d, got {str(value)!r}")
    if total > LONGEST_DAYS * 24 * 60 * 60:
        raise ValueError(f"must be at most {LONGEST_DAYS}d, got {str(value)!r}")
    return total


def format_duration(seconds: float) -> str:
    """Format a time span in its two largest units."""
    whole = int(seconds)
    if whole < 60:
        return f"{seconds:.1f}s"
    minutes, hours = whole // 60, whole // 3600
    return f"{minutes}m {whole % 60:02d}s" if hours == 0 else f"{hours}h {minutes % 60:02d}m"
