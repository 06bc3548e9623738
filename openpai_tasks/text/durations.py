"""Durations as users type and read them."""

from __future__ import annotations

import re
import time
from datetime import datetime

from openpai_tasks.errors import ConfigError, InvalidOption

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


def parse_since(text: str) -> float:
    """Return a time, in seconds since 1970; without a zone it is that of this machine."""
    try:
        return datetime.fromisoformat(re.sub("[zZ]$", "+00:00", text.strip())).timestamp()
    except (ValueError, OverflowError, OSError):
        pass
    try:
        return time.time() - seconds(text)
    except ValueError as err:
        expected = "a duration such as 90s or 1h30m, or a time such as 2026-01-31T12:00"
        raise InvalidOption("since", f": expected {expected}, got {text!r}") from err


def format_duration(seconds: float) -> str:
    """Format a time span in its two largest units."""
    whole = int(seconds)
    if whole < 60:
        return f"{seconds:.1f}s"
    minutes, hours = whole // 60, whole // 3600
    return f"{minutes}m {whole % 60:02d}s" if hours == 0 else f"{hours}h {minutes % 60:02d}m"


def compact_duration(seconds: float) -> str:
    """Format a time span as users type it: ``90s`` is ``1m30s``, ``3600s`` is ``1h``."""
    left, words = max(0, int(seconds)), ""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, left = divmod(left, size)
        words += f"{count}{unit}" if count else ""
    return words or "0s"


def duration_in_words(seconds: float) -> str:
    """Format a time span in its two largest units, with spaces: ``9.5 s``, ``3 min 05 s``, ``2 h 07 min``."""
    return re.sub(r"(\d)([a-z])", r"\1 \2", format_duration(seconds)).replace(" m", " min")
