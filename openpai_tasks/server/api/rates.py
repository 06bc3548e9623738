"""Rate limits: for all calls together, and for each user's lists and submissions."""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

from openpai_tasks.errors import ConfigError
from openpai_tasks.loopback.web import RefusedCall

API, LIST, SUBMIT = "api", "list", "submit"
NAMES = (API, LIST, SUBMIT)
SECONDS = {"s": 1, "min": 60, "h": 3600}
OFF = "off"
MESSAGE = "Too many requests, please try again later."


@dataclass(frozen=True)
class Rate:
    """A number of calls in a number of seconds."""

    count: int
    seconds: float


class RateLimited(RefusedCall):
    """Raised for too many calls; the headers say when to retry."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        super().__init__(MESSAGE, 429, headers=headers)


class Limiter:
    """Counts calls in windows that begin with the first call of each caller."""

    def __init__(self, rates: Mapping[str, Rate]) -> None:
        self._rates = dict(rates)
        self._windows: dict[tuple[str, str], tuple[float, int]] = {}  # their ends, and the calls in them
        self._lock = threading.Lock()

    def take(self, name: str, who: str) -> dict[str, str]:
        """Count a call and return the headers of the rate limit; raise RateLimited if it is exceeded."""
        rate = self._rates.get(name)
        if rate is None:
            return {}
        with self._lock:
            now = time.monotonic()
            ends, used = self._windows.get((name, who), (now, 0))
            ends, used = (ends, used + 1) if ends > now else (now + rate.seconds, 1)
            self._windows[name, who] = ends, used
        headers = {
            "x-ratelimit-limit": str(rate.count),
            "x-ratelimit-remaining": str(max(rate.count - used, 0)),
            "x-ratelimit-reset": str(math.ceil(time.time() + ends - now)),
        }
        if used > rate.count:
            raise RateLimited({**headers, "retry-after": str(max(math.ceil(ends - now), 1))})
        return headers


def parse_rate(text: str) -> tuple[str, Rate | None]:
    """Parse ``list=60/min``, ``submit=10/2s`` or ``api=off`` into a name and a rate."""
    name, _, rate = text.partition("=")
    match = re.fullmatch(r"(\d{1,9})/(\d{0,6})(s|min|h)", rate, re.ASCII)
    if name not in NAMES or not (match or rate == OFF):
        raise ConfigError(f"invalid rate limit {text!r}: expected {'|'.join(NAMES)}=COUNT/[N]s|min|h or =off")
    if not match:
        return name, None
    return name, Rate(int(match[1]), max(int(match[2] or 1), 1) * SECONDS[match[3]])


def merge_rates(rates: Mapping[str, Rate], changes: Mapping[str, Rate | None]) -> dict[str, Rate]:
    """Return the rates with these changes; None removes a rate."""
    return {name: rate for name, rate in {**rates, **changes}.items() if rate is not None}
