"""The server as OpenPAI 1.8 only, and the union profile, which has the older paths as well."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from openpai_tasks.server.api.formats.profiles import PROFILES
from openpai_tasks.server.api.table import RouteAccess, rows
from tests.server.conftest import Api, ServerProcess, code
from tests.server.profiles import join, serving, until

NO_API = (404, "NoApiError")
GUEST = (401, "UnauthorizedUserError")


@pytest.fixture(scope="module")
def newest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with serving(tmp_path_factory.mktemp("server"), "--profile", "1.8") as server:
        yield join(server, "/api/v2/users")


def test_only_a_few_old_paths_remain(newest: Api) -> None:
    for path in ("jobs", "jobs/alice~x", "user/alice/jobs", "user/alice/jobs/x/config", "virtual-clusters"):
        assert code(newest.get(f"/api/v1/{path}")) == NO_API, path
    assert code(newest.post("/api/v1/user/alice/jobs", {})) == NO_API
    assert newest.get("/api/v1").json()["version"] == "v1.8.1"
    assert newest.get("/api/v1/user/alice").json()["username"] == "alice"
    assert newest.get("/api/v1/token/check").json()["username"] == "alice"


def test_job_runs_and_a_call_returns_its_log_locations(newest: Api) -> None:
    newest.run("plain", "echo hello")
    body = until(newest, "/api/v2/jobs/alice~plain", "SUCCEEDED")
    task = body["taskRoles"]["main"]["taskStatuses"][0]
    assert task["containerLog"] == (
        "/api/v2/jobs/alice~plain/attempts/0/taskRoles/main/taskIndex/0/attempts/0/logs"
    )
    located = {one["name"]: one["uri"] for one in newest.get(task["containerLog"]).json()["locations"]}
    assert newest.get(located["stdout"]).text == "hello\n"


def test_rate_limits_are_those_of_openpai_1_8(newest: Api) -> None:
    listed = newest.get("/api/v2/jobs").headers
    assert listed["X-RateLimit-Limit"] == "120"
    assert newest.get("/api/v2/users/alice").headers["X-RateLimit-Limit"] == "600"
    assert newest.submit("a: b").headers["X-RateLimit-Limit"] == "3600"


def test_union_serves_old_paths_with_a_token(server: ServerProcess, alice: Api, guest: Api) -> None:
    role = {"name": "main", "command": "echo hello"}
    config = {"jobName": "old", "image": "busybox", "taskRoles": [role]}
    assert code(guest.get("/api/v1/jobs")) == code(guest.get("/api/v1/user/alice/jobs/old")) == GUEST
    assert code(alice.get("/api/v1/user/alice/jobs/old")) == (404, "NoJobError")
    assert alice.post("/api/v1/user/alice/jobs", config).status_code == 202
    body = until(alice, "/api/v1/user/alice/jobs/old", "SUCCEEDED")
    assert body == alice.get("/api/v2/jobs/alice~old").json()
    assert alice.get("/api/v1/user/alice/jobs/old/config").json() == config
    assert "taskRoles" in alice.get("/api/v2/jobs/alice~old/config").json()
    assert alice.get("/api/v2/jobs/alice~old/config").json()["protocolVersion"] == 2
    text = '{"protocolVersion": 2}'
    typed = {"Content-Type": "text/yaml"}
    answer = alice.call("POST", "/api/v1/user/alice/jobs", data=text, headers=typed)
    assert code(answer) == (400, "InvalidProtocolError")
    assert alice.delete("/api/v1/user/alice/jobs/old").status_code == 202
    assert code(alice.get("/api/v2/jobs/alice~old")) == (404, "NoJobError")


def test_union_has_no_rate_limits(alice: Api) -> None:
    assert not [name for name in alice.get("/api/v2/jobs").headers if name.lower().startswith("x-ratelimit")]


def test_only_profile_0_14_has_public_job_routes() -> None:
    sizes = {name: len(rows(name)) for name in PROFILES}
    assert sizes["union"] > sizes["1.8"] > sizes["0.14"] > 30
    for name in PROFILES:
        open_jobs = [row for row in rows(name) if row.access is RouteAccess.OPEN and "/jobs" in row.path]
        assert bool(open_jobs) == (name == "0.14"), name
