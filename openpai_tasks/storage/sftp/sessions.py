"""SFTP sessions of a container over one connection, which is renewed when it breaks."""

from __future__ import annotations

import contextlib
import errno
import secrets
import shlex
import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar

from openpai_tasks.errors import Denied, Lost, NoSuchPath, NotFound, PaiError, PathError, Unreachable
from openpai_tasks.storage.retry import retrying

SECONDS = 1800.0  # for one file, however large
UMASK = 0o022
_HASH = 64
GONE = (errno.ENOENT, errno.ENOTDIR)

Result = TypeVar("Result")


class RemoteConnection(Protocol):
    """A connection to a container."""

    @property
    def is_open(self) -> bool: ...

    def files(self) -> Any:
        """Open a separate SFTP client of paramiko."""

    def session(self) -> Any:
        """Return a channel to run a command in."""

    def losing(self) -> contextlib.AbstractContextManager[None]:
        """Translate errors of a broken connection to ours."""


def read_ahead(file: Any, size: int, requests: int) -> None:
    """Prefetch a file of paramiko; errors surface when it is read."""
    import paramiko

    ask = file._prefetch_thread

    def ask_quietly(*args: Any) -> None:
        with contextlib.suppress(EOFError, OSError, paramiko.SSHException):
            ask(*args)

    file._prefetch_thread = ask_quietly  # else a broken connection prints that thread's traceback
    file.prefetch(size, requests)


class ChecksumShell:
    """A shell in the container that computes checksums; without it, they are unknown."""

    def __init__(self, login: RemoteConnection) -> None:
        self.login = login
        self._lock = threading.Lock()
        self._channel: Any = None
        self._rest = b""
        self.umask = UMASK
        try:
            self.has_sha256sum = self._open()
        except Unreachable:  # the connection is usable even if it only allows copies, not commands
            if not login.is_open:
                raise
            self.has_sha256sum = False

    def sha256(self, path: str) -> str:
        """Return the SHA-256 of the file; empty if unknown."""
        if not self.has_sha256sum:
            return ""
        with self._lock:
            words = self._ask(f"sha256sum < {shlex.quote(path)} 2>/dev/null").split()
        return words[0] if words and len(words[0]) == _HASH else ""

    def _open(self) -> bool:
        """Whether there is a shell with ``sha256sum``; its first output is ignored."""
        with self.login.losing():
            self._channel = self.login.session()
            self._channel.settimeout(SECONDS)
            self._channel.exec_command("exec sh")
            mask = self._ask("umask").strip()
            self.umask = int(mask, 8) if mask and set(mask) <= set("01234567") else UMASK
            return bool(self._ask("command -v sha256sum").strip())

    def _ask(self, command: str) -> str:
        """Return the output of the command, up to a unique end mark."""
        mark = secrets.token_hex(8)
        line = f"echo {mark}; {command}; echo; echo {mark}\n"
        with self.login.losing():
            self._channel.sendall(line.encode("utf-8", "surrogateescape"))
            text = self._until(f"{mark}\n".encode(), 2)
        return text.decode("utf-8", "replace")

    def _until(self, mark: bytes, times: int) -> bytes:
        """Return the output between the marks; empty if the shell has ended."""
        text = self._rest
        while text.count(mark) < times:
            piece = self._channel.recv(1 << 16)
            if not piece:
                return b""
            text += piece
        _, between, self._rest = text.split(mark, times)
        return between.strip()


class Sessions:
    """A pool of sessions, each used by one caller at a time; ``renew`` opens the connection."""

    def __init__(self, renew: Callable[[], RemoteConnection]) -> None:
        self._renew = renew
        self._login: RemoteConnection | None = None
        self._sums: ChecksumShell | None = None
        self._idle: list[Any] = []
        self._lock = threading.Lock()

    def run(self, path: str, operation: Callable[[Any], Result]) -> Result:
        """Call ``operation`` with a session; after a lost connection, with one on a new connection."""

        def once() -> Result:
            with self.files(path) as files:
                return operation(files)

        return retrying(once)

    def ask_shell(self, operation: Callable[[ChecksumShell], Result]) -> Result:
        """Ask the checksum shell, in the same way."""

        def once() -> Result:
            with self._holding() as login:
                return operation(self._shell_of(login))

        return retrying(once)

    @contextlib.contextmanager
    def files(self, path: str) -> Iterator[Any]:
        """Yield a session for exclusive use; a broken one is not used again."""
        login = files = None
        try:
            with _mapping_errors(path), self._holding() as login:
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
        """Return the connection; after a loss, open a new one at once, for cleanup too."""
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

    def _shell_of(self, login: RemoteConnection) -> ChecksumShell:
        with self._lock:
            if self._sums is None or self._sums.login is not login:
                self._sums = ChecksumShell(login)
            return self._sums

    def close(self) -> None:
        with self._lock:
            for files in self._idle:
                _end(files)
            self._idle.clear()


def _end(files: Any) -> None:
    """Close a session, if there is one; failures on a lost connection do not matter."""
    with contextlib.suppress(EOFError, OSError):
        if files is not None:
            files.close()


@contextlib.contextmanager
def _mapping_errors(path: str) -> Iterator[None]:
    """Convert errors of the server to ours."""
    from paramiko import SFTPError

    try:
        yield
    except (PaiError, ConnectionError, TimeoutError):
        raise
    except SFTPError as err:
        raise PathError(f"{path}: the server there does not follow the rules of SFTP: {err}") from err
    except UnicodeError as err:
        raise PathError(f"{path}: a name there is not UTF-8, which is not supported over SFTP") from err
    except OSError as err:
        reason = (err.strerror or str(err) or "it failed").lower()
        if err.errno in GONE:
            raise NoSuchPath(f"{path}: no such file or folder") from err
        if err.errno == errno.EACCES:
            raise Denied(f"{path}: {reason}", 403) from err
        raise PathError(f"{path}: the container reports {reason!r}; is its disk full?") from err
