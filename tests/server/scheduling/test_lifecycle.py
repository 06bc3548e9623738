from __future__ import annotations

import signal
import time
from collections.abc import Callable

import pytest

from openpai_tasks.errors import Conflict, NotFound
from openpai_tasks.server.state.dependencies import DependencyState
from openpai_tasks.server.state.records import Task
from tests.server.workshop import Workshop, role, until, workshop

__all__ = ["workshop"]  # the fixture
Make = Callable[..., Workshop]
LONG = "exec sleep 600"


def test_failed_job_is_retried_as_often_as_it_allows(workshop: Make) -> None:
    here = workshop()
    job = here.run("again", "echo $FC_FRAMEWORK_ATTEMPT_ID; exit 3", jobRetryCount=2)
    attempts = here.state.attempts(job.key)
    assert (job.state, job.attempt, job.user_retries, job.platform_retries) == ("FAILED", 2, 2, 0)
    assert [one.id for one in attempts] == [0, 1, 2]
    assert [one.sub_state for one in attempts] == ["AttemptCompleted", "AttemptCompleted", "Completed"]
    assert [one.user_exit_code for one in attempts] == [3, 3, 3]
    assert [here.state.tasks(job.key, one.id)[0].folder.exists() for one in attempts] == [True] * 3
    assert here.output(job.key) == "2\n"


def test_a_retry_that_succeeds_ends_the_retries(workshop: Make) -> None:
    here = workshop()
    mark = here.folder / "mark"
    job = here.run("second", f"test -e {mark} || {{ touch {mark}; exit 1; }}", jobRetryCount=5)
    assert (job.state, job.exit_code, job.attempt) == ("SUCCEEDED", 0, 1)


def test_permanent_failure_is_not_retried(workshop: Make) -> None:
    here = workshop()
    job = here.run("missing", "no-such-command", jobRetryCount=3)
    assert (job.state, job.attempt, job.exit_code) == ("FAILED", 0, 220)


def test_transient_failure_counts_as_a_platform_retry_up_to_the_limit(workshop: Make) -> None:
    here = workshop()
    job = here.run("killed", "kill -9 $$", jobRetryCount=1)
    assert (job.attempt, job.user_retries, job.platform_retries) == (1, 0, 1)


def test_single_task_is_retried_without_gang_allocation(workshop: Make) -> None:
    here = workshop()
    mark = here.folder / "mark"
    flaky = role(f"test -e {mark} || {{ touch {mark}; exit 4; }}", taskRetryCount=2)
    job = here.run("flaky", {"main": flaky}, extras={"gangAllocation": False})
    tries = here.state.task_attempts(job.key, 0, "main", 0)
    assert (job.state, job.attempt) == ("SUCCEEDED", 0)
    assert [(task.attempt, task.state, task.user_exit_code) for task in tries] == [
        (1, "SUCCEEDED", 0),
        (0, "FAILED", 4),
    ]
    assert len(here.tasks(job.key)) == 1


def test_single_task_is_not_retried_with_gang_allocation(workshop: Make) -> None:
    here = workshop()
    job = here.run("gang", {"main": role("exit 4", taskRetryCount=2)})
    assert (job.state, here.tasks(job.key)[0].attempt) == ("FAILED", 0)


def test_the_first_failed_task_fails_the_job_and_the_others_are_stopped(workshop: Make) -> None:
    here = workshop(cpus=4)
    up = here.folder / "up"
    bad = f"until test -e {up}0 -a -e {up}1; do sleep 0.01; done; exit 9"
    good = f"touch {up}$PAI_TASK_INDEX; {LONG}"
    job = here.run("one", {"bad": role(bad), "good": role(good, instances=2)})
    assert (job.state, job.exit_code) == ("FAILED", 255)
    tasks = {f"{task.role}{task.index}": task for task in here.tasks(job.key)}
    assert tasks["bad0"].user_exit_code == 9
    assert [(tasks[name].state, tasks[name].exit_code) for name in ("good0", "good1")] == [
        ("STOPPED", -220)
    ] * 2
    assert tasks["good0"].user_exit_code == 128 + signal.SIGTERM


def test_failures_that_the_role_allows_do_not_end_the_job(workshop: Make) -> None:
    here = workshop(cpus=4)
    some = role("exit $PAI_TASK_INDEX", instances=3, completion={"minFailedInstances": 3})
    job = here.run("some", {"main": some})
    assert (job.state, job.exit_code) == ("SUCCEEDED", 0)
    assert [task.user_exit_code for task in here.tasks(job.key)] == [0, 1, 2]


def test_a_role_that_has_fully_succeeded_ends_the_job(workshop: Make) -> None:
    here = workshop(cpus=4)
    job = here.run("worker", {"ps": role(LONG), "worker": role("sleep 0.1", instances=2)})
    assert job.state == "SUCCEEDED"
    assert {task.role: task.state for task in here.tasks(job.key)} == {"ps": "STOPPED", "worker": "SUCCEEDED"}


def test_with_both_rules_off_the_job_waits_for_every_task(workshop: Make) -> None:
    here = workshop(cpus=4)
    off = {"minFailedInstances": -1, "minSucceededInstances": -1}
    roles = {"a": role("exit 5", completion=off), "b": role("sleep 0.2", completion=off)}
    job = here.run("off", roles)
    assert (job.state, [task.state for task in here.tasks(job.key)]) == ("SUCCEEDED", ["FAILED", "SUCCEEDED"])


def test_a_running_job_is_stopped_with_all_its_processes(workshop: Make) -> None:
    here = workshop()
    key = here.submit("stop", "trap 'echo bye; exit 5' TERM; echo up; while :; do sleep 0.01; done")
    until(lambda: here.tasks(key) and "stdout" in here.engine.logs(here.tasks(key)[0]))
    until(lambda: here.output(key) == "up\n")
    here.state.set_execution(key, "STOP")
    assert here.job(key).state in ("STOPPING", "STOPPED")
    job = here.wait(key)
    assert (job.state, job.exit_code, job.execution) == ("STOPPED", -210, "STOP")
    task = here.tasks(key)[0]
    assert (task.state, task.exit_code, task.user_exit_code) == ("STOPPED", -210, 5)
    assert here.output(key) == "up\nbye\n"


KEEP = {"jobPolicy": {"keepFailedSeconds": 600}}


def kept_task(here: Workshop, key: str) -> Task:
    return until(lambda: next((task for task in here.tasks(key) if task.kept), None))


def test_failed_task_is_kept_with_its_cause_until_the_job_is_stopped(workshop: Make) -> None:
    """The next server knows it, and the job has failed although its owner stopped it."""
    here = workshop()
    fails = "echo 'MemoryError: too large' >&2; exit 7"
    key = here.submit("kept", {"main": role(fails), "other": role(LONG)}, extras=KEEP)
    task = kept_task(here, key)
    assert (task.state, task.user_exit_code, task.completed) == ("RUNNING", 7, None)
    assert "MemoryError" in task.cause and task.kept and task.kept / 1000 > time.time()
    [row] = here.state.jobs_by_key([key])  # RUNNING: so is the other task, and the job has not failed yet
    assert (row.state, row.user_exit_code, row.cause, row.kept_until) == ("RUNNING", 7, task.cause, task.kept)
    waiting = here.submit("next", "true", extras={"jobPolicy": {"after": [{"job": "kept"}]}})
    assert here.state.dependencies.of(waiting) == [DependencyState(key, "succeeded", "RUNNING", None, True)]
    with pytest.raises(Conflict, match="job next waits for other jobs: it can be moved once they have ended"):
        here.state.move_first(waiting)
    events = {event.reason: event.message for event in here.state.events(key)}
    assert events["TaskFailed"] == "the task exited with code 7; its environment is kept"
    assert "nobody can log in" in events["NoSsh"]
    here.close()
    here.open()
    assert kept_task(here, key) == task
    here.state.set_execution(key, "STOP")
    job, attempt = here.wait(key), here.state.attempt(key, 0)
    assert attempt and (job.state, attempt.user_exit_code, attempt.cause) == ("FAILED", 7, task.cause)
    assert (here.tasks(key)[0].state, here.tasks(key)[0].user_exit_code) == ("FAILED", 7)


def test_kept_task_ends_after_its_time_with_its_exit_code(workshop: Make) -> None:
    here = workshop()
    job = here.run("kept", "kill -9 $BASHPID", extras={"jobPolicy": {"keepFailedSeconds": 2}})
    assert (job.state, here.tasks(job.key)[0].user_exit_code) == ("FAILED", 137)
    assert here.output(job.key, "stderr").startswith("keep-failed: alice~kept main-0: exit code 137; ")
    assert (
        job.completed and job.launched and job.completed - job.launched >= 900
    )  # the shell counts whole seconds


def test_job_that_succeeds_is_not_kept(workshop: Make) -> None:
    here = workshop()
    job = here.run("fine", "trap 'echo own' EXIT; echo out", extras=KEEP)
    assert (job.state, here.output(job.key)) == ("SUCCEEDED", "out\nown\n")


def test_only_the_last_failure_of_a_retried_job_is_kept(workshop: Make) -> None:
    here = workshop()
    key = here.submit("again", "exit 7", jobRetryCount=1, extras=KEEP)
    until(lambda: here.job(key).attempt == 1)
    assert kept_task(here, key).job_attempt == 1
    here.state.set_execution(key, "STOP")
    assert (here.wait(key).state, here.job(key).attempt) == ("FAILED", 1)


def test_stopped_job_is_not_kept(workshop: Make) -> None:
    here = workshop()
    key = here.submit("stop", "trap 'exit 5' TERM; echo up; while :; do sleep 0.01; done", extras=KEEP)
    until(lambda: here.tasks(key) and "stdout" in here.engine.logs(here.tasks(key)[0]))
    until(lambda: here.output(key) == "up\n")
    here.state.set_execution(key, "STOP")
    assert here.wait(key).state == "STOPPED"
    assert (here.tasks(key)[0].user_exit_code, here.tasks(key)[0].kept) == (5, 0)


def test_stopped_job_is_not_retried(workshop: Make) -> None:
    here = workshop()
    key = here.submit("stop", LONG, jobRetryCount=5)
    here.wait(key, "RUNNING")
    here.state.set_execution(key, "STOP")
    assert (here.wait(key).state, here.job(key).attempt) == ("STOPPED", 0)


def test_task_that_ignores_sigterm_is_killed_after_the_grace_period(workshop: Make) -> None:
    here = workshop(grace=0.5)
    key = here.submit("deaf", "trap '' TERM; echo up; while :; do sleep 0.01; done")
    until(lambda: here.tasks(key) and "stdout" in here.engine.logs(here.tasks(key)[0]))
    until(lambda: here.output(key) == "up\n")
    began = time.monotonic()
    here.state.set_execution(key, "STOP")
    assert here.wait(key).state == "STOPPED"
    assert time.monotonic() - began >= 0.5
    assert here.tasks(key)[0].user_exit_code == 137


def test_a_waiting_job_that_is_stopped_never_runs(workshop: Make) -> None:
    here = workshop(cpus=1)
    first = here.submit("first", LONG)
    second = here.submit("second", f"touch {here.folder / 'ran'}")
    here.state.set_execution(second, "STOP")
    assert (here.wait(second).state, here.job(second).exit_code) == ("STOPPED", -210)
    here.state.set_execution(first, "STOP")
    here.wait(first)
    assert not (here.folder / "ran").exists()


def test_start_gives_a_stopped_job_a_new_attempt(workshop: Make) -> None:
    here = workshop()
    key = here.submit("twice", "test $FC_FRAMEWORK_ATTEMPT_ID = 1 || sleep 600")
    here.wait(key, "RUNNING")
    here.state.set_execution(key, "STOP")
    here.wait(key, "STOPPED")
    here.state.set_execution(key, "START")
    job = here.wait(key, "SUCCEEDED")
    assert (job.attempt, job.execution, job.user_retries) == (1, "START", 0)
    assert [one.state for one in here.state.attempts(key)] == ["STOPPED", "SUCCEEDED"]


def test_start_while_a_job_is_being_stopped_starts_it_again_afterwards(workshop: Make) -> None:
    here = workshop()
    key = here.submit("twice", "test $FC_FRAMEWORK_ATTEMPT_ID = 1 || sleep 600")
    here.wait(key, "RUNNING")
    here.state.set_execution(key, "STOP")
    here.state.set_execution(key, "START")
    assert here.wait(key, "SUCCEEDED").attempt == 1


def test_start_of_a_running_job_changes_nothing(workshop: Make) -> None:
    here = workshop()
    gate = here.folder / "gate"
    key = here.submit("once", f"until test -e {gate}; do sleep 0.01; done")
    here.wait(key, "RUNNING")
    here.state.set_execution(key, "START")
    gate.touch()
    assert (here.wait(key).state, here.job(key).attempt) == ("SUCCEEDED", 0)


def test_stopping_a_finished_job_keeps_its_result(workshop: Make) -> None:
    here = workshop()
    job = here.run("done", "true")
    here.state.set_execution(job.key, "STOP")
    assert (here.job(job.key).state, here.job(job.key).execution) == ("SUCCEEDED", "STOP")


def test_many_jobs_stopped_at_once_all_stop(workshop: Make) -> None:
    here = workshop(cpus=5)
    keys = [here.submit(f"job{number}", LONG) for number in range(10)]
    for key in keys:
        here.state.set_execution(key, "STOP")
    assert {here.wait(key).state for key in keys} == {"STOPPED"}
    assert here.state.usage() == {}


def test_a_name_can_be_used_once_by_each_user(workshop: Make) -> None:
    here = workshop()
    here.submit("name", "true")
    with pytest.raises(Conflict, match="name of user alice exists"):
        here.submit("name", "true")
    assert here.submit("name", "true", user="bob") == "bob~name"


def test_an_unknown_job_cannot_be_stopped(workshop: Make) -> None:
    with pytest.raises(NotFound):
        workshop().state.set_execution("alice~none", "STOP")


def test_job_with_too_many_tasks_for_the_machine_fails_with_a_reason(workshop: Make) -> None:
    here = workshop()
    job = here.run("crowd", {"main": role("true", instances=1_000_000)})
    assert (job.state, job.exit_code) == ("FAILED", -200)
    assert "1000000 tasks" in here.state.attempts(job.key)[0].diagnostics
