"""A limit on guessing passwords: few tries for one account, and some more for all together."""

from __future__ import annotations

import threading
import time
from collections import deque

from openpai_tasks.errors import TooManyRequests

WINDOW_SECONDS = 300.0
MOST_FOR_ACCOUNT = 10
MOST_IN_ALL = 50

Account = tuple[str, str]
"""A cluster and a user name."""


class SignInGuesses:
    """The tries of the last minutes that did not succeed, or are not over yet."""

    def __init__(self) -> None:
        self._tries: deque[tuple[float, Account]] = deque()
        self._lock = threading.Lock()

    def begin(self, account: Account) -> None:
        """Count a try before the password is checked, so that tries at once count too; raise if too many."""
        now = time.monotonic()
        with self._lock:
            while self._tries and now - self._tries[0][0] > WINDOW_SECONDS:
                self._tries.popleft()
            same = sum(tried == account for _, tried in self._tries)
            if same >= MOST_FOR_ACCOUNT or len(self._tries) >= MOST_IN_ALL:
                raise TooManyRequests("too many failed sign-ins: wait a few minutes and try again", 429)
            self._tries.append((now, account))

    def succeed(self, account: Account) -> None:
        """Forget the failed tries of an account."""
        with self._lock:
            self._tries = deque(one for one in self._tries if one[1] != account)
