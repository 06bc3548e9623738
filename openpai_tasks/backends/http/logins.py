"""The token of a user: when to renew it, and how soon after a login to use it.

A user logs in once at a time: of simultaneous logins, OpenPAI keeps only one.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from openpai_tasks.backends.base import Say, TokenStore
from openpai_tasks.errors import ConfigError
from openpai_tasks.net import web_address
from openpai_tasks.settings.digests import sha256
from openpai_tasks.settings.home import home, locked
from openpai_tasks.settings.registry import Cluster

PAUSES = (0.6, 1.5)
"""Seconds between a login and the first use of its token, for the first login and one more after a 401.

OpenPAI answers a login before it has stored the token, and never stores a token that is used too early.
"""
NO_PAUSES = (0.0,)  # the embedded cluster stores the token before it answers

SILENT_SECONDS = 2.0  # the user is notified of a longer wait
LONGEST_SECONDS = 60.0  # a suspended command must not block all others
POLL_SECONDS = 0.05


class UserToken:
    """The token of a connection, renewed by one thread of one command at a time."""

    def __init__(
        self,
        token: str,
        store: TokenStore,
        pauses: tuple[float, ...],
        lock: Callable[[], contextlib.AbstractContextManager[None]],
        say: Say,
    ) -> None:
        self.token = token
        self._store, self._pauses, self._say, self._login_lock = store, pauses, say, lock
        self._lock = threading.Lock()
        self._unproven = ""  # a new token that the server has not accepted yet

    @property
    def pauses(self) -> tuple[float, ...]:
        """The pauses of the logins that a call may still make when its token is refused."""
        return self._pauses[1:] if self.token in ("", self._unproven) else self._pauses

    def log_in(self, ask: Callable[[], str]) -> None:
        """Replace the token by what ``ask`` returns."""
        with self._lock, self._login_lock():
            self._log_in(ask, self._pauses[0])

    def renew(self, refused: str, ask: Callable[[], str], pause: float | None = None) -> None:
        """Replace a refused token, unless another thread or command has already done so."""
        with self._lock:
            if self.token not in ("", refused):
                return
            with self._login_lock():
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


@contextlib.contextmanager
def login_lock(cluster: Cluster, say: Say) -> Iterator[None]:
    """Hold the lock for logins of the cluster's user; continue without it if it cannot be taken."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(ConfigError):  # the home folder is not writable
            stack.enter_context(locked(_path(cluster), functools.partial(_wait, cluster.alias, say)))
        yield


def _path(cluster: Cluster) -> Path:
    """Return the path of the lock, which all aliases of a server share."""
    who = f"{cluster.user} {web_address.normal(cluster.uri)}"
    return home() / "logins" / sha256(who.encode())[:16]


def _wait(alias: str, say: Say, handle: int) -> None:
    begun, is_silent = time.monotonic(), True
    while time.monotonic() - begun < LONGEST_SECONDS:
        try:
            return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(POLL_SECONDS)
        except OSError:
            return  # the file system does not support locks
        if is_silent and time.monotonic() - begun > SILENT_SECONDS:
            is_silent = False
            say(f"waiting for another command that logs in to cluster {alias!r}")
