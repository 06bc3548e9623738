"""The embedded cluster's SQLite file: one connection, one lock, write-ahead log."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from openpai_tasks.settings import home


class Database:
    """One connection with atomic transactions; columns are accessed by name."""

    def __init__(self, path: Path, schema: str) -> None:
        home.make_private(path.parent)
        path.touch(mode=0o600)
        self._lock = threading.RLock()
        self._connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._connection.row_factory = sqlite3.Row
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = NORMAL")
        self._connection.execute("PRAGMA foreign_keys = ON")
        self._connection.executescript(schema)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit everything inside or, after an error, nothing; may be nested."""
        with self._lock:
            if self._connection.in_transaction:
                yield
                return
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    def write(self, sql: str, values: Sequence[Any] | dict[str, Any] = ()) -> int:
        """Run one statement, and return the number of changed rows."""
        with self._lock:
            return self._connection.execute(sql, values).rowcount

    def rows(self, sql: str, values: Sequence[Any] | dict[str, Any] = ()) -> list[sqlite3.Row]:
        with self._lock:
            return self._connection.execute(sql, values).fetchall()

    def row(self, sql: str, values: Sequence[Any] | dict[str, Any] = ()) -> sqlite3.Row | None:
        with self._lock:
            found: sqlite3.Row | None = self._connection.execute(sql, values).fetchone()
            return found

    def close(self) -> None:
        with self._lock:
            self._connection.close()
