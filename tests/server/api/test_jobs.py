"""The v2 jobs API over HTTP, with jobs that really run."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
import yaml

from tests.notices import without_memory
from tests.server.conftest import JOB, NOTICES, Api, ServerProcess, code, wait_for

FORBIDDEN = (403, "ForbiddenUserError")
INVALID = (400, "InvalidParametersError")
SUMMARY = """
debugId name username state subState executionType retries retryDetails retryDelayTime createdTime
completedTime appExitCode virtualCluster totalGpuNumber totalTaskNumber totalTaskRoleNumber tags
submissionTime launchedTime jobPriority
"""
ATTEMPT = """
jobName frameworkName uid userName state originState attemptIndex jobStartedTime attemptStartedTime
attemptCompletedTime exitCode exitPhrase exitType exitDiagnostics appExitTriggerMessage
appExitTriggerTaskRoleName appExitTriggerTaskIndex appExitSpec appExitDiagnostics appExitMessages
totalGpuNumber totalTaskNumber totalTaskRoleNumber taskRoles isLatest
"""
ATTEMPT_TASK = "taskIndex taskState containerId containerIp containerGpus containerLog containerExitCode"
STATUS = """
username state subState executionType retries retryDetails retryDelayTime submissionTime createdTime
launchedTime completedTime attemptId attemptState appId appProgress appTrackingUrl appCreatedTime
appLaunchedTime appCompletedTime appExitCode appExitSpec appExitDiagnostics appExitMessages
appExitTriggerMessage appExitTriggerTaskRoleName appExitTriggerTaskIndex appExitType virtualCluster
"""
TASK = """
taskIndex taskUid taskState retries accountableRetries createdTime launchedTime completedTime attemptId
attemptState currentAttemptCreatedTime currentAttemptLaunchedTime currentAttemptCompletedTime containerId
containerIp containerNodeName containerPorts containerGpus containerLog containerExitCode
containerExitSpec containerExitDiagnostics peakMemoryMB cpuSeconds
"""


def document(name: str, **changes: Any) -> str:
    """Return a document with some top-level keys changed; None removes a key."""
    data = {**yaml.safe_load(JOB.format(name=name, command="'true'")), **changes}
    return yaml.safe_dump({key: value for key, value in data.items() if value is not None})


@pytest.fixture(scope="module")
def done(alice: Api) -> str:
    """The key of a job that has succeeded."""
    alice.run("done", "echo hello; echo trouble >&2")
    alice.until("alice~done", "SUCCEEDED")
    return "alice~done"


def test_a_submitted_job_runs_and_its_detail_has_every_field(alice: Api) -> None:
    answer = alice.submit(document("first"))
    assert (answer.status_code, without_memory(answer.json())) == (
        202,
        {"status": 202, "message": "Update job first for user alice successfully.", **NOTICES},
    )
    body = alice.until("alice~first", "SUCCEEDED")
    assert set(body) == {"debugId", "name", "tags", "jobStatus", "taskRoles"}
    assert body["debugId"] == hashlib.md5(b"alice~first").hexdigest()
    status = body["jobStatus"]
    assert set(status) == set(STATUS.split())
    assert (status["appExitCode"], status["appExitType"], status["appProgress"]) == (0, "Succeeded", 1)
    assert status["submissionTime"] <= status["launchedTime"] <= status["completedTime"]
    (task,) = body["taskRoles"]["main"]["taskStatuses"]
    assert set(task) == set(TASK.split())
    assert (task["taskState"], task["containerIp"], task["containerExitCode"]) == (
        "SUCCEEDED",
        "127.0.0.1",
        0,
    )
    assert set(task["containerPorts"]) == {"ssh", "http"}
    assert all(isinstance(port, str) and port.isdigit() for port in task["containerPorts"].values())


def test_failed_job_reports_its_own_exit_code(alice: Api) -> None:
    alice.run("seven", "exit 7")
    status = alice.until("alice~seven", "FAILED")["jobStatus"]
    assert status["appExitCode"] == 255
    assert status["appExitMessages"]["runtime"]["originUserExitCode"] == 7
    assert (status["appExitMessages"]["launcher"], status["appExitType"]) == (None, "Failed")
    assert status["appExitSpec"]["repro"]
    assert (status["appExitTriggerTaskRoleName"], status["appExitTriggerTaskIndex"]) == ("main", 0)
    assert status["appExitSpec"]["code"] == 255


def test_invalid_yaml_is_500_without_a_code(alice: Api) -> None:
    for text in ("a: [", "a: 1\na: 2", document("t", parameters={"x": 1}).replace("'true'", "echo <% open")):
        answer = alice.submit(text)
        assert answer.status_code == 500, text
        assert set(answer.json()) == {"message"}


def test_a_broken_template_is_500_without_a_code(alice: Api) -> None:
    answer = alice.submit(JOB.format(name="template", command='"echo <% open"'))
    assert answer.status_code == 500
    assert set(answer.json()) == {"message"}


def test_schema_violations_are_reported_as_json(alice: Api) -> None:
    answer = alice.submit(document("x", type="work", taskRoles={}))
    assert code(answer) == (400, "InvalidProtocolError")
    paths = {problem["dataPath"] for problem in json.loads(answer.json()["message"])}
    assert ".type" in paths


def test_dangling_reference_is_reported_as_plain_text(alice: Api) -> None:
    answer = alice.submit(document("x", defaults={"deployment": "none"}))
    assert code(answer) == (400, "InvalidProtocolError")
    with pytest.raises(ValueError):
        json.loads(answer.json()["message"])


@pytest.mark.parametrize("type", ["application/json", "application/x-yaml", ""])
def test_other_content_types_are_refused(alice: Api, type: str) -> None:
    body = json.dumps(yaml.safe_load(document("typed")))
    answer = alice.submit(body, type)
    assert code(answer) == (400, "InvalidProtocolError")
    assert json.loads(answer.json()["message"])[0]["message"] == "should be object"


def test_json_sent_as_plain_text_is_accepted(alice: Api) -> None:
    assert alice.submit(json.dumps(yaml.safe_load(document("plain"))), "text/plain").status_code == 202


def test_taken_name_is_reported_before_other_errors(alice: Api, done: str) -> None:
    again = document("done", defaults={"virtualCluster": "none"}, extras={"storages": [{"name": "none"}]})
    answer = alice.submit(again)
    assert (answer.status_code, answer.json()) == (
        409,
        {"code": "ConflictJobError", "message": "Job name done already exists."},
    )


def test_virtual_cluster_or_storage_without_access_is_refused(alice: Api) -> None:
    for name in ("lab", "none"):
        extras = {"storages": [{"name": "none"}]}
        answer = alice.submit(document("x", defaults={"virtualCluster": name}, extras=extras))
        assert code(answer) == FORBIDDEN
    answer = alice.submit(document("x", extras={"storages": [{"name": "none"}]}))
    assert code(answer) == (404, "NoStorageError")


def test_a_job_has_what_it_waits_for_and_is_refused_if_that_cannot_end_so(admin: Api, done: str) -> None:
    def after(job: str, when: str) -> dict[str, Any]:
        return {"jobPolicy": {"after": [{"job": job, "when": when}]}}

    assert admin.submit(document("waits", extras=after(done, "ended"))).status_code == 202
    (first,) = [one for one in admin.detail(done)["dependents"] if one["job"].endswith("~waits")]
    assert (first["when"], first["met"]) == ("ended", True)
    assert admin.detail(first["job"])["after"] == [
        {"job": done, "when": "ended", "state": "SUCCEEDED", "met": True, "kept": False}
    ]
    for extras in (after(done, "failed"), after("unknown", "ended"), after("never", "ended")):
        assert code(admin.submit(document("never", extras=extras))) == INVALID


def test_two_users_may_use_the_same_job_name(admin: Api, alice: Api, owner: str, done: str) -> None:
    admin.run("done")
    assert admin.detail(f"{owner}~done")["debugId"] != alice.detail(done)["debugId"]


def test_unknown_job_is_404(admin: Api) -> None:
    for path in ("", "/config", "/events", "/attempts/0", "/job-attempts/0"):
        assert code(admin.get(f"/api/v2/jobs/alice~none{path}")) == (404, "NoJobError"), path
    for path in ("none", "..%2f..", "alice~done~x", "~"):
        assert code(admin.get(f"/api/v2/jobs/{path}")) == (404, "NoJobError"), path


def test_unknown_attempts_are_404(admin: Api, done: str) -> None:
    assert admin.get(f"/api/v2/jobs/{done}/attempts/0").json() == admin.detail(done)
    for number in ("1", "-1", "x", "9" * 30, "%C2%B2"):
        assert code(admin.get(f"/api/v2/jobs/{done}/attempts/{number}")) == (404, "NoJobError"), number
        assert code(admin.get(f"/api/v2/jobs/{done}/job-attempts/{number}")) == (404, "NoJobError"), number
    for place in ("none/taskIndex/0", "main/taskIndex/1", "main/taskIndex/x"):
        answer = admin.get(f"/api/v2/jobs/{done}/attempts/0/taskRoles/{place}/attempts")
        assert code(answer) == (404, "NoJobError"), place


def test_ssh_is_not_offered(admin: Api, done: str) -> None:
    assert code(admin.get(f"/api/v2/jobs/{done}/ssh")) == (404, "NoJobSshInfoError")


def test_config_is_json_labelled_as_yaml_with_masked_secrets(alice: Api) -> None:
    alice.submit(document("masked", secrets={"key": "very-secret"}))
    answer = alice.get("/api/v2/jobs/alice~masked/config")
    assert answer.headers["content-type"] == "text/yaml; charset=utf-8"
    assert "very-secret" not in answer.text
    assert json.loads(answer.text) == yaml.safe_load(answer.text)
    assert json.loads(answer.text)["secrets"] == "******"
    assert json.loads(answer.text)["name"] == "masked"


def test_no_response_contains_the_secrets_of_a_job(alice: Api) -> None:
    text = document("quiet", secrets={"key": "very-secret"})
    alice.submit(text.replace("'true'", "'test <% $secrets.key %>'"))
    alice.until("alice~quiet", "SUCCEEDED")
    for path in ("", "/config", "/events", "/job-attempts", "/attempts/0"):
        assert "very-secret" not in alice.get(f"/api/v2/jobs/alice~quiet{path}").text


def test_only_the_owner_and_admins_may_stop_start_or_tag(
    server: ServerProcess, admin: Api, done: str
) -> None:
    admin.post("/api/v2/users", {"username": "mallory", "password": "mallory-secret"})
    mallory = server.login("mallory", "mallory-secret")
    assert code(mallory.put(f"/api/v2/jobs/{done}/executionType", {"value": "STOP"})) == FORBIDDEN
    assert code(mallory.put(f"/api/v2/jobs/{done}/tag", {"value": "x"})) == FORBIDDEN
    assert code(mallory.delete(f"/api/v2/jobs/{done}/tag", json={"value": "x"})) == FORBIDDEN
    assert mallory.get(f"/api/v2/jobs/{done}").status_code == 200  # everybody may read
    assert admin.put(f"/api/v2/jobs/{done}/tag", {"value": "x"}).status_code == 200


def test_a_job_is_stopped_and_started_again_as_a_new_attempt(alice: Api) -> None:
    alice.run("again", "sleep 600")
    alice.until("alice~again", "RUNNING")
    path = "/api/v2/jobs/alice~again/executionType"
    answer = alice.put(path, {"value": "STOP"})
    assert (answer.status_code, answer.json()["status"]) == (202, 202)
    body = alice.until("alice~again", "STOPPED")
    assert (body["jobStatus"]["appExitCode"], body["jobStatus"]["executionType"]) == (-210, "STOP")
    alice.put(path, {"value": "START"})
    alice.until("alice~again", "RUNNING")
    assert alice.detail("alice~again")["jobStatus"]["attemptId"] == 1
    old = alice.get("/api/v2/jobs/alice~again/attempts/0").json()["jobStatus"]
    assert (old["attemptId"], old["attemptState"]) == (0, "STOPPED")
    listed = alice.get("/api/v2/jobs/alice~again/job-attempts").json()
    assert set(listed[0]) == set(ATTEMPT.split())
    assert listed[0]["frameworkName"] == hashlib.md5(b"alice~again").hexdigest()
    assert (listed[0]["state"], listed[0]["exitDiagnostics"]) == ("RUNNING", None)
    assert (listed[1]["state"], listed[1]["exitType"], listed[1]["exitCode"]) == ("STOPPED", "Failed", -210)
    (task,) = listed[0]["taskRoles"]["main"]["taskStatuses"]
    assert set(task) == set(ATTEMPT_TASK.split())
    assert [(one["attemptIndex"], one["isLatest"]) for one in listed] == [(1, True), (0, False)]
    assert alice.get("/api/v2/jobs/alice~again/job-attempts/0").json()["exitPhrase"]
    alice.put(path, {"value": "STOP"})
    alice.until("alice~again", "STOPPED")


def test_invalid_execution_type_or_tag_is_refused_before_the_job_lookup(admin: Api) -> None:
    wrong: tuple[Any, ...] = ({"value": "PAUSE"}, {}, {"value": 1}, {"value": "STOP", "more": 1}, [])
    for body in wrong:
        assert code(admin.put("/api/v2/jobs/alice~none/executionType", body)) == INVALID
    for body in ({"value": "a,b"}, {"value": ""}, {}):
        assert code(admin.put("/api/v2/jobs/alice~none/tag", body)) == INVALID
    assert code(admin.put("/api/v2/jobs/alice~none/executionType", {"value": "STOP"})) == (404, "NoJobError")
    assert code(admin.put("/api/v2/jobs/alice~none/tag", {"value": "a"})) == (404, "NoJobError")


def test_tags_are_added_once_and_removed_once(alice: Api, done: str) -> None:
    path = f"/api/v2/jobs/{done}/tag"
    for _ in range(2):
        assert alice.put(path, {"value": "keep me"}).json()["status"] == 200
    assert "keep me" in alice.detail(done)["tags"]
    assert alice.delete(path, json={"value": "keep me"}).status_code == 200
    assert code(alice.delete(path, json={"value": "keep me"})) == (404, "NoTagError")


def test_only_the_owner_moves_a_job_and_only_while_it_waits(
    admin: Api, alice: Api, owner: str, done: str
) -> None:
    first, path = {"value": "first"}, f"/api/v2/jobs/{done}/place"
    assert code(alice.put(path, {"value": "last"})) == (400, "InvalidParametersError")
    assert code(alice.put(path, first)) == (409, "ConflictJobError")
    assert "place" not in alice.detail(done)
    admin.submit(document("not-hers"))
    assert code(alice.put(f"/api/v2/jobs/{owner}~not-hers/place", first)) == (403, "ForbiddenUserError")


def test_events_are_counted_and_filtered_by_type(alice: Api) -> None:
    alice.submit(document("events"))
    alice.until("alice~events", "SUCCEEDED")
    everything = alice.get("/api/v2/jobs/alice~events/events").json()
    assert everything["totalCount"] == len(everything["data"])
    normal = alice.get("/api/v2/jobs/alice~events/events?type=Normal").json()["data"]
    warnings = alice.get("/api/v2/jobs/alice~events/events?type=Warning").json()["data"]
    assert len(normal) + len(warnings) == everything["totalCount"] > 0
    event = everything["data"][0]
    assert event["frameworkName"] == hashlib.md5(b"alice~events").hexdigest()
    assert event["firstTimestamp"].endswith("Z") and event["count"] >= 1


def test_task_attempts_are_listed_newest_first(alice: Api) -> None:
    text = document("retry", extras={"gangAllocation": False})
    data = yaml.safe_load(text)
    data["taskRoles"]["main"] |= {"taskRetryCount": 1, "commands": ["exit 3"]}
    alice.submit(yaml.safe_dump(data))
    body = alice.until("alice~retry", "FAILED")
    task = alice.get("/api/v2/jobs/alice~retry/attempts/0/taskRoles/main/taskIndex/0/attempts").json()
    assert [one["attemptId"] for one in task["attempts"]] == [1, 0]
    assert (task["username"], task["jobName"], task["retries"]) == ("alice", "retry", 1)
    (status,) = body["taskRoles"]["main"]["taskStatuses"]
    assert (status["attemptId"], status["retries"]) == (1, 1)
    assert status["createdTime"] == task["attempts"][1]["currentAttemptCreatedTime"]


def test_role_names_are_sanitised_in_answers_and_paths(alice: Api) -> None:
    data = yaml.safe_load(document("roles"))
    data["taskRoles"]["Ps_1"] = data["taskRoles"].pop("main")
    alice.submit(yaml.safe_dump(data))
    body = alice.until("alice~roles", "SUCCEEDED")
    assert list(body["taskRoles"]) == ["ps1"]
    assert alice.get(body["taskRoles"]["ps1"]["taskStatuses"][0]["containerLog"]).status_code == 200


def test_job_list_has_every_field_and_a_total_only_on_request(alice: Api, done: str) -> None:
    rows = alice.get("/api/v2/jobs?username=alice").json()
    assert rows and all(row.keys() - {"userExitCode"} == set(SUMMARY.split()) for row in rows)
    assert {row["state"] for row in rows if "userExitCode" in row} == {"FAILED"}
    assert [row["submissionTime"] for row in rows] == sorted(
        (r["submissionTime"] for r in rows), reverse=True
    )
    counted = alice.get("/api/v2/jobs?username=alice&withTotalCount=true&limit=1").json()
    assert (counted["totalCount"], counted["data"]) == (len(rows), rows[:1])
    assert isinstance(alice.get("/api/v2/jobs?withTotalCount=1").json(), list)


def test_job_list_is_filtered_ordered_and_paged(admin: Api, alice: Api, owner: str) -> None:
    priority = {"hivedScheduler": {"jobPriorityClass": "prod"}}
    admin.submit(document("list-b", extras=priority))
    admin.submit(document("list-a", defaults={"virtualCluster": "lab"}))
    for name in ("list-a", "list-b"):
        admin.until(f"{owner}~{name}", "SUCCEEDED")
    admin.put(f"/api/v2/jobs/{owner}~list-a/tag", {"value": "blue"})

    def names(query: str) -> list[str]:
        return [row["name"] for row in admin.get(f"/api/v2/jobs?keyword=list-&{query}").json()]

    assert names("") == ["list-a", "list-b"]
    assert names("order=jobName,ASC") == ["list-a", "list-b"]
    assert names("order=jobName,DESC") == ["list-b", "list-a"]
    assert names("order=nonsense,ASC") == ["list-a", "list-b"]
    assert names("order=jobPriority,ASC") == ["list-b", "list-a"]
    assert names("vc=lab") == ["list-a"]
    assert names("vc=lab,default&state=SUCCEEDED,FAILED") == ["list-a", "list-b"]
    assert names("state=RUNNING") == []
    assert names(f"username={owner}") == ["list-a", "list-b"]
    assert names("username=alice") == []
    assert names("tagsContain=blue,red") == ["list-a"]
    assert names("tagsNotContain=blue") == ["list-b"]
    assert names("jobPriority=prod") == ["list-b"]
    assert admin.detail(f"{owner}~list-b")["jobPriority"] == "prod"
    assert names("jobPriority=default") == ["list-a"]
    assert names("limit=1") == ["list-a"]
    assert names("limit=1&offset=1") == ["list-b"]


def test_page_size_above_the_maximum_is_invalid(admin: Api) -> None:
    assert code(admin.get("/api/v2/jobs?limit=50001")) == INVALID
    assert code(admin.get(f"/api/v2/jobs?limit={'9' * 40}")) == INVALID


@pytest.mark.parametrize(
    "query", ["limit=abc", "limit=", "limit=-1", "offset=abc", "offset=-1", f"offset={2**63}"]
)
def test_numbers_that_the_database_refuses_are_500_without_a_code(admin: Api, query: str) -> None:
    assert code(admin.get(f"/api/v2/jobs?{query}")) == (500, None)


@pytest.mark.parametrize("name", ["username", "vc", "state", "tagsContain", "order", "jobPriority"])
def test_a_repeated_filter_is_500_without_a_code(admin: Api, name: str) -> None:
    assert code(admin.get(f"/api/v2/jobs?{name}=a&{name}=b")) == (500, None)


def test_page_numbers_are_parsed_like_javascript(admin: Api, done: str) -> None:
    rows = admin.get("/api/v2/jobs").json()
    assert admin.get("/api/v2/jobs?limit=1e3").json() == rows[:1]
    assert admin.get("/api/v2/jobs?limit=%20+1abc&limit=7").json() == rows[:1]
    assert admin.get("/api/v2/jobs?limit=-0").json() == []


def test_job_attempts_of_an_unknown_job_are_null(admin: Api) -> None:
    answer = admin.get("/api/v2/jobs/alice~none/job-attempts")
    assert (answer.status_code, answer.json()) == (404, None)
    assert admin.get("/api/v2/jobs/alice~none/job-attempts/healthz").text == "ok"


def test_burst_of_submissions_is_accepted_and_run(admin: Api, owner: str) -> None:
    for number in range(10):
        admin.run(f"burst-{number}", "true")

    def finished() -> bool:
        query = f"username={owner}&keyword=burst-&state=SUCCEEDED&withTotalCount=true"
        return bool(admin.get(f"/api/v2/jobs?{query}").json()["totalCount"] == 10)

    wait_for(finished)
