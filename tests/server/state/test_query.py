"""The work of a job list does not grow with the number of jobs; counted, not timed."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from openpai_tasks.protocol import validate
from openpai_tasks.server.state.database import Database
from openpai_tasks.server.state.query import MOST_MERGED, ORDERS, STARTS, JobQuery, Statement
from openpai_tasks.server.state.state import SCHEMA, State
from tests.server.workshop import document, role

FILTERS: dict[str, tuple[str, ...]] = {
    "users": ("alice", "bob"),
    "virtual_clusters": ("default", "other"),
    "states": ("WAITING", "RUNNING", "STOPPING"),
    "priorities": ("default", "prod"),
    "tags": ("red", "round"),
    "without_tags": ("green",),
}
COMBINED = [
    dict(chosen)
    for number in range(len(FILTERS) + 1)
    for chosen in itertools.combinations(FILTERS.items(), number)
]
EARLIER_SCHEMA = """
DROP TABLE job_counts; DROP TRIGGER job_added; DROP TRIGGER job_removed; DROP TRIGGER job_changed;
CREATE INDEX jobs_by_state ON jobs (state); CREATE INDEX jobs_by_time ON jobs (submitted);
"""


@pytest.fixture
def state(tmp_path: Path) -> Iterator[State]:
    database = Database(tmp_path / "cluster.db", SCHEMA)
    yield State(database, tmp_path / "jobs")
    database.close()


@pytest.fixture
def file(tmp_path: Path, state: State) -> Iterator[sqlite3.Connection]:
    """A connection to count with; it only reads."""
    connection = sqlite3.connect(tmp_path / "cluster.db")
    yield connection
    connection.close()


def submit(state: State, name: str, user: str = "alice", **more: object) -> str:
    text = document(name, {"main": role("true")}, **more)
    return state.submit(user, validate(text), text).key


def fill(state: State, first: int, end: int) -> None:
    """Add finished jobs like the job ``model``."""
    columns = [row["name"] for row in state.database.rows("PRAGMA table_info(jobs)")]
    model = state.database.row("SELECT * FROM jobs WHERE name = 'model'")
    assert model
    with state.database.transaction():
        for number in range(first, end):
            new = {"name": f"job-{number}", "key": f"alice~job-{number}", "queued": number + 10}
            new |= {"submitted": number, "pending": 0, "state": "SUCCEEDED", "completed": number}
            row = {**dict(model), **new}
            state.database.write(
                f"INSERT INTO jobs VALUES ({', '.join('?' * len(columns))})", [row[name] for name in columns]
            )


def plan(file: sqlite3.Connection, statement: Statement) -> list[str]:
    return [row[3] for row in file.execute(f"EXPLAIN QUERY PLAN {statement[0]}", statement[1])]


def steps(file: sqlite3.Connection, statement: Statement) -> int:
    """Return the number of instructions of SQLite's virtual machine that the statement takes."""
    taken = [0]

    def count() -> int:
        taken[0] += 1
        return 0

    file.execute(*statement).fetchall()  # the first time, it also reads the schema
    file.set_progress_handler(count, 1)
    file.execute(*statement).fetchall()
    file.set_progress_handler(None, 0)
    return taken[0]


@pytest.mark.parametrize("order", ORDERS)
def test_every_list_is_read_in_order_from_an_index(file: sqlite3.Connection, order: str) -> None:
    for filters, descending in itertools.product(COMBINED, (True, False)):
        query = JobQuery(order=order, descending=descending, **filters)  # type: ignore[arg-type]
        for start in ("", *query.starts()):
            lines = plan(file, query.page(start))
            assert not [line for line in lines if "TEMP B-TREE" in line], (filters, start)
            read = [line for line in lines if line.startswith(("SCAN", "SEARCH"))]
            assert read and all(" COVERING INDEX " in line for line in read), (filters, start)


def test_lists_by_default_start_from_the_chosen_values(file: sqlite3.Connection) -> None:
    for name, column in STARTS.items():
        query = JobQuery(**{name: FILTERS[name]})  # type: ignore[arg-type]
        assert query.starts() == [name]
        searched = [line for line in plan(file, query.page(name)) if line.startswith(("SCAN", "SEARCH"))]
        wanted = f"SEARCH jobs USING COVERING INDEX of_{column} ({column}=?)"
        assert searched == [wanted] * len(FILTERS[name])


def test_counts_without_keyword_or_tags_read_no_job(file: sqlite3.Connection) -> None:
    counted = {name: FILTERS[name] for name in ("users", "virtual_clusters", "states", "priorities")}
    for number in range(len(counted) + 1):
        for chosen in itertools.combinations(counted.items(), number):
            query = JobQuery(**dict(chosen))  # type: ignore[arg-type]
            assert not [line for line in plan(file, query.count()) if " jobs" in line]


@pytest.mark.parametrize(
    "filters",
    [{}, {"users": ("alice",)}, {"states": ("RUNNING", "FAILED")}, {"virtual_clusters": ("default",)}],
)
def test_more_jobs_are_no_more_work(
    state: State, file: sqlite3.Connection, filters: dict[str, tuple[str, ...]]
) -> None:
    submit(state, "model")
    query = JobQuery(limit=50, **filters)  # type: ignore[arg-type]
    statements = [query.count(), *(query.page(start) for start in query.starts() or [""])]
    fill(state, 0, 200)
    few = [steps(file, statement) for statement in statements]
    fill(state, 200, 4000)
    assert [steps(file, statement) for statement in statements] == few


def test_a_list_starts_from_the_filter_with_the_fewest_jobs(state: State) -> None:
    submit(state, "model")
    fill(state, 0, 100)
    asked: list[str] = []
    query = JobQuery(users=("alice",), states=("WAITING",))
    page = query.page

    class Watched(JobQuery):
        def page(self, start: str = "") -> Statement:
            asked.append(start)
            return page(start)

    found = state.jobs(Watched(users=("alice",), states=("WAITING",)))
    assert asked == ["states"] and [job.name for job in found] == ["model"]


def test_many_values_of_a_filter_are_checked_one_job_after_the_other(state: State) -> None:
    submit(state, "one", "user-3")
    users = tuple(f"user-{number}" for number in range(MOST_MERGED + 1))
    query = JobQuery(users=users)
    assert query.starts() == [] and [job.name for job in state.jobs(query)] == ["one"]


def test_repeated_values_list_a_job_once(state: State) -> None:
    submit(state, "one")
    query = JobQuery(users=("alice", "alice"))
    assert (state.count(query), len(state.jobs(query))) == (1, 1)


def test_merged_values_keep_the_order_and_the_page(state: State) -> None:
    names = [f"job-{number}" for number in range(6)]
    for number, name in enumerate(names):
        submit(state, name, ("alice", "bob", "carol")[number % 3])
    query = JobQuery(users=("bob", "alice"), offset=1, limit=2)
    assert [job.name for job in state.jobs(query)] == ["job-3", "job-1"]
    assert state.count(query) == 4


def test_counts_follow_every_change(state: State) -> None:
    key = submit(state, "one")
    submit(state, "two", "bob", extras={"hivedScheduler": {"jobPriorityClass": "prod"}})
    assert state.counts() == {"WAITING": 2}
    state.database.write("UPDATE jobs SET state = 'FAILED' WHERE key = ?", [key])
    assert state.counts() == {"WAITING": 1, "FAILED": 1}
    assert state.count(JobQuery(priorities=("default",))) == 1
    assert state.count(JobQuery(states=("FAILED",), users=("bob",))) == 0
    assert state.remove(key) and state.counts() == {"WAITING": 1}
    with pytest.raises(ZeroDivisionError), state.database.transaction():
        submit(state, "three")
        raise ZeroDivisionError
    assert state.counts() == {"WAITING": 1}


def test_a_database_of_an_earlier_release_gets_indexes_and_counts(tmp_path: Path) -> None:
    path = tmp_path / "cluster.db"
    earlier = Database(path, SCHEMA)
    state = State(earlier, tmp_path / "jobs")
    submit(state, "one")
    submit(state, "two", "bob")
    earlier.close()
    with sqlite3.connect(path) as connection:
        for name in (
            [f"by_{order}" for order in ORDERS] + [f"of_{column}" for column in STARTS.values()] + ["states"]
        ):
            connection.execute(f"DROP INDEX {name}")
        connection.executescript(EARLIER_SCHEMA)
    connection.close()
    for _ in range(2):  # the second start has nothing to add
        database = Database(path, SCHEMA)
        again = State(database, tmp_path / "jobs")
        assert again.count(JobQuery()) == 2 and again.count(JobQuery(users=("bob",))) == 1
        assert [job.name for job in again.jobs(JobQuery(order="jobName"))] == ["two", "one"]
        indexes = {
            row["name"] for row in database.rows("SELECT name FROM sqlite_master WHERE type = 'index'")
        }
        assert not indexes & {"jobs_by_state", "jobs_by_time"}
        database.close()
