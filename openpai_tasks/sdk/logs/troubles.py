"""Retry unreadable logs while a job is followed, with one warning for each cause."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Hashable

from openpai_tasks.errors import PaiError
from openpai_tasks.net.retry import RetryPolicy

POLICY = RetryPolicy(tries=sys.maxsize, least_pause=0.5, longest_pause=30.0)
LONGEST_ROUND = 5.0
"""Seconds that failing reads may take before the job itself is polled again."""


class LogTroubles:
    """Logs that could not be read, and when to try again."""

    def __init__(self, say: Callable[[str], object]) -> None:
        self._say = say
        self._causes = set[str]()
        self._failed: dict[Hashable, tuple[int, float]] = {}  # tries so far, and when the next is due
        self._round = time.monotonic()

    def __bool__(self) -> bool:
        return bool(self._failed)

    def __contains__(self, what: Hashable) -> bool:
        return what in self._failed

    def begin_round(self) -> None:
        self._round = time.monotonic()

    @property
    def is_round_over(self) -> bool:
        return time.monotonic() - self._round > LONGEST_ROUND

    def is_due(self, what: Hashable) -> bool:
        return what not in self._failed or self._failed[what][1] <= time.monotonic()

    def retry_all(self) -> None:
        """Make all logs due now."""
        self._failed = dict.fromkeys(self._failed, (0, 0.0))

    def note(self, what: Hashable, named: str, err: PaiError) -> None:
        """Schedule another try; warn if the cause is new."""
        number = self._failed.get(what, (0, 0.0))[0]
        self._failed[what] = number + 1, time.monotonic() + (POLICY.pause(number) or 0.0)
        cause = str(err)
        if cause not in self._causes:
            self._causes.add(cause)
            self._say(f"warning: cannot read {named}: {cause}; still following the job")

    def clear(self, what: Hashable) -> None:
        self._failed.pop(what, None)
