"""Who is using the portal: one-time links, signed-in browsers, and tokens against forged requests."""

from __future__ import annotations

import hmac
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import NotFound
from openpai_tasks.portal.feeds import LiveFeeds
from openpai_tasks.portal.starting import link_file
from openpai_tasks.sdk.files.storages import ClusterStorages

LINK_SECONDS = 300.0
SESSION_SECONDS = 12 * 3600.0
MOST_SESSIONS = 1000

Connect = Callable[[str], Backend]


@dataclass
class PortalSession:
    """A signed-in browser: the owner of the portal, or a user of one cluster."""

    connect: Connect
    only: str = ""
    """The alias of the only cluster that it may use; empty for the owner."""
    last: str = ""
    """The alias of the cluster that was used last."""
    id: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    used: float = field(default_factory=time.monotonic)
    clients: dict[str, Backend] = field(default_factory=dict, repr=False)
    storages: dict[str, ClusterStorages] = field(default_factory=dict, repr=False)
    """Open storages, by the alias of their cluster."""
    feeds: LiveFeeds = field(default_factory=LiveFeeds, repr=False)

    def client(self, alias: str) -> Backend:
        """Return the connection to a cluster, which later requests of this browser share."""
        if self.only and alias != self.only:
            raise NotFound(f"you are signed in to cluster {self.only!r} only", 404)
        if alias not in self.clients:
            self.clients[alias] = self.connect(alias)
        self.last = alias
        return self.clients[alias]

    def forget(self, alias: str) -> None:
        """Connect anew next time: the cluster may have been restarted or changed."""
        self.clients.pop(alias, None)
        self.storages.pop(alias, None)

    def accepts(self, token: str) -> bool:
        """Whether a change carries this session's token against forged requests."""
        return hmac.compare_digest(token.encode(), self.csrf.encode())


class PortalSessions:
    """The signed-in browsers, in memory only: a restart of the portal signs everybody out."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[str, PortalSession] = {}
        self._lock = threading.Lock()

    def find(self, identifier: str) -> PortalSession | None:
        """Return the session of a cookie, unless it is too old."""
        with self._lock:
            found = self._known.get(identifier)
            if found is None or time.monotonic() - found.used > SESSION_SECONDS:
                self._known.pop(identifier, None)
                return None
            found.used = time.monotonic()
            return found

    def open(self, session: PortalSession) -> PortalSession:
        """Sign a browser in; the one that was unused longest is signed out if there are too many."""
        with self._lock:
            if len(self._known) >= MOST_SESSIONS:
                del self._known[min(self._known, key=lambda one: self._known[one].used)]
            self._known[session.id] = session
        return session

    def close(self, session: PortalSession) -> None:
        with self._lock:
            self._known.pop(session.id, None)

    def redeem(self, token: str) -> bool:
        """Use up a one-time link; False if it was used already, has expired or never existed."""
        file = link_file(self._folder, token)
        try:
            age = time.time() - file.stat().st_mtime
            file.unlink()
        except OSError:
            return False
        return -60 < age < LINK_SECONDS
