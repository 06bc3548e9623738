"""Finished jobs make neither the start of a server nor its scheduler slower; work is counted, not timed."""

from __future__ import annotations

import itertools
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from openpai_tasks.protocol import validate
from openpai_tasks.server.engines.base import TaskExit
from openpai_tasks.server.scheduling.progress import Progress
from openpai_tasks.server.scheduling.queries import SchedulerQueries
from openpai_tasks.server.state.database import Database
from openpai_tasks.server.state.state import SCHEMA, State
from tests.server.workshop import Workshop, document, role, until, workshop

__all__ = ["workshop"]  # the fixture
Make = Callable[..., Workshop]


class CountedDatabase(Database):
    """Counts the instructions of SQLite's virtual machine, and the statements."""

    steps = 0
    statements: list[str]

    def _connect(self) -> sqlite3.Connection:
        connection = super()._connect()
        connection.execute("SELECT * FROM sqlite_master").fetchall()  # the schema is read once
        connection.set_progress_handler(self._count, 1)
        connection.set_trace_callback(self._note)
        return connection

    def _count(self) -> int:
        self.steps += 1
        return 0

    def _note(self, statement: str) -> None:
        self.__dict__.setdefault("statements", []).append(statement)


def add_finished(state: State, first: int, end: int) -> None:
    progress = Progress(state)
    with state.database.transaction():
        for number in range(first, end):
            text = document(f"job-{number}", {"main": role("true")})
            job = state.submit("alice", validate(text), text)
            tasks = progress.new_tasks(job, state.document(job.key).roles)
            progress.begin(job, tasks)
            progress.finish(state.tasks(job.key, 0)[0], TaskExit(0))


def work_of_a_start(folder: Path) -> int:
    """Return the steps of opening the database and of one turn without anything to do."""
    database = CountedDatabase(folder / "cluster.db", SCHEMA)
    state, queries = State(database, folder / "jobs"), SchedulerQueries(database)
    assert not (queries.alive() or queries.ending() or any(queries.unfinished()) or queries.stopping())
    assert not (list(queries.heads()) or queries.has_alive() or queries.alive_in(["x"]))
    assert not state.usage() and state.counts().keys() == {"SUCCEEDED"}
    database.close()
    return database.steps


def test_a_start_is_no_more_work_after_many_jobs(tmp_path: Path) -> None:
    works = []
    for first, end in ((0, 20), (20, 400)):
        state = State(Database(tmp_path / "cluster.db", SCHEMA), tmp_path / "jobs")
        add_finished(state, first, end)
        state.database.close()
        works.append(work_of_a_start(tmp_path))
    assert works[0] == works[1]


def writing_transactions(statements: list[str]) -> int:
    """Count the transactions that change something, unlike those of most turns, which depend on time."""
    words = [line.split()[0] for line in statements]
    ends = [word for word in words if word in ("INSERT", "UPDATE", "DELETE", "COMMIT")]
    return sum(after == "COMMIT" != before for before, after in itertools.pairwise(ends))


def test_a_job_takes_few_transactions_and_statements(workshop: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.server.workshop.Database", CountedDatabase)
    here = workshop()
    here.run("first", "true")
    database = here.database
    assert isinstance(database, CountedDatabase)
    database.statements.clear()
    for number in range(10):
        here.submit(f"job-{number}", "true")
    until(lambda: here.state.counts() == {"SUCCEEDED": 11})
    found = [line for line in database.statements if not line.startswith("--")]  # those of triggers
    own = [line for line in found if "job_counts WHERE" not in line]  # without this test's
    assert writing_transactions(own) <= 10 * 4
    named = [line for line in own if "alice~job-" in line]  # not those of each turn, which depend on time
    assert len(named) <= 10 * 33


def test_waiting_jobs_do_not_make_a_turn_more_work(tmp_path: Path) -> None:
    works = []
    for folder, count in ((tmp_path / "few", 20), (tmp_path / "many", 400)):
        database = CountedDatabase(folder / "cluster.db", SCHEMA)
        state, queries = State(database, folder / "jobs"), SchedulerQueries(database)
        with database.transaction():
            for number in range(count):
                text = document(f"job-{number:03}", {"main": role("true")})
                state.submit("alice", validate(text), text)
        database.steps = 0
        (head,) = queries.heads()
        assert head.job.name == "job-000" and len(queries.following(head, 3)) == 3
        assert not (
            any(queries.unfinished()) or queries.stopping() or queries.ending() or queries.has_alive()
        )
        works.append(database.steps)
        database.close()
    assert works[0] == works[1]


def files_below(folder: Path) -> set[str]:
    """Return the paths below a folder, of which some may be removed meanwhile."""
    found = ((parent, name) for parent, *names in os.walk(folder) for name in itertools.chain(*names))
    return {os.path.relpath(os.path.join(*one), folder) for one in found}


def test_a_trivial_job_leaves_few_files(workshop: Make) -> None:
    here = workshop()
    key = here.run("one", "true").key
    folder = here.tasks(key)[0].folder
    logs = {f"logs/{name}" for name in ("all", "stdout", "stderr")}
    until(lambda: files_below(folder) == {"logs", *logs})
    assert [path.name for path in folder.parent.parent.rglob("*")][:2] == ["0", folder.name]
    assert sum(path.stat().st_blocks for path in folder.rglob("*") if path.is_file()) == 0
