"""The faults that other tests switch on (`tests.faults`), each over real HTTP."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
import requests

from tests.faults import switch
from tests.server.conftest import Api, ServerProcess, code, wait_for

OWN = "/api/v2/jobs/{job}/attempts/0/taskRoles/main/taskIndex/{index}/attempts/0/logs"
TWO_TASKS = """\
protocolVersion: 2
name: {name}
type: job
prerequisites: [{{name: image, type: dockerimage, uri: busybox}}]
taskRoles:
  main:
    instances: 2
    dockerImage: image
    resourcePerInstance: {{cpu: 0, memoryMB: 64, gpu: 0}}
    commands: ["echo hello"]
"""


LATER = (1, 5, 25)  # seconds; a busy machine needs more until the next call


@pytest.fixture
def calm(server: ServerProcess) -> Iterator[ServerProcess]:
    """The module's server, without any fault before and after the test."""
    yield server
    switch(server.folder)


@pytest.fixture
def user(calm: ServerProcess, alice: Api) -> Api:
    return Api(alice.uri, alice.token, checked=False)


def sign_in(server: ServerProcess, api: Api) -> str:
    login = {"username": server.owner["user"], "password": server.owner["password"]}
    answer = requests.post(f"{api.uri}/api/v1/token", data=login, timeout=60)
    assert answer.status_code == 200
    return str(answer.json()["token"])


def is_valid(api: Api, token: str) -> bool:
    return Api(api.uri, token, checked=False).get("/api/v2/users").status_code == 200


def test_token_that_is_stored_late_becomes_valid(calm: ServerProcess, user: Api) -> None:
    old = calm.admin()
    switch(calm.folder, late_tokens=0.2)
    token = sign_in(calm, user)
    wait_for(lambda: token in old.get("/api/v2/tokens").json()["tokens"])
    assert is_valid(user, token)


def test_token_used_too_early_stays_invalid(calm: ServerProcess, user: Api) -> None:
    old = calm.admin()
    for seconds in LATER:
        switch(calm.folder, late_tokens=seconds)
        early = sign_in(calm, user)
        if not is_valid(user, early):
            break
    later = sign_in(calm, user)  # stored after the time at which the first one was due
    wait_for(lambda: later in old.get("/api/v2/tokens").json()["tokens"])
    assert code(Api(user.uri, early).get("/api/v2/users")) == (401, "UnauthorizedUserError")
    assert is_valid(user, later)


def test_simultaneous_logins_overwrite_each_other(calm: ServerProcess, user: Api) -> None:
    old = calm.admin()

    def tokens() -> list[str]:
        return list(old.get("/api/v2/tokens").json()["tokens"])

    for seconds in LATER:
        switch(calm.folder, late_tokens=seconds)
        first, second = sign_in(calm, user), sign_in(calm, user)
        if first not in tokens():
            break
    wait_for(lambda: second in tokens())
    wait_for(lambda: first not in tokens())
    assert is_valid(user, second)


def test_logs_fail_for_all_tasks_or_for_one(calm: ServerProcess, user: Api) -> None:
    assert user.submit(TWO_TASKS.format(name="fault-logs")).status_code == 202
    job = "alice~fault-logs"
    user.until(job, "SUCCEEDED")
    paths = [OWN.format(job=job, index=index) for index in range(2)]
    switch(calm.folder, logs=500)
    assert [code(user.get(path)) for path in paths] == [(500, "UnknownError")] * 2
    switch(calm.folder, logs={"main/0": 404})
    assert code(user.get(paths[0])) == (404, "NoTaskLogError")
    (uri,) = [one["uri"] for one in user.get(paths[1]).json()["locations"] if one["name"] == "stdout"]
    switch(calm.folder, log_files=502)
    assert user.get(uri).status_code == 502
    assert user.get(paths[0]).status_code == 200
    switch(calm.folder)
    assert user.get(uri).text == "hello\n"


def test_job_calls_fail_for_the_given_number_of_calls_without_a_database(
    calm: ServerProcess, user: Api, guest: Api
) -> None:
    switch(calm.folder, database=True, calls=2)
    assert user.get("/api/v2/users").status_code == 200
    assert code(Api(user.uri, checked=False).get("/api/v2/jobs")) == (401, "UnauthorizedUserError")
    refused = user.get("/api/v2/jobs")
    assert refused.json() == {"code": "ECONNREFUSED", "message": "connect ECONNREFUSED 127.0.0.1:5432"}
    assert code(user.submit("x")) == (500, "ECONNREFUSED")
    assert user.get("/api/v2/jobs").status_code == 200


def test_gateway_answers_while_the_server_is_down(calm: ServerProcess, user: Api) -> None:
    switch(calm.folder, gateway=502)
    answer = user.get("/rest-server/api/v2/info")
    assert (answer.status_code, answer.headers["content-type"]) == (502, "text/html")
    assert "502 Bad Gateway" in answer.text
    assert user.get("/healthz").status_code == 200
    switch(calm.folder, gateway=503, calls=1)
    assert [user.get("/api/v2/info").status_code for _ in range(2)] == [503, 200]


@pytest.mark.parametrize("status", [500, 502])
def test_response_to_a_submission_can_be_lost(calm: ServerProcess, user: Api, status: int) -> None:
    switch(calm.folder, lost_submit=status, calls=1)
    text = TWO_TASKS.format(name=f"fault-lost-{status}")
    assert user.submit(text).status_code == status
    assert user.get(f"/api/v2/jobs/alice~fault-lost-{status}").status_code == 200
    assert user.submit(text).status_code == 409


def test_response_to_a_refused_submission_is_not_lost(calm: ServerProcess, user: Api) -> None:
    switch(calm.folder, lost_submit=502)
    assert code(user.submit("{}")) == (400, "InvalidProtocolError")


def test_a_full_retry_after_is_the_whole_window(own_server: ServerProcess) -> None:
    own_server.start("--rate-limit", "list=1/h")
    admin = own_server.admin()
    switch(own_server.folder, full_retry_after=True)
    assert admin.get("/api/v2/jobs").status_code == 200
    time.sleep(1.1)
    refused = admin.get("/api/v2/jobs")
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "3600")
    assert int(refused.headers["X-RateLimit-Reset"]) - time.time() < 3600
