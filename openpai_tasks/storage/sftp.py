"""The files of a container, by SFTP: a store like others, over a connection that somebody else keeps.

SFTP tells times in whole seconds. Fingerprints come from ``sha256sum`` over there, asked through one shell
that stays, where the container has them.
"""

from __future__ import annotations

import contextlib
import errno
import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from openpai_tasks.errors import Denied, Lost, NotFound, PaiError, PathError
from openpai_tasks.storage.local import SHA256, Sha256
from openpai_tasks.storage.retry import numbered, retrying
from openpai_tasks.storage.sftp_sums import Sums
from openpai_tasks.storage.store import (
    Appends,
    Digest,
    Entry,
    Hasher,
    SetsModes,
    base,
    check_name,
    join,
    parent,
)

SESSIONS = 6  # files to copy at once; a server allows 10 sessions in all, by default
PIECE = 1 << 18
AHEAD = 64  # requests of 32 KiB on their way at once
GONE = (errno.ENOENT, errno.ENOTDIR)

Result = TypeVar("Result")


class Login(Protocol):
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


class SftpStore(Appends, SetsModes):
    """The files below ``/`` of a container; ``renew`` makes the connection, and again when it broke."""

    kind = "sftp"
    knows_digests = True

    def __init__(self, name: str, renew: Callable[[], Login]) -> None:
        self._name, self._renew = name, renew
        self._login: Login | None = None
        self._sums: Sums | None = None
        self._idle: list[Any] = []
        self._lock = threading.Lock()

    def address(self, path: str) -> str:
        return f"sftp://{self._name}{path}"

    def stat(self, path: str) -> Entry | None:
        def look(files: Any) -> Entry:
            facts = files.lstat(path)
            return _entry(base(path), path, _behind(files, path, facts), stat.S_ISLNK(facts.st_mode or 0))

        try:
            return self._asked(path, look)
        except NotFound:
            return None

    def list(self, path: str) -> Iterator[Entry]:
        def look(files: Any) -> Sequence[Entry]:
            return [
                _listed(files, facts, join(path, check_name(facts.filename, path)))
                for facts in files.listdir_attr(path)
            ]

        yield from self._asked(path, look)  # all of it at once: no session is held while others work

    def make_folder(self, path: str) -> None:
        missing = []
        there = self.stat(path)
        while there is None:
            missing.append(path)
            path = parent(path)
            there = self.stat(path)
        if not there.is_folder:
            raise PathError(f"{path}: a file is there, not a folder")
        for folder in reversed(missing):
            self._make_one(folder)

    def _make_one(self, path: str) -> None:
        try:
            self._asked(path, lambda files: files.mkdir(path))
        except PathError:
            there = self.stat(path)
            if there is None or not there.is_folder:  # else another thread was quicker
                raise

    def remove(self, path: str, recursive: bool = False) -> None:
        there = self.stat(path)
        if there is None and not self._is_link(path):
            raise NotFound(f"{path}: no such file or folder", 404)
        if there is None or there.is_link or not there.is_folder:
            return self._unlinked(path)
        folders = self._emptied(path) if recursive else [path]
        for folder in reversed(folders):
            self._unlinked(folder, is_folder=True)

    def _emptied(self, path: str) -> Sequence[str]:
        """Remove all files below; the folders, each before those in it."""
        folders, at = [path], 0
        while at < len(folders):
            for entry in list(self.list(folders[at])):
                if entry.is_folder and not entry.is_link:
                    folders.append(entry.path)
                else:
                    self._unlinked(entry.path)
            at += 1
        return folders

    def _is_link(self, path: str) -> bool:
        try:
            return self._asked(path, lambda files: stat.S_ISLNK(files.lstat(path).st_mode or 0))
        except NotFound:
            return False

    def rename(self, source: str, target: str) -> None:
        def act(number: int) -> None:
            try:
                with self._files(target) as files:
                    _renamed(files, source, target)
            except NotFound:
                if number == 0 or self.stat(target) is None:  # else it went well, and its answer was lost
                    raise

        numbered(act)

    def read(self, path: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        with self._files(path) as files:
            facts = files.stat(path)
            if not stat.S_ISREG(facts.st_mode or 0):
                raise PathError(f"{path} is no file that can be read")
            with files.open(path, "rb") as file:
                left = (facts.st_size or 0) - offset if length is None else length
                if left > 0 and (facts.st_size or 0) > offset:
                    self._connected().read_ahead(file, min(facts.st_size, offset + left), AHEAD)
                file.seek(offset)
                while length is None or left > 0:
                    piece = file.read(PIECE if length is None else min(PIECE, left))
                    if not piece:
                        return
                    left -= len(piece)
                    yield piece

    def write(self, path: str, pieces: Iterable[bytes], size: int | None = None) -> None:
        self._stream(path, pieces, "wb")

    def broken_off(self, path: str) -> int:
        entry = self.stat(path)
        return entry.size if entry and not entry.is_link else 0

    def append(self, path: str, pieces: Iterable[bytes], size: int) -> None:
        self._stream(path, pieces, "ab")

    def _stream(self, path: str, pieces: Iterable[bytes], mode: str) -> None:
        with self._files(path) as files, files.open(path, mode) as file:
            file.set_pipelined(True)
            for piece in pieces:
                file.write(piece)

    def digest(self, path: str) -> Digest | None:
        value = self._sums_told(lambda sums: sums.of(path))
        return Digest(SHA256, value) if value else None

    def hasher(self, kind: str | None = None) -> Hasher | None:
        return Sha256() if kind in (None, SHA256) and self._sums_told(lambda sums: sums.can) else None

    def set_mtime(self, path: str, mtime_ms: int) -> None:
        self._asked(path, lambda files: files.utime(path, (mtime_ms // 1000, mtime_ms // 1000)))

    def set_mode(self, path: str, mode: int) -> None:
        self._asked(path, lambda files: files.chmod(path, mode))

    def allowed(self, mode: int) -> int:
        return mode & ~self._sums_told(lambda sums: sums.umask)

    def start_folder(self) -> str:
        """Where a relative path begins; asked first: what cannot be reached is told at once."""
        with self._files(".") as files:
            return str(files.normalize("."))

    def close(self) -> None:
        with self._lock:
            for files in self._idle:
                _end(files)
            self._idle.clear()

    def _asked(self, path: str, act: Callable[[Any], Result]) -> Result:
        """What a session says; where its connection is lost, what one on the next says."""

        def once() -> Result:
            with self._files(path) as files:
                return act(files)

        return retrying(once)

    def _unlinked(self, path: str, is_folder: bool = False) -> None:
        def once(number: int) -> None:
            try:
                with self._files(path) as files:
                    files.rmdir(path) if is_folder else files.remove(path)
            except NotFound:
                if number == 0:  # else it went well, and its answer was lost
                    raise

        numbered(once)

    def _sums_told(self, act: Callable[[Sums], Result]) -> Result:
        def once() -> Result:
            with self._holding() as login:
                return act(self._sums_of(login))

        return retrying(once)

    @contextlib.contextmanager
    def _files(self, path: str) -> Iterator[Any]:
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
    def _holding(self) -> Iterator[Login]:
        """The connection; what comes after it was lost, such as clearing up, gets a new one at once."""
        login = self._connected()
        try:
            with login.losing():
                yield login
        except Lost:
            with self._lock:
                if self._login is login:
                    self._forget()
            raise

    def _spare(self, login: Login) -> Any:
        with self._lock:
            return self._idle.pop() if self._idle and self._login is login else None

    def _give_back(self, login: Login | None, files: Any) -> None:
        with self._lock:
            if self._login is login:
                return self._idle.append(files)
        _end(files)

    def _connected(self) -> Login:
        with self._lock:
            if self._login is None or not self._login.is_open:
                self._forget()
                self._login = self._renew()
            return self._login

    def _forget(self) -> None:
        self._idle.clear()
        self._sums = self._login = None

    def _sums_of(self, login: Login) -> Sums:
        with self._lock:
            if self._sums is None or self._sums.login is not login:
                self._sums = Sums(login)
            return self._sums


def _renamed(files: Any, source: str, target: str) -> None:
    try:
        files.posix_rename(source, target)
    except OSError as err:
        if err.errno or "support" not in str(err).lower():
            raise
        with contextlib.suppress(OSError):
            files.remove(target)
        files.rename(source, target)


def _end(files: Any) -> None:
    """Close a session, if there is one; over a connection that is gone that fails, and matters no more."""
    with contextlib.suppress(EOFError, OSError):
        if files is not None:
            files.close()


def _listed(files: Any, facts: Any, path: str) -> Entry:
    if not stat.S_ISLNK(facts.st_mode or 0):
        return _entry(facts.filename, path, facts, False)
    try:
        return _entry(facts.filename, path, files.stat(path), True)
    except OSError:  # a link that leads nowhere
        return Entry(facts.filename, path, False, is_link=True, is_whole_second=True)


def _behind(files: Any, path: str, facts: Any) -> Any:
    return files.stat(path) if stat.S_ISLNK(facts.st_mode or 0) else facts


def _entry(name: str, path: str, facts: Any, is_link: bool) -> Entry:
    mode = facts.st_mode or 0
    is_folder, is_file = stat.S_ISDIR(mode), stat.S_ISREG(mode)
    entry = Entry(name, path, is_folder, facts.st_size or 0 if is_file else 0, is_link=is_link)
    return replace(
        entry,
        mtime_ms=int(facts.st_mtime or 0) * 1000,
        is_executable=is_file and bool(mode & stat.S_IXUSR),
        is_special=not (is_folder or is_file),
        mode=stat.S_IMODE(mode) & 0o777,
        is_whole_second=True,
    )


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
