"""Who is using the portal: one-time links, signed-in browsers, and tokens against forged requests.

Browsers send a cookie to every port of its host: one of 127.0.0.1 would reach the servers of all users and
jobs of this machine. So each session has its own host, ``HEX.localhost``, which nobody can guess, and which
browsers look up as this machine themselves. It also belongs to the user of the system who opened it.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import NotFound
from openpai_tasks.portal.live import Feeds
from openpai_tasks.portal.starting import link_file
from openpai_tasks.sdk.files.storages import ClusterStorages
from openpai_tasks.sdk.logs.long_logs import NumberedLog
from openpai_tasks.sdk.tensorboard import TensorBoard
from openpai_tasks.settings.home import write_private

LINK_SECONDS = 300.0
SESSION_SECONDS = 12 * 3600.0
MOST_SESSIONS = 1000
HANDOVER_SECONDS = 60.0
KEY = "key"

Connect = Callable[[str], Backend]


@dataclass
class Session:
    """A signed-in browser: the owner of the portal, or a user of one cluster."""

    connect: Connect
    only: str = ""
    """The alias of the only cluster that it may use; empty for the owner."""
    last: str = ""
    """The alias of the cluster that was used last."""
    host: str = ""
    """The host name of its pages."""
    caller: str = ""
    """The user of the system whose browser it is."""
    id: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    used: float = field(default_factory=time.monotonic)
    clients: dict[str, Backend] = field(default_factory=dict, repr=False)
    storages: dict[str, ClusterStorages] = field(default_factory=dict, repr=False)
    """Open storages, by the alias of their cluster."""
    feeds: Feeds = field(default_factory=Feeds, repr=False)
    logs: dict[tuple[str | int, ...], NumberedLog] = field(default_factory=dict, repr=False)
    """Logs whose lines were counted, by cluster, job, task and attempt."""
    boards: dict[str, TensorBoard] = field(default_factory=dict, repr=False)
    starting: threading.Lock = field(default_factory=threading.Lock, repr=False)
    """Held while a TensorBoard is started."""

    def client(self, alias: str) -> Backend:
        """Return the connection to a cluster, which later requests of this browser share."""
        if self.only and alias != self.only:
            raise NotFound(f"you are signed in to cluster {self.only!r} only", 404)
        if alias not in self.clients:
            self.clients[alias] = self.connect(alias)
        self.last = alias
        return self.clients[alias]

    def close_boards(self) -> None:
        """End all TensorBoards, also one that is being started; this may take a while."""
        with self.starting:
            while self.boards:
                self.boards.popitem()[1].close()

    def forget(self, alias: str) -> None:
        """Connect again next time: the cluster may have been restarted or changed."""
        self.clients.pop(alias, None)
        self.storages.pop(alias, None)
        self.logs = {key: log for key, log in self.logs.items() if key[0] != alias}

    def accepts(self, token: str) -> bool:
        """Whether a change carries this session's token against forged requests."""
        return hmac.compare_digest(token.encode(), self.csrf.encode())


class Sessions:
    """The signed-in browsers, in memory only: a restart of the portal signs everybody out."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = _stored_key(folder)
        self._known: dict[str, Session] = {}
        self._handed_over: dict[str, tuple[float, Session]] = {}
        self._lock = threading.Lock()

    def host(self, account: str = "") -> str:
        """Return the host of the owner's sessions, or of an account's; it never changes, for bookmarks."""
        return f"{hmac.digest(self._key, account.encode(), hashlib.sha256).hex()[:32]}.localhost"

    def find(self, identifier: str, host: str, caller: str) -> Session | None:
        """Return the session of a cookie, unless it is too old or the cookie is used by somebody else."""
        self._close_expired()
        with self._lock:
            found = self._known.get(identifier)
            if found is None or (found.host, found.caller) != (host, caller):
                return None
            found.used = time.monotonic()
            return found

    def open(self, session: Session) -> Session:
        """Sign a browser in; if there are too many, sign out the least recently used."""
        with self._lock:
            known = list(self._known.values())
            self._known[session.id] = session
        if len(known) >= MOST_SESSIONS:
            self.close(min(known, key=lambda one: one.used))
        return session

    def hand_over(self, session: Session) -> str:
        """Return a token with which the browser enters the session at its own host, once and soon."""
        token = secrets.token_urlsafe(32)
        now = time.monotonic()
        with self._lock:
            for other, (until, _) in list(self._handed_over.items()):
                if until < now:
                    del self._handed_over[other]
            self._handed_over[token] = now + HANDOVER_SECONDS, session
        return token

    def enter(self, token: str, host: str, caller: str) -> Session | None:
        """Open the session that was handed over to this browser."""
        with self._lock:
            until, session = self._handed_over.pop(token, (0.0, None))
        if not session or until < time.monotonic() or (session.host, session.caller) != (host, caller):
            return None
        return self.open(session)

    def close(self, session: Session) -> None:
        """Sign a browser out, and end what was started for it."""
        with self._lock:
            self._known.pop(session.id, None)
        threading.Thread(target=session.close_boards, name="close boards").start()

    def _close_expired(self) -> None:
        oldest = time.monotonic() - SESSION_SECONDS
        with self._lock:
            expired = [one for one in self._known.values() if one.used < oldest]
        for session in expired:
            self.close(session)

    def redeem(self, token: str) -> bool:
        """Use up a one-time link; False if it was used already, has expired or never existed."""
        file = link_file(self._folder, token)
        try:
            age = time.time() - file.stat().st_mtime
            file.unlink()
        except OSError:
            return False
        return -60 < age < LINK_SECONDS


def _stored_key(folder: Path) -> bytes:
    """Return the key of this portal, which its folder keeps."""
    file = folder / KEY
    if not file.exists():
        write_private(file, secrets.token_hex(32))
    return file.read_bytes()
