"""The files of a container over SFTP, on a connection that the caller keeps.

SFTP has times in whole seconds. Fingerprints come from ``sha256sum`` over there, asked through one shell
that stays, where the container has them.
"""

from __future__ import annotations

import contextlib
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from openpai_tasks.errors import NoSuchPath, NotFound, PathError
from openpai_tasks.storage.retry import retrying_numbered
from openpai_tasks.storage.sftp.sessions import RemoteConnection, Sessions, read_ahead
from openpai_tasks.storage.store import (
    SHA256,
    Appends,
    Digest,
    Entry,
    Hasher,
    SetsModes,
    Sha256,
    base,
    check_name,
    join,
    parent,
)

SESSIONS = 6  # concurrent copies; by default, a server allows 10 sessions in all
PIECE = 1 << 18
AHEAD = 64  # requests of 32 KiB in transit at once


class SftpStore(Appends, SetsModes):
    """The files of a container; ``renew`` opens the connection, also after a loss."""

    kind = "sftp"
    knows_digests = True

    def __init__(self, name: str, renew: Callable[[], RemoteConnection]) -> None:
        self._name, self._sessions = name, Sessions(renew)

    def address(self, path: str) -> str:
        return f"sftp://{self._name}{path}"

    def stat(self, path: str) -> Entry | None:
        def look(files: Any) -> Entry:
            facts = files.lstat(path)
            is_link = stat.S_ISLNK(facts.st_mode or 0)
            return _entry(base(path), path, files.stat(path) if is_link else facts, is_link)

        try:
            return self._sessions.run(path, look)
        except NotFound:
            return None

    def list(self, path: str) -> Iterator[Entry]:
        def look(files: Any) -> Sequence[Entry]:
            return [
                _listed(files, facts, join(path, check_name(facts.filename, path)))
                for facts in files.listdir_attr(path)
            ]

        yield from self._sessions.run(path, look)  # all at once: no session is held while the caller works

    def make_folder(self, path: str) -> None:
        missing = []
        while (there := self.stat(path)) is None:
            missing.append(path)
            path = parent(path)
        if not there.is_folder:
            raise PathError(f"{path}: a file is there, not a folder")
        for folder in reversed(missing):
            self._make_one(folder)

    def _make_one(self, path: str) -> None:
        try:
            self._sessions.run(path, lambda files: files.mkdir(path))
        except PathError:
            there = self.stat(path)
            if there is None or not there.is_folder:  # otherwise another thread was faster
                raise

    def remove(self, path: str, recursive: bool = False) -> None:
        there = self.stat(path)
        if there is None and not self._is_link(path):
            raise NoSuchPath(f"{path}: no such file or folder")
        if there is None or there.is_link or not there.is_folder:
            return self._remove_one(path)
        folders = self._remove_files_below(path) if recursive else [path]
        for folder in reversed(folders):
            self._remove_one(folder, is_folder=True)

    def _remove_files_below(self, path: str) -> Sequence[str]:
        """Remove all files below; return the folders, each before its subfolders."""
        folders, at = [path], 0
        while at < len(folders):
            for entry in list(self.list(folders[at])):
                if entry.is_folder and not entry.is_link:
                    folders.append(entry.path)
                else:
                    self._remove_one(entry.path)
            at += 1
        return folders

    def _is_link(self, path: str) -> bool:
        try:
            return self._sessions.run(path, lambda files: stat.S_ISLNK(files.lstat(path).st_mode or 0))
        except NotFound:
            return False

    def rename(self, source: str, target: str) -> None:
        def attempt(number: int) -> None:
            try:
                with self._sessions.files(target) as files:
                    _rename(files, source, target)
            except NotFound:
                # Otherwise it succeeded, and the answer was lost.
                if number == 0 or self.stat(target) is None:
                    raise

        retrying_numbered(attempt)

    def read(self, path: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        with self._sessions.files(path) as files:
            facts = files.stat(path)
            if not stat.S_ISREG(facts.st_mode or 0):
                raise PathError(f"{path} is not a file that can be read")
            with files.open(path, "rb") as file:
                left = (facts.st_size or 0) - offset if length is None else length
                if left > 0 and (facts.st_size or 0) > offset:
                    read_ahead(file, min(facts.st_size, offset + left), AHEAD)
                file.seek(offset)
                while length is None or left > 0:
                    piece = file.read(PIECE if length is None else min(PIECE, left))
                    if not piece:
                        return
                    left -= len(piece)
                    yield piece

    def write(self, path: str, pieces: Iterable[bytes], size: int | None = None) -> None:
        self._stream(path, pieces, "wb")

    def unfinished_size(self, path: str) -> int:
        entry = self.stat(path)
        return entry.size if entry and not entry.is_link else 0

    def append(self, path: str, pieces: Iterable[bytes], size: int) -> None:
        self._stream(path, pieces, "ab")

    def _stream(self, path: str, pieces: Iterable[bytes], mode: str) -> None:
        with self._sessions.files(path) as files, files.open(path, mode) as file:
            file.set_pipelined(True)
            for piece in pieces:
                file.write(piece)

    def digest(self, path: str) -> Digest | None:
        value = self._sessions.ask_shell(lambda shell: shell.sha256(path))
        return Digest(SHA256, value) if value else None

    def hasher(self, kind: str | None = None) -> Hasher | None:
        if kind not in (None, SHA256):
            return None
        return Sha256() if self._sessions.ask_shell(lambda shell: shell.has_sha256sum) else None

    def set_mtime(self, path: str, mtime_ms: int) -> None:
        self._sessions.run(path, lambda files: files.utime(path, (mtime_ms // 1000, mtime_ms // 1000)))

    def set_mode(self, path: str, mode: int) -> None:
        self._sessions.run(path, lambda files: files.chmod(path, mode))

    def allowed(self, mode: int) -> int:
        return mode & ~self._sessions.ask_shell(lambda shell: shell.umask)

    def start_folder(self) -> str:
        """Return the folder of relative paths; asked first, so that an unreachable container fails early."""
        with self._sessions.files(".") as files:
            return str(files.normalize("."))

    def close(self) -> None:
        self._sessions.close()

    def _remove_one(self, path: str, is_folder: bool = False) -> None:
        def once(number: int) -> None:
            try:
                with self._sessions.files(path) as files:
                    files.rmdir(path) if is_folder else files.remove(path)
            except NotFound:
                if number == 0:  # otherwise it succeeded, and the answer was lost
                    raise

        retrying_numbered(once)


def _rename(files: Any, source: str, target: str) -> None:
    try:
        files.posix_rename(source, target)
    except OSError as err:
        if err.errno or "support" not in str(err).lower():
            raise
        with contextlib.suppress(OSError):
            files.remove(target)
        files.rename(source, target)


def _listed(files: Any, facts: Any, path: str) -> Entry:
    if not stat.S_ISLNK(facts.st_mode or 0):
        return _entry(facts.filename, path, facts, False)
    try:
        return _entry(facts.filename, path, files.stat(path), True)
    except OSError:  # a broken symlink
        return Entry(facts.filename, path, False, is_link=True, is_whole_second=True)


def _entry(name: str, path: str, facts: Any, is_link: bool) -> Entry:
    mode = facts.st_mode or 0
    is_folder, is_file = stat.S_ISDIR(mode), stat.S_ISREG(mode)
    size, mtime_ms = facts.st_size or 0 if is_file else 0, int(facts.st_mtime or 0) * 1000
    can_run, is_special = is_file and bool(mode & stat.S_IXUSR), not (is_folder or is_file)
    times = size, mtime_ms, is_link, can_run, is_special
    return Entry(name, path, is_folder, *times, mode & 0o777, is_whole_second=True)
