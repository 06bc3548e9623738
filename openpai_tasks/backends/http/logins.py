"""The token of a user: when to renew it, and how soon after a login to use it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from openpai_tasks.backends.base import TokenStore

PAUSES = (0.6, 1.5)
"""Seconds between a login and the first use of its token, for the first login and one more after a 401.

OpenPAI answers a login before it has stored the token, and never stores a token that is used too early.
"""
NO_PAUSES = (0.0,)  # the embedded cluster stores the token before it answers


class UserToken:
    """The token of a connection, renewed by one thread of one command at a time."""

    def __init__(
        self, token: str, store: TokenStore, pauses: tuple[float, ...], say: Callable[[str], None]
    ) -> None:
        self.token = token
        self._store, self._pauses, self._say = store, pauses, say
        self._lock = threading.Lock()
        self._unproven = ""  # a new token that the server has not accepted yet

    @property
    def pauses(self) -> tuple[float, ...]:
        """The pauses of the logins that a call may still make when its token is refused."""
        return self._pauses[1:] if self.token in ("", self._unproven) else self._pauses

    def log_in(self, ask: Callable[[], str]) -> None:
        """Replace the token by what ``ask`` returns."""
        with self._lock, self._store.lock():
            self._log_in(ask, self._pauses[0])

    def renew(self, refused: str, ask: Callable[[], str], pause: float | None = None) -> None:
        """Replace a refused token, unless another thread or command has already done so."""
        with self._lock:
            if self.token not in ("", refused):
                return
            with self._store.lock():
                kept = self._store.read()
                if kept in ("", refused):
                    self._log_in(ask, self._pauses[0] if pause is None else pause)
                else:
                    self.token = self._unproven = kept

    def accepted(self, token: str) -> None:
        """Record that the server accepted a call with the token."""
        if token == self._unproven:
            self._unproven = ""

    def _log_in(self, ask: Callable[[], str], pause: float) -> None:
        """Log in, and store the token only after the pause, so that no other command uses it too early."""
        token = ask()
        if pause > PAUSES[0]:
            self._say(f"a new token was refused; waiting {pause:g} s until that of another login is stored")
        time.sleep(pause)
        self.token = self._unproven = token
        self._store.save(token)
