"""The server as OpenPAI 0.14: v1 paths and v1 configurations, public reads, YARN's terms."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from tests.notices import without_memory
from tests.server.conftest import NOTICES, Api, ServerProcess, code, wait_for
from tests.server.profiles import PASSWORD, TWO_ROLES, join, serving, until

SUMMARY = """
name username state subState executionType retries retryDetails createdTime completedTime appExitCode
virtualCluster totalGpuNumber totalTaskNumber totalTaskRoleNumber
"""
STATUS = """
name username state subState executionType retries retryDetails createdTime completedTime appId appProgress
appTrackingUrl appLaunchedTime appCompletedTime appExitCode appExitSpec appExitDiagnostics appExitMessages
appExitTriggerMessage appExitTriggerTaskRoleName appExitTriggerTaskIndex appExitType virtualCluster
"""
TASK = """
taskIndex taskState containerId containerIp containerPorts containerGpus containerLog containerExitCode
"""
NO_API = (404, "NoApiError")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    flags = ["--profile", "0.14", "--virtual-cluster", "lab=1,512,0"]
    with serving(tmp_path_factory.mktemp("server"), *flags) as server:
        yield server


@pytest.fixture(scope="module")
def alice(server: ServerProcess) -> Api:
    return join(server, "/api/v2/user")


@pytest.fixture(scope="module")
def pair(alice: Api) -> Any:
    """A finished job with two roles."""
    assert alice.submit(TWO_ROLES.format(name="pair")).status_code == 202
    return until(alice, "/api/v1/user/alice/jobs/pair", "SUCCEEDED", "FAILED")


def config(name: str, **changes: Any) -> dict[str, Any]:
    role = {"name": "Main_role", "command": "echo $WHO", "memoryMB": 128}
    return {"jobName": name, "image": "busybox", "taskRoles": [role], "jobEnvs": {"WHO": "me"}, **changes}


def test_root_is_an_html_page_and_newer_routes_are_missing(guest: Api, alice: Api) -> None:
    for path in ("/api/v1", "/rest-server/api/v1/", "/api/v2"):
        answer = guest.get(path)
        assert (answer.status_code, answer.text) == (200, "<pre>PAI RESTful API</pre>")
        assert answer.headers["content-type"].startswith("text/html")
    newer = (
        "info jobs jobs/alice~pair tokens users groups virtual-clusters storages authn/info cluster/sku-types"
    )
    for path in newer.split():
        assert code(alice.get(f"/api/v2/{path}")) == NO_API, path
    for path in ("token", "token/check", "kubernetes/nodes"):
        assert code(alice.get(f"/api/v1/{path}")) == NO_API, path


def test_login_reports_whether_a_github_token_is_set(server: ServerProcess, guest: Api, alice: Api) -> None:
    form = {"username": "alice", "password": PASSWORD}
    for path in ("/api/v1/token", "/api/v1/authn/basic/login"):
        body = guest.call("POST", path, data=form).json()
        assert set(body) == {"user", "token", "admin", "hasGitHubPAT"}
        assert body["hasGitHubPAT"] is False
    assert "storageConfig" not in alice.get("/api/v1/user/alice").json()


def test_invalid_token_is_treated_as_a_guest(guest: Api) -> None:
    answer = guest.get("/api/v1/user/alice", headers={"Authorization": "Bearer no.such.token"})
    assert code(answer) == (401, "UnauthorizedUserError")
    assert answer.json()["message"] == "Guest is not allowed to do this operation."


def test_a_missing_group_is_an_unknown_error(alice: Api) -> None:
    assert code(alice.get("/api/v2/group/none")) == (500, "UnknownError")


def test_virtual_clusters_are_public_and_have_queue_fields(guest: Api) -> None:
    lab = guest.get("/api/v1/virtual-clusters").json()["lab"]
    assert {"numActiveJobs", "numJobs", "numPendingJobs", "status", "maxCapacity"} <= set(lab)
    assert lab["resourcesTotal"] == {"memory": 512, "vCores": 1, "GPUs": 0}
    assert "resourcesGuaranteed" not in guest.get("/api/v1/virtual-clusters/lab").json()
    assert code(guest.get("/api/v1/virtual-clusters/none")) == (404, "NoVirtualClusterError")


def test_anyone_can_read_jobs_in_the_old_format(guest: Api, pair: Any) -> None:
    rows = guest.get("/api/v1/jobs").json()
    assert {row["name"] for row in rows} >= {"pair"}
    assert set(rows[0]) == set(SUMMARY.split())
    assert guest.get("/api/v1/jobs?username=nobody").json() == []
    assert guest.get("/api/v1/user/nobody/jobs").json() == []
    assert len(guest.get("/api/v1/user/alice/jobs?limit=0&state=X&withTotalCount=true").json()) == len(rows)
    for path in ("/api/v1/jobs/alice~pair", "/api/v1/user/alice/jobs/pair", "/api/v2/user/alice/jobs/pair"):
        body = guest.get(path).json()
        assert set(body) == {"name", "jobStatus", "taskRoles"}
        assert set(body["jobStatus"]) == set(STATUS.split())
        assert (body["name"], body["jobStatus"]["name"]) == ("pair", "alice~pair")


def test_roles_keep_their_names_and_ports_are_strings(pair: Any) -> None:
    assert pair["jobStatus"]["subState"] == "FRAMEWORK_COMPLETED"
    assert list(pair["taskRoles"]) == ["Ps_Server", "worker"]
    (task,) = pair["taskRoles"]["Ps_Server"]["taskStatuses"]
    assert set(task) == set(TASK.split())
    assert task["containerGpus"] == 0
    assert re.fullmatch(r"\d+,\d+", task["containerPorts"]["data"])


def test_log_is_shown_in_an_html_page(guest: Api, pair: Any) -> None:
    (task,) = pair["taskRoles"]["Ps_Server"]["taskStatuses"]
    url = task["containerLog"]
    assert url.startswith(f"{guest.uri}/yarn/127.0.0.1:8042/node/containerlogs/")
    listing = guest.get(url)
    assert listing.headers["content-type"].startswith("text/html")
    links = re.findall(r'<a href="([^"]+)">(user\.pai\.std\w+) :', listing.text)
    assert [name for _, name in links] == ["user.pai.stdout", "user.pai.stderr"]
    shown = {name: guest.get(urlsplit(link)._replace(scheme="").geturl()).text for link, name in links}
    assert html.unescape(re.findall("<pre>(.*)</pre>", shown["user.pai.stdout"], re.S)[0]) == "<out> & more\n"
    assert "<pre>trouble\n</pre>" in shown["user.pai.stderr"]
    assert code(guest.get(url + "user.pai.other")) == (404, "NoTaskLogError")
    assert code(guest.get(url.replace("/alice/", "/bob/"))) == (404, "NoTaskLogError")


def test_page_shows_the_end_of_a_long_log_and_links_to_the_full_log(guest: Api, alice: Api) -> None:
    alice.run("long", "seq -f 'line%05.0f' 1 1000")
    body = until(alice, "/api/v1/user/alice/jobs/long", "SUCCEEDED")
    url = body["taskRoles"]["main"]["taskStatuses"][0]["containerLog"] + "user.pai.stdout"
    page = guest.get(url).text
    assert len(re.findall("<pre>(.*)</pre>", page, re.S)[0]) == 4096
    (link,) = re.findall(r'<p>.* Click <a href="([^"]+)">here</a> for full log', page)
    assert len(re.findall("line", guest.get(link).text)) == 1000
    assert "<pre>line01000\n</pre>" in guest.get(url + "/?start=9990").text
    assert "<pre></pre>" in guest.get(url + "/?start=10000").text
    assert "<pre>line00002\n</pre>" in guest.get(url + "?start=10&end=20").text


def test_page_of_a_large_log_that_is_read_in_chunks_is_complete(guest: Api, alice: Api) -> None:
    alice.run("large", "printf '<'; head -c 300000 /dev/zero | sed 's/\\x00/\u00e9/g'; printf '>\\377'")
    body = until(alice, "/api/v1/user/alice/jobs/large", "SUCCEEDED")
    url = body["taskRoles"]["main"]["taskStatuses"][0]["containerLog"] + "user.pai.stdout"
    page = guest.get(url + "?start=0").text
    (content,) = re.findall("<pre>(.*)</pre>", page, re.S)
    assert html.unescape(content) == "<" + "\u00e9" * 300000 + ">\ufffd"


@pytest.mark.parametrize("base", ["/api/v1/jobs", "/api/v1/user/alice/jobs", "/api/v2/user/alice/jobs"])
def test_v1_configuration_runs_and_can_be_read_back(guest: Api, alice: Api, base: str) -> None:
    name = "v1" + base.replace("/", "-")
    answer = alice.post(base, config(name))
    assert (answer.status_code, without_memory(answer.json())) == (
        202,
        {"message": f"update job {name} successfully", **NOTICES},
    )
    place = answer.headers["location"]
    body = until(guest, place, "SUCCEEDED", "FAILED")
    (task,) = body["taskRoles"]["Main_role"]["taskStatuses"]
    assert "<pre>me\n</pre>" in guest.get(task["containerLog"] + "user.pai.stdout").text
    given = guest.get(f"{place}/config")
    assert given.headers["content-type"].startswith("application/json")
    assert given.json() == config(name)
    assert yaml.safe_load(guest.get(f"{place}/config", headers={"Accept": "text/yaml"}).text) == config(name)
    assert guest.get(f"/api/v2/jobs/alice~{name}/config").json()["protocolVersion"] == 2


def test_nested_form_is_accepted_as_a_configuration(guest: Api, alice: Api) -> None:
    form = {
        "jobName": "form",
        "image": "busybox",
        "retryCount": "0",
        "taskRoles[0][name]": "main",
        "taskRoles[0][taskNumber]": "2",
        "taskRoles[0][portList][0][label]": "web",
        "taskRoles[0][portList][0][portNumber]": "1",
        "taskRoles[0][command]": "true",
    }
    assert alice.call("POST", "/api/v1/user/alice/jobs", data=form).status_code == 202
    body = until(guest, "/api/v1/user/alice/jobs/form", "SUCCEEDED")
    tasks = body["taskRoles"]["main"]["taskStatuses"]
    assert len(tasks) == 2
    assert set(tasks[0]["containerPorts"]) == {"ssh", "http", "web"}


def test_put_takes_the_name_from_the_path_and_never_overwrites(alice: Api) -> None:
    path = "/api/v1/user/alice/jobs/put"
    assert alice.put(path, config("other", killAllOnCompletedTaskNumber=1)).headers["x-warning"]
    assert alice.get(path).json()["name"] == "put"
    assert code(alice.put(path, config("put"))) == (409, "ConflictJobError")


def test_invalid_and_unauthorised_requests_are_refused(alice: Api, guest: Api, server: ServerProcess) -> None:
    base = "/api/v1/user/alice/jobs"
    invalid = (400, "InvalidParametersError")
    assert code(alice.post(base, config("x", image=""))) == invalid
    assert code(alice.post(base, config("x", unknown=1))) == invalid
    assert code(alice.call("POST", base, data="a: b", headers={"Content-Type": "text/yaml"})) == invalid
    assert code(alice.post(base, config("x", virtualCluster="none"))) == (404, "NoVirtualClusterError")
    assert code(alice.post(base, config("x", virtualCluster="lab"))) == (403, "ForbiddenUserError")
    assert code(server.admin().post(base, config("x"))) == (403, "ForbiddenUserError")
    assert code(guest.post(base, config("x"))) == (401, "UnauthorizedUserError")
    assert code(guest.get(f"{base}/none")) == (404, "NoJobError")
    assert code(guest.get(f"{base}/none/config")) == (404, "NoJobError")
    assert code(guest.get("/api/v2/jobs/protocolversion/config")) == (404, "NoJobConfigError")
    assert code(guest.get(f"{base}/none/ssh")) == (404, "NoJobError")


def test_secrets_of_a_document_are_masked(guest: Api, pair: Any) -> None:
    for path in ("/api/v1/jobs/alice~pair/config", "/api/v2/jobs/alice~pair/config"):
        assert guest.get(path).json()["secrets"] == "******"
    assert code(guest.get("/api/v1/jobs/alice~pair/ssh")) == (404, "NoJobSshInfoError")


def test_stopped_job_has_the_exit_code_of_yarn(guest: Api, alice: Api) -> None:
    path = "/api/v1/user/alice/jobs/sleeper"
    alice.run("sleeper", "sleep 600")
    assert until(guest, path, "RUNNING")["jobStatus"]["subState"] == "APPLICATION_RUNNING"
    assert code(guest.put(f"{path}/executionType", {"value": "STOP"})) == (401, "UnauthorizedUserError")
    assert alice.put(f"{path}/executionType", {"value": "STOP"}).status_code == 202
    seen = wait_for(lambda: [guest.get(path).json()["jobStatus"]["state"]])
    assert seen[0] in ("RUNNING", "STOPPED")
    body = until(guest, path, "STOPPED")
    assert body["jobStatus"]["appExitCode"] == body["jobStatus"]["appExitSpec"]["code"] == -7351
    assert body["taskRoles"]["main"]["taskStatuses"][0]["containerExitCode"] == -7400


def test_failed_job_has_the_exit_codes_of_command_and_platform(guest: Api, alice: Api) -> None:
    alice.run("seven", "exit 7")
    status = until(guest, "/api/v1/user/alice/jobs/seven", "FAILED")["jobStatus"]
    assert (status["appExitCode"], status["appExitSpec"]["phrase"]) == (
        255,
        "CONTAINER_RUNTIME_UNKNOWN_FAILURE",
    )
    assert status["appExitMessages"]["runtime"]["originalUserExitCode"] == 7


def test_deleted_job_is_gone_and_its_name_is_free(guest: Api, alice: Api) -> None:
    path = "/api/v1/user/alice/jobs/again"
    for word in ("one", "two"):
        alice.run("again", f"echo {word}; sleep 600")
        task = until(guest, path, "RUNNING")["taskRoles"]["main"]["taskStatuses"][0]
        page = task["containerLog"] + "user.pai.stdout"
        assert wait_for(lambda page=page: re.findall("<pre>(.+)</pre>", guest.get(page).text, re.S)) == [
            word + "\n"
        ]
        assert code(guest.delete(path)) == (401, "UnauthorizedUserError")
        assert alice.delete(path).status_code == 202
        assert code(guest.get(path)) == (404, "NoJobError")
        assert code(guest.get(page)) == (404, "NoTaskLogError")
    assert code(alice.delete(path)) == (404, "NoJobError")


def test_commands_are_joined_with_a_logical_and(guest: Api, alice: Api) -> None:
    text = TWO_ROLES.format(name="joined").replace("sleep 0.2", 'echo kept # the rest is a comment", "false')
    assert alice.submit(text).status_code == 202
    body = until(guest, "/api/v1/user/alice/jobs/joined", "SUCCEEDED", "FAILED")
    assert body["jobStatus"]["state"] == "SUCCEEDED"


def test_job_name_may_contain_a_dot(alice: Api) -> None:
    assert alice.post("/api/v1/user/alice/jobs", json=config("tf-cifar.1")).status_code == 202
    job = until(alice, "/api/v1/user/alice/jobs/tf-cifar.1", "SUCCEEDED", "FAILED")
    assert (job["name"], job["jobStatus"]["state"]) == ("tf-cifar.1", "SUCCEEDED")
