"""Times as people type them."""

from __future__ import annotations

import re

from openpai_tasks.errors import ConfigError

LONGEST_DAYS = 3650
"""The longest time that can be asked for: a clock of ten digits still tells its end."""

_TIME = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s?)?", re.IGNORECASE | re.ASCII)


def seconds(text: str, where: str) -> int:
    """``90``, ``90s``, ``30m``, ``2h``, ``1h30m`` or ``1d``."""
    match = _TIME.fullmatch(text.strip())
    days, hours, minutes, rest = (int(part or 0) for part in match.groups()) if match else (0, 0, 0, 0)
    total = ((days * 24 + hours) * 60 + minutes) * 60 + rest
    if not total:
        raise ConfigError(f"{where} needs a time of more than 0, such as 90s, 1h30m or 30d, got {text!r}")
    if total > LONGEST_DAYS * 24 * 60 * 60:
        raise ConfigError(f"{where} is {LONGEST_DAYS}d at most, got {text!r}")
    return total
