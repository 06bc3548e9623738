from __future__ import annotations

from pathlib import Path

from openpai_tasks.protocol import validate
from openpai_tasks.server.engines.machine import LocalEngine
from openpai_tasks.server.resources import ResourceAmount, demand
from openpai_tasks.server.scheduling.allocation import FreeResources
from openpai_tasks.server.state.records import Task
from tests.server.workshop import document, machine, role

MACHINE = ResourceAmount(4, 1000, 2)


def room(enforce: bool = False, **used: ResourceAmount) -> FreeResources:
    shares = {"default": MACHINE, "half": ResourceAmount(2, 500, 1)}
    return FreeResources(MACHINE, shares, used, enforce)


def test_demand_of_a_job_is_the_sum_of_its_instances() -> None:
    text = document("job", {"a": role("x", instances=3, cpu=2, gpu=1), "b": role("x", cpu=-5)})
    assert demand(validate(text)) == ResourceAmount(6, 40, 3)


def test_job_that_fits_may_start_and_others_wait_with_a_reason() -> None:
    assert room().judge("default", ResourceAmount(4, 1000, 2)).start
    answer = room(default=ResourceAmount(1, 0, 0)).judge("default", ResourceAmount(4, 10, 0))
    assert not answer.start and not answer.never_starts
    assert answer.why.startswith("needs 4 CPU, 10 MB, 0 GPU; free in virtual cluster default are 3 CPU")


def test_taken_resources_are_no_longer_free() -> None:
    here = room()
    here.take("default", ResourceAmount(4, 0, 0))
    assert not here.judge("default", ResourceAmount(1, 0, 0)).start


def test_full_share_does_not_limit_other_virtual_clusters() -> None:
    here = room(half=ResourceAmount(2, 0, 0))
    assert not here.judge("half", ResourceAmount(1, 0, 0)).machine_full
    assert here.judge("default", ResourceAmount(2, 0, 0)).start


def test_full_machine_is_distinguished_from_a_full_share() -> None:
    answer = room(default=ResourceAmount(4, 0, 0)).judge("half", ResourceAmount(1, 0, 0))
    assert not answer.start and answer.machine_full


def test_oversized_job_waits_for_an_empty_machine_and_runs_alone() -> None:
    giant = ResourceAmount(100, 10, 0)
    assert room(default=ResourceAmount(0, 1, 0)).judge("default", giant).machine_full
    answer = room().judge("default", giant)
    assert answer.start and "runs alone" in answer.why
    assert not room(default=giant).judge("half", ResourceAmount(0, 10, 0)).start


def test_job_larger_than_its_share_waits_until_its_share_is_empty() -> None:
    large = ResourceAmount(3, 10, 0)
    assert room(default=ResourceAmount(1, 0, 0)).judge("half", large).start
    assert not room(half=ResourceAmount(1, 0, 0)).judge("half", large).start
    assert not room(default=ResourceAmount(2, 0, 0)).judge("half", large).start


def test_oversized_job_can_never_start_if_limits_are_enforced() -> None:
    answer = room(enforce=True).judge("half", ResourceAmount(3, 10, 0))
    assert answer.never_starts and not answer.start


def test_unknown_virtual_cluster_has_no_resources() -> None:
    assert "runs alone" in room().judge("gone", ResourceAmount(1, 1, 0)).why


def test_gpus_are_shared_only_when_there_are_too_few() -> None:
    engine = LocalEngine(machine(gpus=3))
    task = Task("uid", "me~job", 0, "main", 0, 0, "RUNNING", "", 0, "127.0.0.1", Path("task"), gpus=(1,))
    engine.hold([task])
    wanted = {"two": 2, "none": 0, "all": 5}
    assert engine.assign_gpus(wanted) == {"two": (0, 2), "none": (), "all": (0, 1, 2)}
    assert LocalEngine(machine(gpus=0)).assign_gpus({"some": 4}) == {"some": ()}
