"""What jobs had and used in a span of time, by user, tag and sweep."""

from __future__ import annotations

from pathlib import Path

import pytest

from openpai_tasks.server.state import usage_report
from openpai_tasks.server.state.database import Database
from openpai_tasks.server.state.removal import JobRemoval
from openpai_tasks.server.state.state import SCHEMA, State
from openpai_tasks.server.state.usage_report import HOUR, read_report
from openpai_tasks.settings.keeping import KeepLimits
from tests.server.state.test_removal import finish
from tests.server.workshop import role, workshop

__all__ = ["workshop"]  # a fixture

SINCE, UNTIL = 100 * HOUR, 110 * HOUR


@pytest.fixture
def database(tmp_path: Path):
    opened = Database(tmp_path / "cluster.db", SCHEMA)
    yield opened
    opened.close()


def add(
    database: Database, key: str, created: int, *tasks: tuple[int, int | None], state="SUCCEEDED", **known
) -> None:
    """Add a job of 1 GPU and 4 CPUs for each task; times are in hours after SINCE."""
    user, _, name = key.partition("~")
    insert(database, "jobs", key=key, user=user, name=name, state=state)
    hours = [(SINCE + begin * HOUR, None if end is None else SINCE + end * HOUR) for begin, end in tasks]
    ended = max((end for _, end in hours if end), default=None)
    begun = min((begin for begin, _ in hours), default=None)
    over = None if state in ("RUNNING", "WAITING") else ended
    attempt = dict(job=key, state=state, created=SINCE + created * HOUR, launched=begun, completed=over)
    insert(database, "attempts", **attempt)
    for number, (begin, end) in enumerate(hours):
        task = dict(uid=f"{key}{number}", job=key, task_index=number, launched=begin, completed=end)
        insert(database, "tasks", **{**task, "gpu": 1, "gpus": "[0]", "cpu": 4, **known})


def insert(database: Database, table: str, **known: object) -> None:
    """Insert a row; required columns without a value are 0."""
    rows = database.rows(f"PRAGMA table_info({table})")
    names = [row["name"] for row in rows if row["notnull"] or row["pk"] or row["name"] in known]
    values = [known.get(name, 0) for name in names]
    database.write(f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})", values)


def by(database: Database, what: str, user: str = "", parts: int = 0) -> dict[str, dict]:
    return {row["name"]: row for row in read_report(database, what, user, SINCE, UNTIL, parts)}


def test_hours_are_cut_to_the_span_and_those_of_running_tasks_count_until_now(database):
    add(database, "ann~old", -9, (-8, -1))
    add(database, "ann~before", -4, (-2, 3))
    add(database, "ann~runs", 4, (6, None), state="RUNNING")
    add(database, "ann~waits", 8, state="WAITING")
    add(database, "bob~two", 0, (1, 2), (1, 4))
    found = by(database, "user", parts=5)
    ann, bob = found["ann"], found["bob"]
    assert (ann["jobs"], ann["gpu"], ann["cpu"], ann["waited"]) == (3, 7, 28, 4)
    assert (bob["jobs"], bob["gpu"], bob["cpu"], bob["waited"]) == (1, 4, 16, 1)
    assert [gpu for gpu, _ in ann["series"]] == [2, 1, 0, 2, 2]
    assert [cpu for _, cpu in bob["series"]] == [8, 8, 0, 0, 0]
    assert by(database, "user", "ann").keys() == {"ann"}


def test_the_use_is_that_of_tasks_for_which_it_is_known(database):
    add(database, "ann~known", 0, (-1, 3), cpu_seconds=4 * 3600, gpu_percent=50)
    add(database, "ann~unknown", 0, (0, 4))
    row = by(database, "user")["ann"]
    assert (row["gpu"], row["gpu_measured"], row["gpu_used"]) == (7, 3, 1.5)
    assert (row["cpu"], row["cpu_measured"], row["cpu_used"]) == (28, 12, 3)


def test_all_tasks_of_a_failed_attempt_count_as_failed(database):
    add(database, "ann~bad", 0, (0, 1), (0, 2), state="FAILED")
    add(database, "ann~good", 0, (0, 1))
    row = by(database, "user")["ann"]
    assert (row["gpu"], row["gpu_failed"], row["cpu_failed"]) == (4, 3, 12)


def test_gpus_that_the_machine_does_not_have_are_not_counted(database):
    add(database, "ann~without", 0, (0, 1), gpus="[]", state="FAILED")
    add(database, "ann~some", 0, (0, 1), gpu=4, gpus="[0, 1]")
    row = by(database, "user")["ann"]
    assert (row["gpu"], row["gpu_failed"], row["cpu"], row["cpu_failed"]) == (2, 0, 8, 4)
    [row] = read_report(database, "user", "ann", SINCE, UNTIL, 0, places_late=True)
    assert (row["gpu"], row["gpu_failed"]) == (5, 1)


def test_jobs_are_grouped_by_their_tags_or_by_the_sweep_in_their_document(database, tmp_path, workshop):
    add(database, "ann~none", 0, (0, 1))
    add(database, "ann~both", 0, (0, 2))
    for tag in ("x", "y"):
        database.write("INSERT INTO tags VALUES ('ann~both', ?)", [tag])
    assert {name: row["gpu"] for name, row in by(database, "tag").items()} == {"": 1, "x": 2, "y": 2}
    shop = workshop()
    shop.run("grid-1", "true", extras={"openpaiSweep": {"name": "grid", "point": {}}})
    rows = read_report(shop.database, "sweep", "alice", 0, 2**60, 0)
    assert [(row["name"], row["jobs"]) for row in rows] == [("grid", 1)]


def test_the_end_of_the_last_removed_job_is_known(tmp_path):
    state = State(Database(tmp_path / "cluster.db", SCHEMA), tmp_path / "jobs")
    assert usage_report.last_removed_end(state.database) is None
    finish(state, "older", 100)
    finish(state, "newer", 200)
    removal = JobRemoval(state)
    gone = removal.remove(removal.exceeding(KeepLimits(seconds=1)))
    assert usage_report.last_removed_end(state.database) == max(job.completed for job in gone)
    state.database.close()


def test_only_attempts_of_the_span_are_read(database):
    values = {"since": SINCE, "until": UNTIL, "places_late": False}
    plan = [row["detail"] for row in database.rows(f"EXPLAIN QUERY PLAN {usage_report._ATTEMPTS}", values)]
    assert not [line for line in plan if line.startswith("SCAN")], plan


def test_the_mean_use_of_gpus_is_kept_with_a_task_at_its_end(workshop):
    shop = workshop(gpus=2)
    rows = "1000 10 cpu=1:1 gpu0=20:90 gpu1=40:90 gpu0.mb=900:900\\n11000 30 gpu0=60:90\\n"
    key = shop.run("gpus", {"main": role(f"printf '{rows}' >../logs/usage", gpu=2)}).key
    [task] = shop.tasks(key)
    assert (task.gpu, task.gpu_percent) == (2, 45)  # 50 and 40
    plain = shop.run("plain", "true").key
    assert shop.tasks(plain)[0].gpu_percent is None
