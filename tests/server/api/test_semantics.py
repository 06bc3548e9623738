"""How jobs behave as seen by a client, with real HTTP and real processes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.leaks import files_with
from tests.server.conftest import Api, ServerProcess, code, wait_for
from tests.server.workshop import document, role

OVER = ("SUCCEEDED", "FAILED", "STOPPED")
ALL = {"minFailedInstances": -1, "minSucceededInstances": -1}


class Jobs:
    """One user's jobs."""

    def __init__(self, api: Api, user: str) -> None:
        self.api, self.user = api, user
        self.started: list[str] = []

    def submit(self, name: str, roles: str | dict[str, Any], **more: Any) -> str:
        wanted = {"main": role(roles, cpu=0)} if isinstance(roles, str) else roles
        answer = self.api.submit(document(name, wanted, **more))
        assert answer.status_code == 202, answer.text
        self.started.append(f"{self.user}~{name}")
        return self.started[-1]

    def run(self, name: str, roles: str | dict[str, Any], **more: Any) -> Any:
        return self.api.until(self.submit(name, roles, **more), *OVER)

    def get(self, key: str, rest: str) -> Any:
        return self.api.get(f"/api/v2/jobs/{key}{rest}").json()

    def set(self, key: str, value: str) -> None:
        assert self.api.put(f"/api/v2/jobs/{key}/executionType", {"value": value}).status_code == 202

    def stop(self) -> None:
        """Stop the jobs that are not over: those of a failed test would keep later ones waiting."""
        for key in self.started:
            if self.api.detail(key)["jobStatus"]["state"] not in OVER:
                self.set(key, "STOP")

    def log(self, key: str, task: str = "main/taskIndex/0/attempts/0", attempt: int = 0) -> str:
        body = self.get(key, f"/attempts/{attempt}/taskRoles/{task}/logs")
        uri = next(one["uri"] for one in body["locations"] if one["name"] == "all")
        return self.api.get(uri).text


@pytest.fixture
def jobs(alice: Api) -> Iterator[Jobs]:
    jobs = Jobs(alice, "alice")
    yield jobs
    jobs.stop()


def test_failed_job_reports_its_exit_code_and_that_of_the_command(jobs: Jobs) -> None:
    roles = {"good": role("sleep 600", cpu=0), "bad_One": role("echo why; exit 42", cpu=0)}
    status = jobs.run("failed", roles)["jobStatus"]
    assert (status["state"], status["subState"], status["attemptState"]) == ("FAILED", "Completed", "FAILED")
    assert (status["appExitCode"], status["appExitSpec"]["code"]) == (255, 255)
    assert (status["appExitType"], status["appExitSpec"]["type"]) == ("Failed", "UNKNOWN_FAILURE")
    assert (status["appExitTriggerTaskRoleName"], status["appExitTriggerTaskIndex"]) == ("badone", 0)
    runtime = status["appExitMessages"]["runtime"]
    assert (runtime["exitCode"], runtime["originUserExitCode"]) == (255, 42)
    assert runtime["errorLogs"]["user"] == "why" and "matchedUserLogString" not in runtime
    tasks = jobs.api.detail("alice~failed")["taskRoles"]
    assert tasks["good"]["taskStatuses"][0]["containerExitCode"] == -220
    assert tasks["good"]["taskStatuses"][0]["taskState"] == "STOPPED"


def test_missing_command_is_recognised_in_the_log(jobs: Jobs) -> None:
    status = jobs.run("missing", "no-such-program", jobRetryCount=2)["jobStatus"]
    assert (status["appExitCode"], status["retries"]) == (220, 0)
    runtime = status["appExitMessages"]["runtime"]
    assert (runtime["originUserExitCode"], runtime["matchedUserLogString"]) == (127, "command not found")


def test_all_attempts_of_a_job_stay_readable(jobs: Jobs) -> None:
    command = "echo try $FC_FRAMEWORK_ATTEMPT_ID; exit $((3 + FC_FRAMEWORK_ATTEMPT_ID))"
    status = jobs.run("tries", command, jobRetryCount=2)["jobStatus"]
    assert (status["state"], status["attemptId"], status["retries"]) == ("FAILED", 2, 2)
    assert status["retryDetails"] == {"user": 2, "platform": 0, "resource": 0}
    for number in range(3):
        seen = jobs.get("alice~tries", f"/attempts/{number}")
        runtime = seen["jobStatus"]["appExitMessages"]["runtime"]
        assert (seen["jobStatus"]["attemptId"], runtime["originUserExitCode"]) == (number, 3 + number)
        assert seen["jobStatus"]["attemptState"] == "FAILED"
        assert jobs.log("alice~tries", attempt=number) == f"try {number}\n"
    assert code(jobs.api.get("/api/v2/jobs/alice~tries/attempts/3")) == (404, "NoJobError")
    older = jobs.get("alice~tries", "/job-attempts")
    assert [(one["attemptIndex"], one["isLatest"]) for one in older] == [(2, True), (0, False), (1, False)]
    assert [one["exitCode"] for one in older] == [255, 255, 255]


def test_all_attempts_of_a_task_stay_readable(jobs: Jobs) -> None:
    flaky = role("echo $FC_TASK_ATTEMPT_ID; test $FC_TASK_ATTEMPT_ID = 2", cpu=0, taskRetryCount=5)
    body = jobs.run("flaky", {"Flaky_role": flaky}, extras={"gangAllocation": False})
    task = body["taskRoles"]["flakyrole"]["taskStatuses"][0]
    assert (body["jobStatus"]["state"], body["jobStatus"]["retries"]) == ("SUCCEEDED", 0)
    assert (task["retries"], task["attemptId"], task["attemptState"]) == (2, 2, "SUCCEEDED")
    detail = jobs.get("alice~flaky", "/attempts/0/taskRoles/flakyrole/taskIndex/0/attempts")
    assert [(one["attemptId"], one["containerExitCode"]) for one in detail["attempts"]] == [
        (2, 0),
        (1, 255),
        (0, 255),
    ]
    assert len({one["containerId"] for one in detail["attempts"]}) == 3
    assert jobs.log("alice~flaky", "flakyrole/taskIndex/0/attempts/1") == "1\n"


def test_stop_and_start_pass_through_the_states_of_a_real_cluster(jobs: Jobs) -> None:
    command = "test $FC_FRAMEWORK_ATTEMPT_ID = 1 || { trap 'sleep 0.3; exit 1' TERM; sleep 600; }"
    key = jobs.submit("restart", command)
    running = jobs.api.until(key, "RUNNING")["jobStatus"]
    assert (running["subState"], running["attemptState"], running["appExitCode"]) == (
        "AttemptRunning",
        "RUNNING",
        None,
    )
    jobs.set(key, "STOP")
    stopping = jobs.api.detail(key)["jobStatus"]
    assert (stopping["state"], stopping["executionType"]) in [("STOPPING", "STOP"), ("STOPPED", "STOP")]
    stopped = jobs.api.until(key, "STOPPED")["jobStatus"]
    assert (stopped["appExitCode"], stopped["appExitType"]) == (-210, "Failed")
    assert (stopped["subState"], stopped["attemptState"]) == ("Completed", "STOPPED")
    jobs.set(key, "START")
    done = jobs.api.until(key, "SUCCEEDED")["jobStatus"]
    assert (done["attemptId"], done["executionType"], done["retries"]) == (1, "START", 0)
    assert jobs.get(key, "/attempts/0")["jobStatus"]["attemptState"] == "STOPPED"


def test_waiting_job_shows_its_state_and_the_reason(jobs: Jobs) -> None:
    first = jobs.submit("holder", {"main": role("sleep 600", cpu=1)})
    second = jobs.submit("waiter", {"main": role("true", cpu=1)})
    jobs.api.until(first, "RUNNING")
    wait_for(lambda: "FailedScheduling" in reasons(jobs, second, "Normal"))
    assert "FailedScheduling" not in reasons(jobs, second, "Warning")  # queueing is nothing unusual
    status = jobs.api.detail(second)["jobStatus"]
    assert (status["state"], status["subState"], status["attemptState"]) == (
        "WAITING",
        "AttemptCreationPending",
        "WAITING",
    )
    jobs.set(first, "STOP")
    assert jobs.api.until(second, *OVER)["jobStatus"]["state"] == "SUCCEEDED"


def reasons(jobs: Jobs, key: str, kind: str) -> list[str]:
    """Return the reasons of the events of a job that have this type."""
    return [one["reason"] for one in jobs.get(key, f"/events?type={kind}")["data"]]


def test_events_record_the_course_of_a_job(jobs: Jobs) -> None:
    jobs.run("story", "exit 1", jobRetryCount=1)
    data = jobs.get("alice~story", "/events")["data"]
    reasons = {one["reason"]: one for one in data}
    assert {"Started", "TaskFailed", "Retrying", "Completed"} <= set(reasons)
    assert reasons["Started"]["count"] == 2
    assert (reasons["TaskFailed"]["taskroleName"], reasons["TaskFailed"]["taskIndex"]) == ("main", 0)
    assert {one["type"] for one in jobs.get("alice~story", "/events?type=Normal")["data"]} == {"Normal"}


def test_tags_are_stored_found_and_removed(jobs: Jobs) -> None:
    key = jobs.submit("tagged", "true")
    path = f"/api/v2/jobs/{key}/tag"
    assert [jobs.api.put(path, {"value": tag}).status_code for tag in ("one", "two", "one")] == [200] * 3
    assert sorted(jobs.api.detail(key)["tags"]) == ["one", "two"]
    listed = jobs.api.get("/api/v2/jobs?username=alice&tagsContain=two,three").json()
    assert [one["name"] for one in listed] == ["tagged"]
    assert jobs.api.delete(path, json={"value": "two"}).status_code == 200
    assert code(jobs.api.delete(path, json={"value": "two"})) == (404, "NoTagError")
    assert code(jobs.api.put(path, {"value": "a,b"})) == (400, "InvalidParametersError")


def test_a_virtual_cluster_must_exist_and_be_granted(jobs: Jobs, admin: Api) -> None:
    def ask(api: Api, name: str, cluster: str) -> tuple[int, str | None]:
        roles = {"main": role("echo $PAI_VIRTUAL_CLUSTER", cpu=0)}
        return code(api.submit(document(name, roles, defaults={"virtualCluster": cluster})))

    assert ask(jobs.api, "nowhere", "none") == (403, "ForbiddenUserError")
    assert ask(admin, "nowhere", "none") == (403, "ForbiddenUserError")
    assert ask(jobs.api, "lab1", "lab") == (403, "ForbiddenUserError")
    granted = {"virtualCluster": ["default", "lab"]}
    assert admin.put("/api/v2/users/alice/virtualcluster", granted).status_code == 201
    assert ask(jobs.api, "lab1", "lab") == (202, None)
    assert jobs.api.until("alice~lab1", *OVER)["jobStatus"]["virtualCluster"] == "lab"
    assert jobs.log("alice~lab1") == "lab\n"


def test_each_task_gets_the_requested_ports_and_shares_none(jobs: Jobs) -> None:
    command = (
        "echo $PAI_CONTAINER_HOST_web_PORT_LIST $PAI_CONTAINER_HOST_http_PORT_LIST $PAI_CONTAINER_SSH_PORT"
    )
    one = role(command, instances=2, cpu=0, ports={"web": 3, "http": 2}, completion=ALL)
    statuses = jobs.run("ports", {"main": one})["taskRoles"]["main"]["taskStatuses"]
    numbers = []
    for status in statuses:
        ports = status["containerPorts"]
        counts = {label: len(value.split(",")) for label, value in ports.items()}
        assert counts == {"ssh": 1, "http": 2, "web": 3}
        output = jobs.log("alice~ports", f"main/taskIndex/{status['taskIndex']}/attempts/0")
        assert output.split() == [ports["web"], ports["http"], ports["ssh"]]
        numbers += ",".join(ports.values()).split(",")
    assert len(set(numbers)) == 12


def test_commands_are_rendered_with_the_prerequisites_of_the_role(jobs: Jobs) -> None:
    given = [
        {"type": "dockerimage", "name": "image", "uri": "some/image"},
        {"type": "script", "name": "code", "uri": "https://example.org/code"},
        {"type": "data", "name": "input", "uri": ["/data/a", "/data/b"]},
        {"type": "output", "name": "result", "uri": "/out"},
    ]
    main = role("echo <% $script.uri %> <% $data.uri[1] %> <% $output.uri %> <% $parameters.lr %>", cpu=0)
    names = {"script": "code", "data": "input", "output": "result"}
    around = {"preCommands": ["echo first", "export WORD=kept"], "postCommands": ["echo last $WORD"]}
    deployments = [
        {"name": "prod", "taskRoles": {"main": around}},
        {"name": "other", "taskRoles": {"main": {"preCommands": ["echo wrong"]}}},
    ]
    jobs.run(
        "rendered",
        {"main": {**main, **names}},
        prerequisites=given,
        parameters={"lr": 0.1},
        deployments=deployments,
        defaults={"deployment": "prod"},
    )
    assert jobs.log("alice~rendered").splitlines() == [
        "first",
        "https://example.org/code /data/b /out 0.1",
        "last kept",
    ]


def test_completion_policy_decides_when_a_job_ends(jobs: Jobs) -> None:
    two = {"minFailedInstances": 2}
    roles = {"main": role("exit $PAI_TASK_INDEX", instances=3, cpu=0, completion=two)}
    assert jobs.run("two-fail", roles)["jobStatus"]["state"] == "FAILED"
    enough = {"minSucceededInstances": 1}
    quick = role("test $PAI_TASK_INDEX = 0 || sleep 600", instances=3, cpu=0, completion=enough)
    body = jobs.run("one-succeeds", {"main": quick})
    states = [one["taskState"] for one in body["taskRoles"]["main"]["taskStatuses"]]
    assert (body["jobStatus"]["state"], states) == ("SUCCEEDED", ["SUCCEEDED", "STOPPED", "STOPPED"])


def test_secrets_are_masked_in_responses_and_absent_from_the_log(server: ServerProcess, jobs: Jobs) -> None:
    secret = "Hush-Hush-1234"
    command = "test $(printf %s '<% $secrets.word %>' | wc -c) = 14 && exit 3"
    jobs.submit("hush", command, secrets={"word": secret})
    status = jobs.api.until("alice~hush", *OVER)["jobStatus"]
    assert status["appExitMessages"]["runtime"]["originUserExitCode"] == 3
    for rest in ("", "/config", "/events", "/attempts/0", "/job-attempts"):
        assert secret not in jobs.api.get(f"/api/v2/jobs/alice~hush{rest}").text
    assert jobs.get("alice~hush", "/config")["secrets"] == "******"
    assert secret not in server.log
    held = files_with(secret, server.folder)
    assert {path.name.removesuffix("-wal") for path in held} == {"cluster.db"}
