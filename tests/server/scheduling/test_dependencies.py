from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from openpai_tasks.errors import ApiError
from openpai_tasks.server.scheduling.queries import SchedulerQueries
from openpai_tasks.server.state.dependencies import DependencyState
from openpai_tasks.server.state.removal import JobRemoval, RemovableJob
from tests.server.workshop import Workshop, until, workshop

__all__ = ["workshop"]  # the fixture
Make = Callable[..., Workshop]


def after(*jobs: str, when: str = "succeeded") -> dict[str, object]:
    return {"extras": {"jobPolicy": {"after": [{"job": job, "when": when} for job in jobs]}}}


def gate_of(here: Workshop) -> tuple[Path, str]:
    gate = here.folder / "gate"
    return gate, f"until test -e '{gate}'; do sleep 0.01; done"


def message(here: Workshop, key: str) -> str:
    return here.state.attempts(key)[-1].diagnostics


def test_a_job_starts_once_all_jobs_it_waits_for_have_succeeded(workshop: Make) -> None:
    here = workshop(cpus=3)
    gate, wait = gate_of(here)
    first, second = here.submit("first", wait), here.submit("second", wait, user="bob")
    third = here.submit("third", "true", **after("first", "bob~second"))
    overtaking = here.run("overtaking", "true")  # it does not hold up the queue
    assert (overtaking.state, here.job(third).state) == ("SUCCEEDED", "WAITING")
    assert here.state.dependencies.of(third) == [
        DependencyState("alice~first", "succeeded", "RUNNING", None),
        DependencyState("bob~second", "succeeded", "RUNNING", None),
    ]
    gate.touch()
    done = here.wait(third)
    assert done.state == "SUCCEEDED"
    assert done.launched >= max(here.wait(first).completed, here.wait(second).completed)  # type: ignore[type-var, operator]
    assert here.state.dependencies.on(first) == [DependencyState(third, "succeeded", "SUCCEEDED", True)]


@pytest.mark.parametrize(
    ("when", "command", "is_met"),
    [
        ("succeeded", "false", False),
        ("ended", "false", True),
        ("failed", "false", True),
        ("failed", "true", False),
    ],
)
def test_the_end_of_a_job_starts_or_stops_what_waits_for_it(
    workshop: Make, when: str, command: str, is_met: bool
) -> None:
    here = workshop()
    gate, wait = gate_of(here)
    here.submit("first", f"{wait}; {command}")
    second = here.submit("second", "true", **after("first", when=when))
    gate.touch()
    assert here.wait(second).state == ("SUCCEEDED" if is_met else "STOPPED")
    word, state = ("fail", "SUCCEEDED") if when == "failed" else ("succeed", "FAILED")
    if not is_met:
        assert message(here, second) == f"job 'first' had to {word} first, and is {state}"
        assert here.reasons(second)["DependencyNotMet"] == message(here, second)


def test_a_retried_job_is_waited_for_until_its_last_attempt(workshop: Make) -> None:
    here = workshop()
    mark = here.folder / "mark"
    here.submit("first", f"test -e '{mark}' || {{ touch '{mark}'; exit 1; }}", jobRetryCount=1)
    second = here.submit("second", "true", **after("first"))
    assert here.wait(second).state == "SUCCEEDED"
    assert here.job("alice~first").attempt == 1


def test_a_chain_of_1000_jobs_stops_when_its_first_job_fails(workshop: Make) -> None:
    here = workshop()
    gate, wait = gate_of(here)
    here.submit("job0", f"{wait}; false")
    with here.database.transaction():
        for number in range(1, 1000):
            here.submit(f"job{number}", "true", **after(f"job{number - 1}"))
    gate.touch()
    assert here.wait("alice~job999").state == "STOPPED"
    assert here.state.counts() == {"FAILED": 1, "STOPPED": 999}
    assert message(here, "alice~job999") == "job 'job998' had to succeed first, and is STOPPED"


def test_waiting_jobs_survive_the_end_of_the_server(workshop: Make) -> None:
    here = workshop()
    gate, wait = gate_of(here)
    here.submit("first", wait)
    second = here.submit("second", "true", **after("first"))
    here.wait("alice~first", "RUNNING")
    here.close()
    gate.touch()
    here.open()
    assert here.wait(second).state == "SUCCEEDED"


def test_a_dependency_that_has_ended_counts_at_once_or_refuses_the_job(workshop: Make) -> None:
    here = workshop()
    here.run("good", "true")
    here.run("bad", "false")
    assert here.run("next", "true", **after("good")).state == "SUCCEEDED"
    assert here.run("cleanup", "true", **after("bad", when="failed")).state == "SUCCEEDED"
    for name, why in (
        ("bad", "job 'bad' had to succeed first, and is FAILED"),
        ("gone", "no job named 'gone', which the job was to wait for"),
        ("never", "no job named 'never', which the job was to wait for"),  # itself
    ):
        with pytest.raises(ApiError, match=why) as caught:
            here.submit("never", "true", **after(name))
        assert caught.value.status == 400
    assert here.state.job("alice~never") is None


def test_a_removed_dependency_keeps_how_it_ended(workshop: Make) -> None:
    here = workshop()
    gate, wait = gate_of(here)
    first = here.run("first", "true")
    here.submit("second", wait)
    third = here.submit("third", "true", **after("first", "second"))
    removed = RemovableJob(first.key, first.completed or 0, 0)
    assert JobRemoval(here.state).remove([removed]) == [removed]
    assert here.state.dependencies.of(third)[0] == DependencyState(first.key, "succeeded", "SUCCEEDED", True)
    gate.touch()
    assert here.wait(third).state == "SUCCEEDED"
    assert here.state.remove(third) and here.state.dependencies.on("alice~second") == []


def test_a_job_that_is_stopped_stops_what_waits_for_it(workshop: Make) -> None:
    here = workshop()
    _, wait = gate_of(here)
    here.submit("first", wait)
    second = here.submit("second", "true", **after("first"))
    third = here.submit("third", "true", **after("second", when="failed"))
    here.state.set_execution(second, "STOP")
    assert here.wait(second).state == "STOPPED"
    assert message(here, second) == "stopped by the user"
    assert here.wait(third).state == "STOPPED"
    assert message(here, third) == "job 'second' had to fail first, and is STOPPED"


def test_a_stopped_job_waits_again_if_it_is_started_with_what_it_waits_for(workshop: Make) -> None:
    here = workshop()
    gate, wait = gate_of(here)
    here.submit("first", f"{wait}; test -e '{gate}2'")
    second = here.submit("second", "true", **after("first"))
    gate.touch()
    assert here.wait(second).state == "STOPPED"
    with pytest.raises(ApiError, match="job 'first' had to succeed first, and is FAILED"):
        here.state.set_execution(second, "START")
    assert here.job(second).state == "STOPPED"
    gate.unlink()
    here.state.set_execution("alice~first", "START")
    here.state.set_execution(second, "START")
    assert here.job(second).state == "WAITING"
    Path(f"{gate}2").touch()
    gate.touch()
    assert here.wait(second).state == "SUCCEEDED"


def test_a_waiting_job_that_is_stopped_and_started_at_once_still_waits(workshop: Make) -> None:
    here = workshop()
    gate, wait = gate_of(here)
    here.submit("first", wait)
    second = here.submit("second", "true", **after("first"))
    with here.database.transaction():  # both before the next turn of the scheduler
        here.state.set_execution(second, "STOP")
        here.state.set_execution(second, "START")
    until(lambda: here.job(second).attempt == 1)
    assert here.job(second).state == "WAITING"
    gate.touch()
    assert here.wait(second).state == "SUCCEEDED"


def test_jobs_that_wait_for_others_cost_a_turn_of_the_scheduler_nothing(workshop: Make) -> None:
    here = workshop()
    _, wait = gate_of(here)
    first = here.submit("first", wait)
    for number in range(20):
        here.submit(f"job{number}", "true", **after("first"))
    here.wait(first, "RUNNING")
    assert list(SchedulerQueries(here.database).heads()) == []
