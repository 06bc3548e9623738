"""Responses of real OpenPAI servers, and how the commands show them."""

import json

import pytest

from tests.protocol.test_diagnostics import DUMPS, STDERR
from tests.scripted import Reply

API = "/rest-server/api/v2"
JOB = f"{API}/jobs/ann~train"
MINUTE = 60_000
START = 1_700_000_000_000

SPEC = {
    "code": 255,
    "phrase": "PAIRuntimeUnknownFailed",
    "type": "UNKNOWN_FAILURE",
    "reaction": "RETRY_TO_MAX",
    "reason": "User command failed but the failure cannot be recognized by PAI Runtime",
    "repro": ["User program directly exits with exitcode 1"],
    "solution": ["Check container log and find root cause", "Wait result from next retry"],
}
KILLED = {
    **SPEC,
    "code": 137,
    "phrase": "ContainerSigKillReceived",
    "reaction": "ALWAYS_RETRY",
    "reason": "Container killed by OS Signal: SIGKILL",
    "solution": ["Wait result from next retry", "Contact Cluster Admin"],
}


def detail(tasks=(), **status):
    standing = {
        "username": "ann",
        "state": "FAILED",
        "subState": "Completed",
        "executionType": "START",
        "retries": 0,
        "retryDelayTime": None,
        "createdTime": START,
        "submissionTime": START,
        "launchedTime": START + MINUTE,
        "completedTime": START + 3 * MINUTE,
        "attemptId": 0,
        "virtualCluster": "default",
        "appExitCode": None,
        "appExitSpec": None,
        "appExitDiagnostics": None,
        "appExitMessages": None,
        "appExitTriggerMessage": None,
    }
    role = {"taskRoleStatus": {"name": "worker"}, "taskStatuses": list(tasks)}
    return {"name": "train", "jobStatus": {**standing, **status}, "taskRoles": {"worker": role}, "tags": []}


def task(state="FAILED", **more):
    return {"taskIndex": 0, "taskState": state, "attemptId": 0, "completedTime": START + MINUTE, **more}


def failed(code=255, spec=SPEC, **more):
    trigger = "FailedTaskCount 1 has reached MinFailedTaskCount 1 in the TaskRole"
    end = {"appExitCode": code, "appExitSpec": spec, "appExitTriggerMessage": trigger}
    return detail([task(containerExitCode=code)], **{**end, **more})


def event(reason, message, last="2023-11-14T22:15:00.000Z", **more):
    return {
        "type": "Warning",
        "reason": reason,
        "message": message,
        "count": 3,
        "lastTimestamp": last,
        **more,
    }


# Why it failed


@pytest.mark.parametrize("dump", ("block", "quoted"))
def test_diagnostics_are_short_in_status_and_wait_and_full_in_why(shell, lab, dump):
    lab({f"GET {JOB}": failed(appExitDiagnostics=DUMPS[dump])})
    short = f"exit code 3 (PAIRuntimeUnknownFailed): {STDERR[-1]}"
    status = shell.ok("job.status", "train").out
    assert f"\nbecause: {short}\n" in status and "PAI_RUNTIME" not in status and "Traceback" not in status
    waited = shell.inv("job.wait", "train")
    cause, hint = f"{STDERR[-1]} (train.py, line 3)", "`inv job.why train` says what to do"
    assert (waited.code, waited.err) == (3, f"error: job 'train' failed: {cause}; {hint}\n")
    why = shell.ok("job.why", "train").out
    assert why.startswith(f"train failed: {cause}\n")
    assert "".join(f"  | {line}\n" for line in STDERR) in why
    words = why.splitlines()[-1]
    assert "the platform reports exit code 255 (PAIRuntimeUnknownFailed): the command failed; " in words
    assert "; this ended the job: FailedTaskCount 1 has reached" in words
    assert "Check container log" not in why  # as the cause is known
    assert "PAI_RUNTIME" not in why and "next retry" not in why


def test_diagnostics_are_structured_in_json(shell, lab):
    lab({f"GET {JOB}": failed(appExitDiagnostics=DUMPS["block"])})
    found = shell.ok("job.status", "train", "-o", "json").json()
    assert found["diagnostics"]["user_log"] == STDERR and found["exit_code"] == 3
    assert found["diagnostics"]["solutions"] == SPEC["solution"]


@pytest.mark.parametrize("rest", ["", " and the rest of a line that the platform has cut"])
def test_lines_of_the_log_are_not_shown_twice(shell, lab, rest):
    logs = f"{JOB}/attempts/0/taskRoles/worker/taskIndex/0/attempts/0/logs"
    log = "\n".join(["before", *STDERR]) + f"{rest}\n"
    lab(
        {
            f"GET {JOB}": failed(appExitDiagnostics=DUMPS["block"]),
            f"GET {logs}": {"locations": [{"name": "all", "uri": "/log-manager/10.0.0.1:9103/all"}]},
            "GET /log-manager/10.0.0.1:9103/all": log,
        }
    )
    why = shell.ok("job.why", "train").out
    assert why.count(f"  | {STDERR[-1]}") == 1 and "  | before\n" in why


@pytest.mark.parametrize("diagnostics", [DUMPS["block"][:220], "container died\nno idea why", "", None])
def test_truncated_or_missing_diagnostics_are_tolerated(shell, lab, diagnostics):
    lab({f"GET {JOB}": failed(appExitDiagnostics=diagnostics)})
    for name in ("job.status", "job.why"):
        ran = shell.ok(name, "train")
        assert "PAIRuntimeUnknownFailed" in ran.out or "container died" in ran.out
    assert shell.inv("job.wait", "train").err.count("\n") == 1


def test_why_does_not_advise_to_wait_for_a_retry_if_none_is_left(shell, lab):
    lab({f"GET {JOB}": failed(137, KILLED, appExitDiagnostics="PodPattern matched:\nreason: x\n")})
    why = shell.ok("job.why", "train").out
    assert "SIGKILL" in why and "no retries are left" in why and "--memoryMB" in why
    assert "next retry" not in why and "- Contact Cluster Admin\n" in why


def test_why_does_not_advise_to_wait_on_the_embedded_cluster_either(cluster):
    cluster.inv("job.sub", "kill -KILL $$", "-j", "killed", "--follow")
    why = cluster.ok("job.why", "killed").out
    assert "SIGKILL" in why and "next retry" not in why and "no retries are left" in why


# States


def test_a_job_between_attempts_is_retrying(shell, lab):
    end = {"retries": 2, "attemptId": 2, "completedTime": None, "retryDelayTime": 30}
    between = {
        "state": "RUNNING",
        "subState": "AttemptCompleted",
        "appExitDiagnostics": DUMPS["block"],
        **end,
    }
    row = {"name": "train", "username": "ann", **failed(**between)["jobStatus"]}
    server = lab({f"GET {JOB}": failed(**between), f"GET {API}/jobs": {"totalCount": 1, "data": [row]}})
    found = shell.ok("job.status", "train", "-o", "json").json()
    assert (found["state"], found["retries"], found["exit_code"]) == ("RETRYING", 2, 3)
    header, values = shell.ok("job.status", "train").out.splitlines()[:2]
    assert header.endswith("RETRIES") and values.endswith("2")
    assert "RETRYING" in shell.ok("job.list").out
    for state in ("RETRYING", "WAITING,RETRYING"):
        assert len(shell.ok("job.list", "--state", state, "-o", "json").json()) == 1
        assert set(server.seen[-1].query["state"].split(",")) == {"RUNNING", "WAITING"}
    assert shell.ok("job.list", "--state", "RUNNING", "-o", "json").json() == []
    why = shell.ok("job.why", "train").out
    assert why.startswith(
        "train is RETRYING: attempt 2 (--attempt 2, counted from 0) failed and is retried: "
    )
    assert "job.resubmit" not in why


def test_stop_shows_stopping_until_the_job_has_stopped(shell, lab):
    running = detail([task("RUNNING")], state="RUNNING", subState="AttemptRunning", completedTime=None)
    server = lab({f"GET {JOB}": running, f"PUT {JOB}/executionType": Reply({"status": 202}, 202)})
    stopped = shell.ok("job.stop", "train", "-o", "json").json()
    assert [(job["name"], job["state"]) for job in stopped] == [("train", "STOPPING")]
    assert json.loads(server.received("PUT")[0].body) == {"value": "STOP"}
    running["jobStatus"]["executionType"] = "STOP"  # what the real server says from then on
    assert "STOPPING" in shell.ok("job.status", "train").out


def test_stopping_a_finished_job_shows_how_it_ended(shell, lab):
    server = lab({f"GET {JOB}": failed()})
    assert "FAILED" in shell.ok("job.stop", "train").out and server.received("PUT") == []


def test_events_have_times_and_counts(shell, lab):
    events = [event("FailedScheduling", "no room"), event("Odd", "no time", last=None, count=None)]
    lab({f"GET {JOB}": failed(), f"GET {JOB}/events": {"totalCount": 2, "data": events}})
    lines = shell.ok("job.status", "train").out.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("TIME "))
    assert lines[at].split() == ["TIME", "COUNT", "TYPE", "REASON", "MESSAGE"]
    assert lines[at + 1].split() == [
        "2023-11-14",
        "22:15:00",
        "3",
        "Warning",
        "FailedScheduling",
        "no",
        "room",
    ]
    assert lines[at + 2].split() == ["-", "1", "Warning", "Odd", "no", "time"]


def test_job_lists_of_old_clusters_have_durations(shell, lab):
    row = {"username": "ann", "executionType": "START", "retries": 0, "createdTime": START}
    rows = [
        {**row, "name": "done", "state": "SUCCEEDED", "completedTime": START + 2 * MINUTE, "appExitCode": 0},
        {**row, "name": "unclear", "state": "FAILED", "completedTime": None, "appExitCode": 255},
        {**row, "name": "queued", "state": "WAITING", "completedTime": None, "appExitCode": None},
        {**row, "name": "runs", "state": "RUNNING", "completedTime": None, "appExitCode": None},
    ]
    lab({f"GET {API}/jobs": rows}, "0.18")
    lines = shell.ok("job.list").out.splitlines()
    start = lines[0].index("DURATION")
    shown = {line.split()[0]: line[start : lines[0].index("EXIT CODE")].strip() for line in lines[1:]}
    assert shown["done"] == "2m 00s" and shown["unclear"] == shown["queued"] == "-"
    assert shown["runs"].endswith("m")
