"""Logs that cannot be read while a job is watched: a warning for each cause, and pauses between the tries."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Hashable

from openpai_tasks.errors import PaiError
from openpai_tasks.net.retry import RetryPolicy

POLICY = RetryPolicy(tries=sys.maxsize, least_pause=0.5, longest_pause=30.0)
LONGEST_ROUND = 5.0
"""Seconds that failing tries may take before the job itself is looked at again."""


class LogTroubles:
    """What could not be read so far, and when it is tried again."""

    def __init__(self, say: Callable[[str], object]) -> None:
        self._say = say
        self._causes = set[str]()
        self._failed: dict[Hashable, tuple[int, float]] = {}  # tries, and when the next is due
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
        """Make everything due now."""
        self._failed = dict.fromkeys(self._failed, (0, 0.0))

    def note(self, what: Hashable, named: str, err: PaiError) -> None:
        """Try it again later; warn if the cause is a new one."""
        number = self._failed.get(what, (0, 0.0))[0]
        self._failed[what] = number + 1, time.monotonic() + (POLICY.pause(number) or 0.0)
        cause = str(err)
        if cause not in self._causes:
            self._causes.add(cause)
            self._say(f"warning: {named} cannot be read now: {cause}; the job is still watched")

    def clear(self, what: Hashable) -> None:
        self._failed.pop(what, None)
