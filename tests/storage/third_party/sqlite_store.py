"""Files in a SQLite database: one row for each file and folder."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator

from openpai_tasks.errors import NotFound, PathError
from openpai_tasks.storage.store import SHA256, Digest, Entry, Sha256, base, join, parent, require_utf8

TABLE = "CREATE TABLE IF NOT EXISTS files (path TEXT PRIMARY KEY, content BLOB, mtime_ms INTEGER)"
"""A folder has no content (NULL)."""


class SqliteStore:
    """The files in a database; threads take turns."""

    kind = "sqlite"
    knows_digests = False

    def __init__(self, file: str) -> None:
        self._file, self._lock = file, threading.RLock()
        self._base = sqlite3.connect(file, check_same_thread=False, isolation_level=None)
        self._base.execute(TABLE)

    def address(self, path: str) -> str:
        return f"sqlite://{self._file}{path}"

    def stat(self, path: str) -> Entry | None:
        if path == "/":
            return Entry("", "/", True)
        if any("\ud800" <= letter <= "\udfff" for letter in path):
            return None
        rows = self._ask("SELECT content IS NULL, length(content), mtime_ms FROM files WHERE path = ?", path)
        return Entry(base(path), path, bool(rows[0][0]), rows[0][1] or 0, rows[0][2]) if rows else None

    def list(self, path: str) -> Iterator[Entry]:
        self._found(path)
        start = join(path, "")
        for (inner,) in self._ask("SELECT path FROM files WHERE substr(path, 1, ?) = ?", len(start), start):
            entry = self.stat(inner) if "/" not in inner[len(start) :] else None
            if entry is not None:
                yield entry

    def make_folder(self, path: str) -> None:
        entry = self._writable(path)
        if entry is None:
            self.make_folder(parent(path))
            self._ask("INSERT OR IGNORE INTO files VALUES (?, NULL, ?)", path, _now())
        elif not entry.is_folder:
            raise PathError(f"{path}: a file has this name")

    def remove(self, path: str, recursive: bool = False) -> None:
        with self._lock:
            if self._found(path).is_folder and not recursive and any(True for _ in self.list(path)):
                raise PathError(f"{path}: the folder is not empty")
            below = join(path, "")
            self._ask("DELETE FROM files WHERE path = ? OR substr(path, 1, ?) = ?", path, len(below), below)

    def rename(self, source: str, target: str) -> None:
        self._writable(target)
        with self._lock:
            self._found(source)
            self._ask("UPDATE OR REPLACE files SET path = ? WHERE path = ?", target, source)

    def read(self, path: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        if self._found(path).is_folder:
            raise PathError(f"{path} is a folder")
        rows = self._ask("SELECT content FROM files WHERE path = ?", path)
        yield rows[0][0][offset : None if length is None else offset + length]

    def write(self, path: str, pieces: Iterable[bytes], size: int | None = None) -> None:
        self._writable(path)
        content = b"".join(pieces)
        self._ask("INSERT OR REPLACE INTO files VALUES (?, ?, ?)", path, content, _now())

    def digest(self, path: str) -> Digest | None:
        hasher = Sha256()
        for piece in self.read(path):
            hasher.update(piece)
        return hasher.digest()

    def hasher(self, kind: str | None = None) -> Sha256 | None:
        return Sha256() if kind in (None, SHA256) else None

    def set_mtime(self, path: str, mtime_ms: int) -> None:
        self._ask("UPDATE files SET mtime_ms = ? WHERE path = ?", mtime_ms, path)

    def _found(self, path: str) -> Entry:
        entry = self.stat(path)
        if entry is None:
            raise NotFound(f"{path}: no such file or folder", 404)
        return entry

    def _writable(self, path: str) -> Entry | None:
        require_utf8(path, "a database")
        return self.stat(path)

    def _ask(self, statement: str, *values: object) -> list[tuple]:
        with self._lock:
            return self._base.execute(statement, values).fetchall()


def _now() -> int:
    return int(time.time() * 1000)
