"""Which finished jobs the embedded cluster keeps, as users write it: ``90d,10000,10GB``."""

from __future__ import annotations

import re
from typing import NamedTuple

from openpai_tasks.errors import ConfigError
from openpai_tasks.text import durations

EVERYTHING = "all"
UNITS = {"KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}


class KeepLimits(NamedTuple):
    """The longest age, the largest number of jobs, and the bytes of their folders; None for any."""

    seconds: int | None = None
    jobs: int | None = None
    size: int | None = None


def parse_keep(text: str, where: str) -> KeepLimits:
    """Parse limits separated by commas, or ``all``; errors name ``where`` it was given."""
    limits = KeepLimits()
    for word in text.replace(",", " ").split():
        limit = {} if word.lower() == EVERYTHING else _limit(word, where)
        if any(getattr(limits, name) is not None for name in limit):
            raise ConfigError(f"{where} has two limits of the same kind: {text!r}")
        limits = limits._replace(**limit)
    if not text.strip(" ,"):
        raise ConfigError(f"{where} must not be empty: give limits such as 90d,10000,10GB, or {EVERYTHING}")
    return limits


def _limit(word: str, where: str) -> dict[str, int]:
    if word.isascii() and word.isdigit() and len(word) < 10:
        return {"jobs": int(word)}
    size = re.fullmatch(r"([0-9]{1,9})([KMGT]B)", word, re.IGNORECASE | re.ASCII)
    if size:
        return {"size": int(size[1]) * UNITS[size[2].upper()]}
    try:
        return {"seconds": durations.parse_seconds(word, where)}
    except ConfigError:
        known = "an age (90d), a number of jobs (10000) or a size (10GB)"
        raise ConfigError(f"{where}: invalid limit {word!r}, expected {known}") from None
