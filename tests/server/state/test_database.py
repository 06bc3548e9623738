from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from openpai_tasks.server.state.database import Database

SCHEMA = "CREATE TABLE IF NOT EXISTS notes (text TEXT NOT NULL)"


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    found = Database(tmp_path / "cluster.db", SCHEMA)
    yield found
    found.close()


def add(database: Database, text: str) -> None:
    database.write("INSERT INTO notes VALUES (?)", [text])


def texts(database: Database) -> list[str]:
    return [row["text"] for row in database.rows("SELECT text FROM notes ORDER BY rowid")]


def in_thread(database: Database) -> list[str]:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(texts, database).result(timeout=60)


def test_readers_need_not_wait_for_a_transaction(database: Database) -> None:
    add(database, "old")
    with database.transaction():
        add(database, "new")
        assert texts(database) == ["old", "new"]  # its own change
        assert in_thread(database) == ["old"]  # not before it is committed
    assert in_thread(database) == texts(database) == ["old", "new"]


def test_a_failed_transaction_leaves_nothing(database: Database) -> None:
    with pytest.raises(ZeroDivisionError), database.transaction():
        add(database, "lost")
        with database.transaction():
            add(database, "lost, too")
        raise ZeroDivisionError
    assert texts(database) == []
    add(database, "next")
    assert in_thread(database) == ["next"]


def test_a_committed_change_is_seen_by_the_next_read_of_any_thread(database: Database) -> None:
    with ThreadPoolExecutor(8) as pool:
        for number in range(50):
            add(database, str(number))
            seen = list(pool.map(lambda _: len(texts(database)), range(8)))
            assert seen == [number + 1] * 8


def test_callbacks_run_once_their_transaction_is_committed(database: Database) -> None:
    seen: list[list[str]] = []
    with database.transaction():
        with database.transaction():
            database.when_committed(lambda: seen.append(in_thread(database)))
        add(database, "new")
        assert seen == []
    assert seen == [["new"]]
    with pytest.raises(ZeroDivisionError), database.transaction():
        database.when_committed(lambda: seen.append(["never"]))
        raise ZeroDivisionError
    database.when_committed(lambda: seen.append(["at once"]))
    assert seen == [["new"], ["at once"]]


def test_readers_cannot_write(database: Database) -> None:
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        database.rows("DELETE FROM notes")


def test_connections_of_readers_are_used_again(database: Database, tmp_path: Path) -> None:
    barrier = threading.Barrier(20)

    def read() -> None:
        connection = database._borrow()
        barrier.wait(timeout=60)
        database._give_back(connection)

    with ThreadPoolExecutor(20) as pool:
        for future in [pool.submit(read) for _ in range(20)]:
            future.result(timeout=60)
    assert 0 < len(database._readers) <= 8


def test_nothing_is_read_after_closing(tmp_path: Path) -> None:
    database = Database(tmp_path / "cluster.db", SCHEMA)
    texts(database)
    database.close()
    with pytest.raises(sqlite3.ProgrammingError):
        texts(database)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cluster.db"]  # the log is merged
