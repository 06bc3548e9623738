"""Sessions for the files of a container, over one connection that is made again when it broke."""

from __future__ import annotations

import contextlib
import errno
import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar

from openpai_tasks.errors import Denied, Lost, NotFound, PaiError, PathError
from openpai_tasks.storage.retry import retrying
from openpai_tasks.storage.sftp.checksums import Sums

GONE = (errno.ENOENT, errno.ENOTDIR)

Result = TypeVar("Result")


class RemoteConnection(Protocol):
    """A connection to a container."""

    @property
    def is_open(self) -> bool: ...

    def files(self) -> Any:
        """A session for files of its own: paramiko's client."""

    def session(self) -> Any:
        """A channel to run a command in."""

    def read_ahead(self, file: Any, size: int, requests: int) -> None:
        """Have a file ask for its first bytes before they are wanted."""

    def losing(self) -> contextlib.AbstractContextManager[None]:
        """Turns what a broken connection raises into errors of ours."""


class Sessions:
    """``renew`` makes the connection; a session is one person's at a time, and kept for the next."""

    def __init__(self, renew: Callable[[], RemoteConnection]) -> None:
        self._renew = renew
        self._login: RemoteConnection | None = None
        self._sums: Sums | None = None
        self._idle: list[Any] = []
        self._lock = threading.Lock()

    def asked(self, path: str, act: Callable[[Any], Result]) -> Result:
        """What a session says; where its connection is lost, what one on the next says."""

        def once() -> Result:
            with self.files(path) as files:
                return act(files)

        return retrying(once)

    def sums_told(self, act: Callable[[Sums], Result]) -> Result:
        """What the shell for fingerprints says, in the same way."""

        def once() -> Result:
            with self._holding() as login:
                return act(self._sums_of(login))

        return retrying(once)

    @contextlib.contextmanager
    def files(self, path: str) -> Iterator[Any]:
        """A session that nobody else uses meanwhile; one that something broke is not used again."""
        login = files = None
        try:
            with _told(path), self._holding() as login:
                files = self._spare(login) or login.files()
                yield files
        except NotFound:
            self._give_back(login, files)
            raise
        except BaseException:
            _end(files)
            raise
        self._give_back(login, files)

    @contextlib.contextmanager
    def _holding(self) -> Iterator[RemoteConnection]:
        """The connection; what comes after it was lost, such as clearing up, gets a new one at once."""
        login = self.connected()
        try:
            with login.losing():
                yield login
        except Lost:
            with self._lock:
                if self._login is login:
                    self._forget()
            raise

    def _spare(self, login: RemoteConnection) -> Any:
        with self._lock:
            return self._idle.pop() if self._idle and self._login is login else None

    def _give_back(self, login: RemoteConnection | None, files: Any) -> None:
        with self._lock:
            if self._login is login:
                return self._idle.append(files)
        _end(files)

    def connected(self) -> RemoteConnection:
        with self._lock:
            if self._login is None or not self._login.is_open:
                self._forget()
                self._login = self._renew()
            return self._login

    def _forget(self) -> None:
        self._idle.clear()
        self._sums = self._login = None

    def _sums_of(self, login: RemoteConnection) -> Sums:
        with self._lock:
            if self._sums is None or self._sums.login is not login:
                self._sums = Sums(login)
            return self._sums

    def close(self) -> None:
        with self._lock:
            for files in self._idle:
                _end(files)
            self._idle.clear()


def _end(files: Any) -> None:
    """Close a session, if there is one; over a connection that is gone that fails, and matters no more."""
    with contextlib.suppress(EOFError, OSError):
        if files is not None:
            files.close()


@contextlib.contextmanager
def _told(path: str) -> Iterator[None]:
    """Errors of the server in our words."""
    try:
        yield
    except (PaiError, ConnectionError, TimeoutError):
        raise
    except UnicodeError as err:
        raise PathError(f"{path}: a name there is not UTF-8, which SFTP here cannot carry") from err
    except OSError as err:
        reason = (err.strerror or str(err) or "it failed").lower()
        if err.errno in GONE:
            raise NotFound(f"{path}: no such file or folder", 404) from err
        if err.errno == errno.EACCES:
            raise Denied(f"{path}: {reason}", 403) from err
        raise PathError(f"{path}: the container says {reason!r}; is its disk full?") from err
