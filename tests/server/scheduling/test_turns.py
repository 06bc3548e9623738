"""The order of waiting jobs; nothing runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from openpai_tasks.errors import Conflict
from openpai_tasks.protocol import validate
from openpai_tasks.protocol.document.policy import PRIORITIES
from openpai_tasks.server.resources import ResourceAmount
from openpai_tasks.server.scheduling.queries import SchedulerQueries, WaitingJob
from openpai_tasks.server.scheduling.turns import STEP_MS, Turns
from openpai_tasks.server.state.queue_place import describe_place
from openpai_tasks.server.state.state import SCHEMA, State
from tests.server.scheduling.test_growth import CountedDatabase
from tests.server.workshop import document, role

MACHINE = ResourceAmount(4, 1000, 0)


class Queue:
    """A queue that starts one job after the other, each of which ends before the next."""

    def __init__(self, folder: Path) -> None:
        self.database = CountedDatabase(folder / "cluster.db", SCHEMA)
        self.state, self.queries = State(self.database, folder / "jobs"), SchedulerQueries(self.database)
        self.turns = Turns(self.queries)
        self.used: dict[tuple[str, ...], ResourceAmount] = {}

    def add(self, *names: str, user: str = "ann", sweep: str = "", priority: str = "", vc: str = "") -> None:
        extras = {"openpaiSweep": {"name": sweep, "point": {}}} if sweep else {}
        extras |= {"hivedScheduler": {"jobPriorityClass": PRIORITIES[priority]}} if priority else {}
        defaults = {"defaults": {"virtualCluster": vc}} if vc else {}
        made = validate(document("x", {"main": role("true")}, extras=extras, **defaults))
        with self.database.transaction():
            for name in names:
                self.state.submit(user, replace(made, name=name), "")

    def age(self, name: str, steps: int) -> None:
        sql = "UPDATE attempts SET created = created - ? WHERE job LIKE ?"
        self.database.write(sql, [steps * STEP_MS, f"%~{name}"])

    def waiting(self) -> Iterator[WaitingJob]:
        """Yield the waiting jobs in the order in which they start, and start each of them."""
        self.turns.begin(MACHINE, self.used)
        for one in self.turns.in_order(self.queries.heads()):
            self.database.write("UPDATE jobs SET pending = 0 WHERE key = ?", [one.job.key])
            yield one
            self.turns.take(one)
            self.turns.begin(MACHINE, self.used)

    def order(self) -> str:
        return " ".join(one.job.name for one in self.waiting())

    def place(self, name: str, user: str = "ann") -> str:
        return describe_place(self.database, self.state.existing_job(f"{user}~{name}"))


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[Queue]:
    made = Queue(tmp_path)
    yield made
    made.database.close()


def test_a_sweep_of_1000_jobs_does_not_delay_a_later_job_by_more_than_a_turn(queue: Queue) -> None:
    queue.add(*(f"grid-{number}" for number in range(1000)), sweep="grid")
    first = next(queue.waiting())
    queue.turns.take(first)
    queue.add("small")
    assert (
        queue.place("small")
        == "place 2 of 1000 in virtual cluster default; users and their sweeps take turns"
    )
    queue.database.steps = 0
    assert next(queue.waiting()).job.name == "small"
    assert queue.database.steps < 2000


def test_jobs_that_cannot_start_cost_little_although_each_has_its_own_sweep(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(100):
        queue.add(f"one-{number}", sweep=f"sweep-{number}")
    count = 0
    ordered = Turns._order

    def order(turns: Turns, one: WaitingJob, now: int) -> tuple[float, ...]:
        nonlocal count
        count += 1
        return ordered(turns, one, now)

    monkeypatch.setattr(Turns, "_order", order)
    queue.turns.begin(MACHINE, {})
    assert len(list(queue.turns.in_order(queue.queries.heads()))) == 100
    blocked: dict[str, WaitingJob] = {}
    for one in queue.turns.in_order(queue.queries.heads(), blocked):
        blocked["default"] = one
    assert count == 200 and len(blocked) == 1


def test_users_take_turns_and_then_their_sweeps(queue: Queue) -> None:
    queue.add("a1", "a2", "a3", sweep="a")
    queue.add("b1", "b2", sweep="b")
    queue.add("c1", "c2", "c3", "c4", user="bob")
    assert queue.order() == "a1 c1 b1 c2 a2 c3 b2 c4 a3"


def test_the_next_turn_is_of_who_uses_least_of_the_machine(queue: Queue) -> None:
    queue.add("a1", "a2")
    queue.add("b1", "b2", user="bob")
    queue.used = {
        ("default", "ann", ""): ResourceAmount(2, 0, 0),
        ("default", "bob", ""): ResourceAmount(1, 0, 0),
    }
    assert queue.order() == "b1 b2 a1 a2"


def test_a_high_priority_is_before_ones_own_jobs_and_a_low_one_behind_everybodys(queue: Queue) -> None:
    queue.add("low", priority="low")
    queue.add("a1", "a2")
    queue.add("b1", user="bob")
    queue.add("high", priority="high")
    queue.add("c1", "c2", user="carl")
    assert queue.place("low") == (
        "place 7 of 7 in virtual cluster default; 6 jobs of a higher priority first"
    )
    assert queue.place("a2").startswith(
        "place 6 of 7 in virtual cluster default; 1 job of a higher priority "
    )
    assert queue.order() == "high b1 c1 a1 c2 a2 low"


def test_a_low_priority_runs_under_a_stream_of_high_ones(queue: Queue) -> None:
    queue.add("low", priority="low")
    for number in range(2):
        queue.add(f"h{number}", priority="high")
        assert next(queue.waiting()).job.name == f"h{number}"
        queue.age("low", 1)
    queue.add("h2", priority="high")
    assert queue.order() == "low h2"


def test_the_job_that_waits_for_room_keeps_its_turn(queue: Queue) -> None:
    queue.add("large")
    queue.turns.begin(MACHINE, {})
    (large,) = queue.turns.in_order(queue.queries.heads())
    queue.add("b1", user="bob")
    queue.add("c1", user="carl", vc="other")
    queue.used = {("default", "ann", "grid"): ResourceAmount(3, 0, 0)}
    queue.turns.keep({"default": large, "other": large})
    queue.turns.begin(MACHINE, queue.used)
    assert next(queue.turns.in_order(queue.queries.heads())).job.name == "large"
    queue.turns.keep({})
    assert queue.order() == "b1 c1 large"


def test_a_moved_job_is_before_its_owners_others_and_passes_no_other_user(queue: Queue) -> None:
    queue.add("a1", sweep="a")
    queue.add("high", priority="high")
    queue.add("a2", "a3")
    queue.add("b1", "b2", user="bob")
    for name in ("a2", "a3", "a3"):
        queue.state.move_first(f"ann~{name}")
    assert queue.place("a3").startswith("place 1 of 6 ")
    assert queue.order() == "a3 b1 a2 b2 high a1"
    queue.add("a4")
    queue.state.queue_attempt("ann~a3", 1, 0)
    assert queue.order() == "a4 a3"  # the next attempt is at the end again
    with pytest.raises(Conflict, match="job a3 is WAITING: only a job that waits to be started can be moved"):
        queue.state.move_first("ann~a3")


def test_the_jobs_of_an_earlier_release_are_in_the_queue(tmp_path: Path) -> None:
    queue = Queue(tmp_path)
    queue.add("old")
    queue.database.write("DROP INDEX jobs_by_turn")
    for column in ("share", "rank"):
        queue.database.write(f"ALTER TABLE jobs DROP COLUMN {column}")
    queue.database.close()
    again = Queue(tmp_path)
    again.add("new", priority="high")
    assert again.order() == "new old"
    again.database.close()
