"""The embedded cluster's SQLite file: a write-ahead log, one connection that writes, and others that read."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from openpai_tasks.settings import home

_MOST_IDLE = 8  # connections that are kept for the next readers
_CACHE_KB = 16 * 1024
_LONGEST_LOG = 4000  # pages of 4 KB; most are written again and again, and merged once


class Database:
    """Atomic transactions, and reads that never wait for a writer; columns are accessed by name."""

    def __init__(self, path: Path, schema: str) -> None:
        home.make_private(path.parent)
        path.touch(mode=0o600)
        self._path = path
        self._lock = threading.RLock()
        self._writer: int | None = None  # the thread with a transaction
        self._when_committed: list[Callable[[], None]] = []
        self._readers: list[sqlite3.Connection] = []  # idle
        self._is_closed = False
        self._connection = self._connect()
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = NORMAL")
        self._connection.execute(f"PRAGMA wal_autocheckpoint = {_LONGEST_LOG}")
        self._connection.execute("PRAGMA foreign_keys = ON")
        self._connection.executescript(schema)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit everything inside or, after an error, nothing; a nested one is a part of the outer one."""
        with self._lock:
            if self._connection.in_transaction:
                yield
                return
            self._connection.execute("BEGIN IMMEDIATE")
            self._writer = threading.get_ident()
            try:
                yield
                self._connection.execute("COMMIT")
                done = self._when_committed
            except BaseException:
                if self._connection.in_transaction:  # a full disk may have ended it already
                    self._connection.execute("ROLLBACK")
                raise
            finally:
                self._writer, self._when_committed = None, []
        for callback in done:
            callback()

    @contextlib.contextmanager
    def part(self) -> Iterator[None]:
        """Undo everything inside after an error; the transaction around it can go on."""
        done = len(self._when_committed)
        self.write("SAVEPOINT part")
        try:
            yield
        except BaseException:
            del self._when_committed[done:]
            if self._connection.in_transaction:  # a full disk may have ended it already
                self.write("ROLLBACK TO part")
                self.write("RELEASE part")
            raise
        self.write("RELEASE part")

    def when_committed(self, callback: Callable[[], None]) -> None:
        """Call this after the transaction of this thread, if it succeeds; without a transaction, at once."""
        if self._writer == threading.get_ident():
            self._when_committed.append(callback)
        else:
            callback()

    def write(self, sql: str, values: Sequence[Any] | dict[str, Any] = ()) -> int:
        """Run one statement, and return the number of changed rows."""
        with self._lock:
            return self._connection.execute(sql, values).rowcount

    def write_each(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run one statement for each of these values."""
        with self._lock:
            self._connection.executemany(sql, rows)

    def rows(self, sql: str, values: Sequence[Any] | dict[str, Any] = ()) -> list[sqlite3.Row]:
        connection = self._borrow()
        try:
            return connection.execute(sql, values).fetchall()
        finally:
            self._give_back(connection)

    def row(self, sql: str, values: Sequence[Any] | dict[str, Any] = ()) -> sqlite3.Row | None:
        found = self.rows(sql, values)
        return found[0] if found else None

    def shrink(self, least: int, share: int) -> bool:
        """Give free pages back to the file system, if there are many."""
        with self._lock:
            free, pages = (
                self._connection.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("freelist_count", "page_count")
            )
            if self._connection.in_transaction or free < least or free * share < pages:
                return False
            self._connection.execute("VACUUM")
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            return True

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._drop_readers(0)
            self._connection.close()

    def _borrow(self) -> sqlite3.Connection:
        """Return a connection to read from: in a transaction its own, which sees its changes."""
        if self._writer == threading.get_ident():
            return self._connection
        if self._is_closed:
            raise sqlite3.ProgrammingError("the database is closed")
        try:
            return self._readers.pop()
        except IndexError:
            connection = self._connect()
            connection.execute("PRAGMA query_only = ON")
            return connection

    def _give_back(self, connection: sqlite3.Connection) -> None:
        if connection is not self._connection:
            self._readers.append(connection)
            if self._is_closed or len(self._readers) > _MOST_IDLE:
                self._drop_readers(0 if self._is_closed else _MOST_IDLE)

    def _drop_readers(self, most: int) -> None:
        with contextlib.suppress(IndexError):  # another thread may take the last one
            while len(self._readers) > most:
                self._readers.pop().close()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, check_same_thread=False, isolation_level=None)
        connection.row_factory = sqlite3.Row
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KB}")
        return connection
