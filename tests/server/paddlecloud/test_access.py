"""Who may call PaddleCloud's API, and what callers see of each other."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

import pytest
import requests

from tests.server.paddlecloud.conftest import PASSWORD, sign_in

READS = [
    "jobs",
    "pservers",
    "workers",
    "logs?jobname=x",
    "quota",
    "token2user",
    "filelist?path=/pfs/a/home/b",
]


def post_token(uri, body):
    return requests.post(f"{uri}/api-token-auth/", json=body, timeout=60)


def test_token_is_forty_hexadecimal_digits_and_the_same_each_time(server, user1):
    again = sign_in(server, user1.uri, "user1", PASSWORD)
    assert again.token == user1.token and len(user1.token) == 40 and int(user1.token, 16)
    assert user1.get("/api/v1/token2user/") == {"user": "user1"}


@pytest.mark.parametrize(
    "body, answer",
    [
        ({"username": "user1", "password": "wrong"}, "non_field_errors"),
        ({"username": "nobody-here", "password": "wrong"}, "non_field_errors"),
        ({"username": "user1"}, "password"),
        ({"password": "x"}, "username"),
        ({"username": ["user1"], "password": {}}, "username"),
        ([], "username"),
    ],
)
def test_wrong_credentials_are_refused(user1, body, answer):
    found = post_token(user1.uri, body)
    assert found.status_code == 400 and answer in found.json()


def test_guesses_of_a_password_are_limited(user1):
    answers = []
    while not answers or answers[-1].status_code == 400:  # one more is allowed after each 6 s
        answers.append(post_token(user1.uri, {"username": "guessed", "password": f"p{len(answers)}"}))
    assert len(answers) > 10 and answers[-1].status_code == 429
    assert int(answers[-1].headers["retry-after"]) > 0


@pytest.mark.parametrize("path", READS)
@pytest.mark.parametrize("header", ["", "Token", "Token x", "Bearer x", "Basic !", "Basic dXNlcjE6bm8="])
def test_call_without_valid_credentials_gets_401(user1, path, header):
    answer = user1.call("GET", f"/api/v1/{path}", headers={"Authorization": header})
    assert answer.status_code == 401 and answer.json()["detail"]
    assert answer.headers["www-authenticate"].startswith("Basic")


def test_token_of_openpai_is_not_one_of_paddlecloud(user1, admin):
    answer = user1.call("GET", "/api/v1/jobs", headers={"Authorization": f"Token {admin.token}"})
    assert answer.status_code == 401
    assert (
        requests.get(f"{admin.uri}/api/v2/jobs", headers={"Authorization": f"Token {user1.token}"}).ok
        is False
    )


def test_name_and_password_work_instead_of_a_token(user1):
    answer = requests.get(f"{user1.uri}/api/v1/token2user", auth=("user1", PASSWORD), timeout=60)
    assert answer.json() == {"user": "user1"}


def test_new_password_revokes_the_token(server, admin, user1):
    admin.post("/api/v2/users", {"username": "changing", "password": "before-1"})
    user = sign_in(server, user1.uri, "changing", "before-1")
    mine = server.login("changing", "before-1")
    change = {
        "data": {"username": "changing", "newPassword": "after-22", "oldPassword": "before-1"},
        "patch": True,
    }
    assert mine.put("/api/v2/users/me", change).ok
    assert user.call("GET", "/api/v1/jobs").status_code == 401
    assert sign_in(server, user1.uri, "changing", "after-22").token != user.token


def test_token_ends_with_its_user(server, admin, user1):
    admin.post("/api/v2/users", {"username": "leaving", "password": PASSWORD})
    user = sign_in(server, user1.uri, "leaving", PASSWORD)
    assert admin.delete("/api/v2/users/leaving").ok
    assert user.call("GET", "/api/v1/jobs").status_code == 401


def test_users_do_not_see_each_others_jobs(user1, user2):
    user1.run("private", "echo secret")
    user1.ended("private")
    assert user2.job("private") is None and user2.workers("private") == []
    assert user2.get("/api/v1/logs", jobname="private")["code"] == 404
    assert user2.kill("private")["code"] == 404
    assert user1.job("private") is not None


def test_server_and_its_health_answer_with_and_without_a_slash(user1):
    for path in ("/healthz", "/healthz/"):
        assert user1.call("GET", path, headers={"Authorization": ""}).text == "OK"
    for path in ("/api/v1/jobs", "/api/v1/jobs/"):
        assert "items" in user1.get(path)


def test_unknown_path_and_method_have_their_status(user1):
    assert user1.call("GET", "/api/v1/nothing").status_code == 404
    answer = user1.call("PATCH", "/api/v1/jobs")
    assert answer.status_code == 405 and answer.headers["allow"] == "GET, POST, DELETE"


@pytest.mark.parametrize("body", [b"{", b"[1]", b'"x"', b"null", b"\xff", b"[" * 5000, b'{"name": NaN}'])
def test_odd_bodies_are_refused_without_a_failure_of_the_server(user1, server, body):
    headers = {"Content-Type": "application/json"}
    for method in ("POST", "DELETE"):
        answer = user1.call(method, "/api/v1/jobs/", data=body, headers=headers)
        problem = answer.json().get("detail") or answer.json()["msg"]
        assert problem and "\n" not in problem and "Internal" not in problem


def test_form_that_cannot_be_parsed_is_refused(user1):
    headers = {"Content-Type": "multipart/form-data"}
    answer = user1.call("POST", "/api/v1/file?path=/pfs/a/home/user1/x", data=b"rubbish", headers=headers)
    assert answer.status_code == 400 and answer.json()["detail"]


def test_pages_of_other_sites_are_refused(user1):
    for headers in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}):
        assert user1.call("GET", "/api/v1/jobs", headers=headers).status_code == 403


def test_large_body_without_a_token_is_read_before_the_answer(user1):
    data = b"x" * (8 << 20)
    answer = user1.call("POST", "/api/v1/file?path=/x", data=data, headers={"Authorization": "Token no"})
    assert answer.status_code == 401


def test_connection_stays_open_between_calls(user1):
    where = urlsplit(user1.uri)
    request = f"GET {where.path}/healthz HTTP/1.1\r\nHost: {where.netloc}\r\n\r\n".encode()
    with socket.create_connection((where.hostname, where.port), timeout=60) as connection:
        for _ in range(2):
            connection.sendall(request)
            answer = b""
            while not answer.endswith(b"OK"):
                answer += connection.recv(4096)
            assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
