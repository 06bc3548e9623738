"""A job gets all its ports at once or none, and no job suffers from the requests of another."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from openpai_tasks.server.engines import ports as port_range
from tests.server.workshop import Workshop, role, text, until, workshop

__all__ = ["workshop"]  # the fixture
Make = Callable[..., Workshop]
UNKNOWN_PLUGIN = {"com.microsoft.pai.runtimeplugin": [{"plugin": "no-such-plugin"}]}


@pytest.fixture(autouse=True)
def _few_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the machine have a tenth of its ports: each one is tried before it is assigned."""
    monkeypatch.setattr(port_range, "END", port_range.FIRST + 2500)


def role_with_ports(number: int, command: str = "true", **more: object) -> dict[str, object]:
    return {"main": role(command, ports={"a": number}, **more)}


def wait_for(gate: Path) -> str:
    return f"until test -e {gate}; do sleep 0.05; done"


def test_job_that_requests_too_many_ports_fails_alone(workshop: Make) -> None:
    here = workshop(cpus=1)
    gate = here.folder / "gate"
    first = here.submit("first", wait_for(gate))
    here.wait(first, "RUNNING")
    greedy = [here.submit(f"greedy{number}", role_with_ports(2600)) for number in range(3)]
    waiting = [here.submit(f"waiting{number}", role_with_ports(3)) for number in range(4)]
    gate.touch()
    assert [here.wait(key).state for key in greedy] == ["FAILED"] * 3
    assert [here.wait(key).state for key in [first, *waiting]] == ["SUCCEEDED"] * 5
    assert "asks for 2602 ports" in here.reasons(greedy[0])["CannotRun"]


def test_ports_of_all_instances_are_counted(workshop: Make) -> None:
    here = workshop(cpus=100)
    greedy = here.submit("greedy", role_with_ports(300, instances=9, cpu=0))
    later = here.submit("later", role_with_ports(3))
    assert here.wait(greedy).state == "FAILED"
    assert here.wait(later).state == "SUCCEEDED"


def test_job_waits_for_free_ports_and_reports_the_reason(workshop: Make) -> None:
    here = workshop(cpus=10)
    gate = here.folder / "gate"
    holder = here.submit("holder", role_with_ports(1500, wait_for(gate)))
    here.wait(holder, "RUNNING")
    second = here.submit("second", role_with_ports(1500))
    third = here.submit("third", "true")
    until(lambda: "Queued" in here.reasons(third))
    assert here.job(second).state == "WAITING"
    why = r"needs 1502 ports; free on this machine are \d{1,4} of 2500"  # other programs use some
    assert re.fullmatch(why, here.reasons(second)["FailedScheduling"])
    gate.touch()
    assert [here.wait(key).state for key in (holder, second, third)] == ["SUCCEEDED"] * 3


def test_jobs_submitted_at_once_never_share_a_port(workshop: Make) -> None:
    here = workshop(cpus=10)
    with ThreadPoolExecutor(8) as pool:
        keys = list(pool.map(lambda number: here.submit(f"job{number}", role_with_ports(700)), range(8)))
    jobs = [here.wait(key) for key in keys]
    assert [job.state for job in jobs] == ["SUCCEEDED"] * 8
    held = [(here.tasks(job.key)[0], set(here.tasks(job.key)[0].ports["a"])) for job in jobs]
    for task, ports in held:
        for other, others in held:
            assert task.launched and task.completed and other.launched and other.completed
            together = task.launched < other.completed and other.launched < task.completed
            assert other is task or not together or not ports & others


def test_job_that_cannot_be_launched_releases_its_ports(workshop: Make) -> None:
    here = workshop(cpus=10)
    gate = here.folder / "gate"
    holder = here.submit("holder", role_with_ports(2000, wait_for(gate), cpu=10))
    here.wait(holder, "RUNNING")
    broken = [
        here.submit(f"broken{number}", role_with_ports(2000), extras=UNKNOWN_PLUGIN) for number in range(2)
    ]
    each = [
        here.submit(
            f"each{number}", role_with_ports(2000), extras={**UNKNOWN_PLUGIN, "gangAllocation": False}
        )
        for number in range(2)
    ]
    good = here.submit("good", role_with_ports(2000, cpu=10))
    gate.touch()
    assert [here.wait(key).state for key in (*broken, *each)] == ["FAILED"] * 4
    assert "no-such-plugin" in here.reasons(broken[0])["CannotRun"]
    assert here.wait(good).state == "SUCCEEDED"
    rows = here.database.rows("SELECT count(*) FROM tasks WHERE state = 'WAITING'")
    assert rows[0][0] == 0


def test_ports_stay_assigned_after_a_restart(workshop: Make) -> None:
    here = workshop(cpus=10)
    gate, begun = here.folder / "gate", here.folder / "begun"
    holder = here.submit("holder", role_with_ports(1500, f"echo >{begun}; {wait_for(gate)}"))
    until(begun.exists)
    waiting = here.submit("waiting", role_with_ports(1500))
    until(lambda: "FailedScheduling" in here.reasons(waiting))
    here.close()
    here.open()
    after = here.submit("after", role_with_ports(900))
    until(lambda: "Queued" in here.reasons(after))
    assert (here.job(holder).state, here.job(waiting).state) == ("RUNNING", "WAITING")
    gate.touch()
    assert [here.wait(key).state for key in (holder, waiting, after)] == ["SUCCEEDED"] * 3
    assert text(begun)


def test_ports_that_an_earlier_release_never_released_are_free(workshop: Make) -> None:
    here = workshop(cpus=10)
    done = here.run("done", role_with_ports(2000))
    here.database.write("UPDATE tasks SET state = 'WAITING' WHERE job = ?", [done.key])
    assert here.run("next", role_with_ports(2000)).state == "SUCCEEDED"
