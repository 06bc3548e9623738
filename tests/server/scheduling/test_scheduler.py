from __future__ import annotations

import errno
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from openpai_tasks.errors import ConfigError
from openpai_tasks.server.resources import ResourceAmount
from tests.server.workshop import Workshop, role, until, workshop

__all__ = ["workshop"]  # the fixture
Make = Callable[..., Workshop]


def test_a_job_runs_and_its_output_and_exit_code_are_kept(workshop: Make) -> None:
    here = workshop()
    job = here.run("hello", "echo hi; echo oops >&2")
    assert (job.state, job.sub_state, job.exit_code) == ("SUCCEEDED", "Completed", 0)
    assert here.output(job.key) == "hi\n"
    assert here.output(job.key, "stderr") == "oops\n"
    assert sorted(here.output(job.key, "all").split()) == ["hi", "oops"]
    assert job.launched and job.completed and job.submitted <= job.launched <= job.completed


def test_exit_codes_of_command_and_platform_are_both_kept(workshop: Make) -> None:
    here = workshop()
    job = here.run("seven", "exit 7")
    attempt = here.state.attempts(job.key)[0]
    task = here.tasks(job.key)[0]
    assert (job.state, job.exit_code) == ("FAILED", 255)
    assert (attempt.exit_code, attempt.user_exit_code) == (255, 7)
    assert (task.exit_code, task.user_exit_code, task.state) == (255, 7, "FAILED")
    assert (attempt.trigger_role, attempt.trigger_index) == ("main", 0)
    assert attempt.diagnostics == "task main-0 exited with code 7"


def test_signals_and_missing_commands_have_their_own_exit_codes(workshop: Make) -> None:
    here = workshop()
    killed = here.run("killed", "kill -9 $$")
    missing = here.run("missing", "no-such-command")
    assert (killed.exit_code, here.tasks(killed.key)[0].user_exit_code) == (137, 137)
    assert (missing.exit_code, here.tasks(missing.key)[0].user_exit_code) == (220, 127)
    assert "SIGKILL" in here.tasks(killed.key)[0].diagnostics


def test_jobs_of_a_virtual_cluster_run_first_in_first_out(workshop: Make) -> None:
    here = workshop(cpus=1)
    log = here.folder / "order"
    keys = [here.submit(f"job{number}", f"echo {number} >> {log}") for number in range(12)]
    for key in keys:
        here.wait(key)
    assert log.read_text().split() == [str(number) for number in range(12)]


def test_small_job_does_not_overtake_a_larger_waiting_job(workshop: Make) -> None:
    here = workshop(cpus=2)
    gate = here.folder / "gate"
    first = here.submit("first", _wait_for(gate))
    large = here.submit("large", {"main": role("true", cpu=2)})
    small = here.submit("small", "true")
    until(lambda: "Queued" in here.reasons(small))
    assert here.job(first).state == "RUNNING"
    assert (here.job(large).state, here.job(small).state) == ("WAITING", "WAITING")
    assert here.reasons(large)["FailedScheduling"].startswith("needs 2 CPU")
    assert large in here.reasons(small)["Queued"]
    gate.touch()
    assert here.wait(small).launched >= here.wait(large).launched  # type: ignore[operator]


def test_other_virtual_clusters_do_not_wait_for_a_full_one(workshop: Make) -> None:
    here = workshop(
        cpus=2, clusters={"default": ResourceAmount(1, 1000, 0), "other": ResourceAmount(1, 1000, 0)}
    )
    gate = here.folder / "gate"
    here.submit("first", _wait_for(gate))
    second = here.submit("second", "true")
    other = here.run("third", "true", defaults={"virtualCluster": "other"})
    assert other.state == "SUCCEEDED"
    assert here.job(second).state == "WAITING"
    gate.touch()
    assert here.wait(second).state == "SUCCEEDED"


def test_all_tasks_of_a_job_start_together_or_not_at_all(workshop: Make) -> None:
    here = workshop(cpus=3)
    gate = here.folder / "gate"
    here.submit("first", {"main": role(_wait_for(gate), cpu=2)})
    gang = here.submit("gang", {"main": role("true", instances=2)})
    until(lambda: "FailedScheduling" in here.reasons(gang))
    assert here.tasks(gang) == []
    gate.touch()
    assert here.wait(gang).state == "SUCCEEDED"
    started = {task.launched for task in here.tasks(gang)}
    assert len(started) == 1


def test_without_gang_allocation_tasks_start_one_by_one(workshop: Make) -> None:
    here = workshop(cpus=1)
    job = here.run("loose", {"main": role("sleep 0.05", instances=3)}, extras={"gangAllocation": False})
    assert job.state == "SUCCEEDED"
    tasks = sorted(here.tasks(job.key), key=lambda task: task.launched or 0)
    assert all(a.completed <= b.launched for a, b in pairwise(tasks))  # type: ignore[operator]


def test_job_larger_than_the_machine_runs_alone_and_reports_it(workshop: Make) -> None:
    here = workshop(cpus=2)
    gate = here.folder / "gate"
    first = here.submit("first", _wait_for(gate))
    giant = here.submit("giant", {"main": role("sleep 0.1", instances=2, cpu=50)})
    after = here.submit("after", "true")
    until(lambda: "FailedScheduling" in here.reasons(giant))
    gate.touch()
    done = [here.wait(key) for key in (first, giant, after)]
    assert [job.state for job in done] == ["SUCCEEDED"] * 3
    assert done[0].completed <= done[1].launched  # type: ignore[operator]
    assert done[1].completed <= done[2].launched  # type: ignore[operator]
    assert "100 CPU" in here.reasons(giant)["LargerThanCluster"]


def test_gpu_job_runs_alone_on_a_machine_without_gpus(workshop: Make) -> None:
    here = workshop(gpus=0)
    job = here.run("gpus", {"main": role("echo ${CUDA_VISIBLE_DEVICES-unset}", gpu=4)})
    assert job.state == "SUCCEEDED"
    assert here.output(job.key) == "unset\n"
    assert "4 GPU" in here.reasons(job.key)["LargerThanCluster"]


def test_oversized_job_waits_and_is_overtaken_if_limits_are_enforced(workshop: Make) -> None:
    here = workshop(cpus=2, enforce=True)
    giant = here.submit("giant", {"main": role("true", cpu=50)})
    assert here.run("small", "true").state == "SUCCEEDED"
    assert here.job(giant).state == "WAITING"
    assert "cannot start" in here.reasons(giant)["FailedScheduling"]


def test_every_gpu_is_assigned_to_one_task_at_a_time(workshop: Make) -> None:
    here = workshop(cpus=8, gpus=4)
    gate = here.folder / "gate"
    show = 'echo "$CUDA_VISIBLE_DEVICES/$NVIDIA_VISIBLE_DEVICES/$CUDA_DEVICE_ORDER"; ' + _wait_for(gate)
    pair = here.submit("pair", {"main": role(show, gpu=2)})
    single = here.submit("single", {"main": role(show, gpu=1)})
    none = here.submit("none", {"main": role(show)})
    keys = (pair, single, none)
    until(lambda: all(here.job(key).state == "RUNNING" for key in keys))
    until(lambda: all(here.tasks(key) and "PCI" in _output(here, key) for key in keys))
    assert _output(here, pair) == "0,1/0,1/PCI_BUS_ID\n"
    assert _output(here, single) == "2/2/PCI_BUS_ID\n"
    assert _output(here, none) == "/none/PCI_BUS_ID\n"
    assert here.tasks(pair)[0].gpus == (0, 1)
    assert here.state.usage()["default"].gpu == 3
    gate.touch()


def test_tasks_of_a_job_for_more_gpus_than_there_are_share_them(workshop: Make) -> None:
    here = workshop(gpus=1)
    meet = f"touch {here.folder}/$PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX; "
    meet += "; ".join(_wait_for(here.folder / number) for number in "01")
    job = here.run("pair", {"main": role(f"echo $CUDA_VISIBLE_DEVICES; {meet}", instances=2, gpu=1)})
    assert job.state == "SUCCEEDED" and _output(here, job.key) == "0\n"


def test_unused_image_is_reported_once(workshop: Make) -> None:
    here = workshop()
    job = here.run("image", "exit 1", jobRetryCount=1)
    notices = [event for event in here.state.events(job.key) if event.reason == "ImageNotUsed"]
    assert len(notices) == 1 and notices[0].count == 1
    assert "some/image:1" in notices[0].message


def test_many_jobs_all_finish(workshop: Make) -> None:
    here = workshop(cpus=2)
    keys = [here.submit(f"job{number}", "true") for number in range(60)]
    until(lambda: here.state.counts() == {"SUCCEEDED": 60}, 200)
    assert here.state.active() == []
    assert here.state.usage() == {}
    assert all("ImageNotUsed" in here.reasons(key) for key in keys)


def _output(here: Workshop, key: str) -> str:
    return here.output(key) if "stdout" in here.engine.logs(here.tasks(key)[0]) else ""


def _wait_for(gate: object) -> str:
    return f"until test -e {gate}; do sleep 0.01; done"


def test_job_waits_for_space_and_memory_to_start(workshop: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openpai_tasks.server.scheduling.scheduler.POLL_SECONDS", 0.05)
    here = workshop()
    full = ConfigError("cannot create the folder")
    full.__cause__ = OSError(errno.ENOSPC, "No space left on device")
    for owner, name, error in (
        (here.scheduler._launcher, "_launches", full),
        (here.engine, "start", MemoryError()),
        (here.engine, "start", full),
        (here.engine.wakeups, "wait", MemoryError()),
    ):
        errors, works = [error], getattr(owner, name)

        def fail_once(*words: Any, errors: list[Exception] = errors, works: Any = works) -> Any:
            if errors:
                raise errors.pop()
            return works(*words)

        monkeypatch.setattr(owner, name, fail_once)
    key = here.submit("first", "echo ran")
    assert here.wait(key).state == "SUCCEEDED" and here.output(key) == "ran\n"
    assert here.reasons(key)["FailedScheduling"] == "cannot start yet: No space left on device"


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (lambda here: here.scheduler._launcher, "_launches"),
        (lambda here: here.engine, "prepare"),
        (lambda here: here.engine, "start"),
        (lambda here: here.scheduler._progress, "_settle"),
    ],
)
def test_an_internal_error_fails_one_job_and_the_others_go_on(
    workshop: Make, monkeypatch: pytest.MonkeyPatch, owner: Callable[[Workshop], Any], name: str
) -> None:
    here = workshop()
    errors, works = [KeyError("password")], getattr(owner(here), name)

    def fail_once(*words: Any) -> Any:
        if errors:
            raise errors.pop()
        return works(*words)

    monkeypatch.setattr(owner(here), name, fail_once)
    failed = here.run("first", "true")
    assert here.run("second", "true").state == "SUCCEEDED"
    why = [event.message for event in here.state.events(failed.key)]
    assert failed.state == "FAILED" and "password" not in str(why)
    assert any("internal error (KeyError): see the server's log" in line for line in why)
