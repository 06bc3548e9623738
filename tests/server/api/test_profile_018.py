"""The server as OpenPAI 0.18 or 1.0: reads need a token, v1 paths are rewritten, logs have a manager."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.conftest import JOB, Api, ServerProcess, code
from tests.server.profiles import TWO_ROLES, join, serving, until

SUMMARY = """
debugId name username state subState executionType retries retryDetails retryDelayTime createdTime
completedTime appExitCode virtualCluster totalGpuNumber totalTaskNumber totalTaskRoleNumber
"""
STATUS = """
username state subState executionType retries retryDetails retryDelayTime createdTime completedTime appId
appProgress appTrackingUrl appLaunchedTime appCompletedTime appExitCode appExitSpec appExitDiagnostics
appExitMessages appExitTriggerMessage appExitTriggerTaskRoleName appExitTriggerTaskIndex appExitType
virtualCluster
"""
TASK = """
taskIndex taskState containerId containerIp containerPorts containerGpus containerLog containerExitCode
"""
NO_API = (404, "NoApiError")
GUEST = (401, "UnauthorizedUserError")
LINES = 5000  # of ten bytes: more than the 16 KiB of a tail


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    flags = ["--profile", "0.18", "--rate-limit", "api=off", "--rate-limit", "list=off"]
    with serving(tmp_path_factory.mktemp("server"), *flags) as server:
        yield server


@pytest.fixture(scope="module")
def alice(server: ServerProcess) -> Api:
    return join(server, "/api/v2/users")


@pytest.fixture(scope="module")
def pair(alice: Api) -> Any:
    """A finished job with two roles."""
    assert alice.submit(TWO_ROLES.format(name="pair")).status_code == 202
    return until(alice, "/api/v2/jobs/alice~pair", "SUCCEEDED", "FAILED")


def test_info_is_served_at_both_paths(guest: Api) -> None:
    for path in ("/api/v1", "/api/v2/info"):
        body = guest.get(path).json()
        assert (body["version"], body["launcherType"], body["authnMethod"]) == ("v1.0.0", "k8s", "basic")


def test_newer_routes_are_missing(alice: Api, pair: Any) -> None:
    for path in ("events", "attempts/0", "attempts/0/taskRoles/worker/taskIndex/0/attempts"):
        assert code(alice.get(f"/api/v2/jobs/alice~pair/{path}")) == NO_API, path
    assert code(alice.put("/api/v2/jobs/alice~pair/tag", {"value": "x"})) == NO_API
    assert code(alice.get("/api/v2/tokens/check")) == NO_API
    assert code(alice.delete("/api/v1/user/alice/jobs/pair")) == NO_API
    assert code(alice.put("/api/v1/user/alice/jobs/new", {})) == NO_API


def test_reads_need_a_token_except_virtual_clusters_at_the_v1_path(guest: Api) -> None:
    for path in ("/api/v2/jobs", "/api/v1/jobs", "/api/v1/user/alice/jobs", "/api/v1/jobs/alice~pair/config"):
        assert code(guest.get(path)) == GUEST
    assert "default" in guest.get("/api/v1/virtual-clusters").json()
    assert code(guest.get("/api/v2/virtual-clusters")) == GUEST


def test_job_list_supports_one_filter_and_no_paging(alice: Api, pair: Any) -> None:
    rows = alice.get("/api/v2/jobs?limit=0&state=WAITING&keyword=none&withTotalCount=true").json()
    assert "pair" in [row["name"] for row in rows]
    assert set(rows[0]) == set(SUMMARY.split())
    assert alice.get("/api/v2/jobs?username=nobody").json() == []
    assert len(alice.get("/api/v1/user/nobody/jobs").json()) == len(rows)  # rewriting the path loses the user


def test_v1_paths_serve_the_v2_jobs(alice: Api, pair: Any) -> None:
    for path in ("/api/v1/jobs/alice~pair", "/api/v1/user/alice/jobs/pair"):
        assert alice.get(path).json() == pair
        answer = alice.get(f"{path}/config")
        assert answer.headers["content-type"] == "text/yaml; charset=utf-8"
        assert json.loads(answer.text)["secrets"] == "******"
    text = JOB.format(name="rewritten", command="'true'")
    headers = {"Content-Type": "text/yaml"}
    assert alice.call("POST", "/api/v1/user/alice/jobs", data=text, headers=headers).status_code == 202
    assert code(alice.post("/api/v1/user/alice/jobs", {"jobName": "v1"})) == (400, "InvalidProtocolError")
    path = "/api/v1/user/alice/jobs/rewritten"
    until(alice, path, "SUCCEEDED")
    assert alice.put(f"{path}/executionType", {"value": "STOP"}).status_code == 202
    assert len(alice.get(f"{path}/job-attempts").json()) == 1


def test_job_details_have_the_fields_of_0_18(pair: Any) -> None:
    assert set(pair) == {"debugId", "name", "jobStatus", "taskRoles"}
    assert set(pair["jobStatus"]) == set(STATUS.split())
    assert list(pair["taskRoles"]) == ["psserver", "worker"]
    (task,) = pair["taskRoles"]["psserver"]["taskStatuses"]
    assert set(task) == set(TASK.split())
    assert all(isinstance(port, int) for port in task["containerPorts"].values())
    assert set(task["containerPorts"]) == {"ssh", "http", "data"}


def test_storages_have_fewer_fields_and_any_default_value_filters(alice: Api) -> None:
    found = alice.get("/api/v2/storages?default=false").json()["storages"]
    assert [set(one) for one in found] == [{"name", "share", "volumeName", "openpaiTasks"}]
    assert "readOnly" not in alice.get("/api/v2/storages/home").json()


def test_log_manager_serves_tails_and_whole_files(alice: Api, guest: Api) -> None:
    alice.run("logs", f"echo trouble >&2; seq -f 'line%05.0f' 1 {LINES}")
    body = until(alice, "/api/v2/jobs/alice~logs", "SUCCEEDED")
    url = body["taskRoles"]["main"]["taskStatuses"][0]["containerLog"]
    place = f"/log-manager/127.0.0.1:9103/tail/alice/{body['debugId']}/main/"
    assert url.startswith(guest.uri + place) and url.endswith("/")
    tail = guest.get(f"{url}user.pai.stdout")
    assert (tail.status_code, len(tail.content)) == (200, 16 * 1024)
    assert guest.get(f"{url}user.pai.stderr").text == "trouble\n"
    full = url.replace("/tail/", "/full/")
    assert len(guest.get(f"{full}user.pai.stdout").content) == LINES * 10
    part = guest.get(f"{full}user.pai.all", headers={"Range": f"bytes={LINES * 10}-"})
    assert (part.status_code, len(part.text)) == (206, len("trouble\n"))
    index = url.replace("/tail/", "/")
    for folder in (index, url, full):
        assert 'href="user.pai.all"' in guest.get(folder).text
    assert len(guest.get(f"{index}user.pai.stdout").content) == LINES * 10
    for wrong in (f"{url}..%2Fexit", url.replace("/main/", "/other/") + "user.pai.all"):
        assert code(guest.get(wrong)) == (404, "NoTaskLogError")
