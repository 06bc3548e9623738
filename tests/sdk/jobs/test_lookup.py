"""Jobs: commands that hints suggest, GPU-hours, exit codes and their meanings."""

from types import SimpleNamespace

import pytest

from openpai_tasks.protocol.models import JobInfo, job_from_detail, job_from_summary
from openpai_tasks.sdk.jobs import lookup
from openpai_tasks.sdk.jobs.dependencies import MOST_DEPENDENTS, stopped_dependents
from tests.hostile import client_of


@pytest.mark.parametrize(("user", "name"), [("ann", "train"), ("bob", "'bob~train'")])
def test_suggested_commands_name_the_user_of_another_users_job(user, name):
    job = JobInfo("train", user, "FAILED", "default", 1, 1, 1, 1, 1, 0, 0, 0, 1, ())
    suggested = lookup.command_for(SimpleNamespace(user="ann"), "job.logs", job, "--follow")
    assert suggested == f"pai job.logs {name} --follow"


HOUR = 3_600_000


def listed(user, gpus, hours, state="SUCCEEDED"):
    times = {"submissionTime": 1, "launchedTime": HOUR, "completedTime": round(HOUR + hours * HOUR)}
    return job_from_summary(
        {"name": "x", "username": user, "state": state, "totalGpuNumber": gpus, "appExitCode": 0, **times}
    )


def test_gpu_hours_are_gpus_times_hours():
    assert listed("ann", 4, 1.5).gpu_hours == 6.0
    assert listed("ann", None, 1.5).gpu_hours is None
    waiting = job_from_summary({"name": "x", "state": "WAITING", "totalGpuNumber": 4})
    assert waiting.gpu_hours == 0.0


def test_summary_has_a_row_for_each_user_those_with_most_gpu_hours_first():
    jobs = [listed("ann", 1, 1), listed("bob", 4, 2), listed("ann", 2, 0.5, "FAILED"), listed("eve", 0, 9)]
    rows = lookup.summarise_users([*jobs, job_from_summary({"username": "ann", "state": "WAITING"})])
    assert [(row.user, row.jobs, row.waiting, row.failed, row.gpu_hours) for row in rows] == [
        ("bob", 1, 0, 0, 8.0),
        ("ann", 3, 1, 1, 2.0),
        ("eve", 1, 0, 0, 0.0),
    ]
    [row] = lookup.summarise_users([listed("ann", 2, 1, "RUNNING"), listed("ann", 1, 1)])
    assert (row.running, row.gpus) == (1, 2)


def test_gpus_of_a_described_job_come_from_the_list(serve):
    rows = [
        {"name": f"train{end}", "username": "alice", "totalGpuNumber": count}
        for end, count in (("-2", 1), ("", 8))
    ]
    client = client_of(serve({"GET /rest-server/api/v2/jobs": rows}))
    body = {"jobStatus": {"username": "alice", "state": "RUNNING", "appLaunchedTime": 1}}
    started = job_from_detail(body, "alice~train")
    assert lookup.count_gpus(client, started).gpus == 8
    unknown = job_from_detail(body, "alice~unknown")
    assert lookup.count_gpus(client, unknown) == unknown
    broken = client_of(serve({}))
    assert lookup.count_gpus(broken, started) == started


def ended(code, message="", state="FAILED", **status):
    task = {
        "taskIndex": 0,
        "taskState": state,
        "containerExitCode": code,
        "containerExitDiagnostics": message,
    }
    body = {"jobStatus": {"state": state, "appExitCode": code, **status}}
    return job_from_detail({**body, "taskRoles": {"main": {"taskStatuses": [task]}}}, "ann~x")


def test_the_exit_code_of_a_command_is_never_the_platforms():
    assert (ended(255).exit_code, ended(255).tasks[0].exit_code) == (None, None)
    assert (ended(255).platform_exit_code, ended(255).tasks[0].platform_exit_code) == (255, 255)
    assert ended(0, state="SUCCEEDED").exit_code == 0
    assert ended(0, state="SUCCEEDED").tasks[0].exit_code == 0
    assert ended(255, "the task exited with code 3").tasks[0].exit_code == 3
    assert ended(255, "the task exited with code 3").exit_code == 3
    assert ended(137, "was ended by SIGKILL (exit code 137)").exit_code == 137
    assert ended(-210, "exited with code 5", state="STOPPED").exit_code is None
    assert ended(-210, state="STOPPED").tasks[0].exit_code is None
    assert listed("ann", 0, 1).exit_code == 0 and listed("ann", 0, 1, "FAILED").exit_code is None


def test_the_platforms_exit_code_has_its_meaning():
    assert ended(255).platform_end == "255 (PAIRuntimeUnknownFailed): the command failed"
    assert ended(0, state="SUCCEEDED").platform_end == ""
    assert ended(199).platform_end == "199"
    spec = {"phrase": "Theirs", "reason": "their words"}
    assert ended(255, appExitSpec=spec).platform_end == "255 (Theirs): their words"


def test_an_endless_chain_of_dependents_ends():
    def job(key: str) -> JobInfo:
        later = {"job": f"ann~job{int(key[7:]) + 1}", "when": "succeeded", "state": "STOPPED", "met": False}
        return job_from_detail({"dependents": [later], "jobStatus": {"username": "ann"}}, key)

    client = SimpleNamespace(user="ann", job=job)
    assert len(stopped_dependents(client, job("ann~job0"))) == MOST_DEPENDENTS
