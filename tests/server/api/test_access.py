"""Access control: routes, tokens, hosts and origins."""

from __future__ import annotations

import base64
import http.client
import json
from urllib.parse import urlsplit

import pytest
import requests

from openpai_tasks.loopback.web import split
from openpai_tasks.protocol import routes
from openpai_tasks.server.api.table import RouteAccess, rows
from tests.server.conftest import Api, ServerProcess, code

GUEST = (401, "UnauthorizedUserError")
FORBIDDEN = (403, "ForbiddenUserError")


def test_health_is_plain_text_under_both_prefixes(guest: Api) -> None:
    for path in ("/healthz", "/rest-server/healthz"):
        answer = guest.get(path)
        assert (answer.status_code, answer.text) == (200, "Pylon ready.")


def test_info_answers_every_method_on_all_its_paths(guest: Api) -> None:
    expected = {"name": "PAI RESTful API", "launcherType": "k8s", "authnMethod": "basic", "version": "v1.8.1"}
    expected["engine"] = "process"  # ours
    for path in ("/api/v2/info", "/rest-server/api/v2/info", "/api/v1", "/api/v1/"):
        assert guest.get(path).json() == expected
        assert guest.post(path, {}).json() == expected


def test_login_method_is_public(guest: Api) -> None:
    assert guest.get("/api/v2/authn/info").json() == {
        "authn_type": "basic",
        "loginURI": "/api/v1/authn/basic/login",
        "loginURIMethod": "post",
    }


def test_all_other_routes_need_a_token(guest: Api) -> None:
    table = rows("union")
    filled = {name: "1" for row in table for name in split(row.path) if name.startswith("{")}
    assert (
        len([row for row in table if row.access is RouteAccess.OPEN]) == 12
    )  # health, info, login, logs, keys
    for row in table:
        if (
            row.access is not RouteAccess.OPEN or row.path == routes.SSH_KEY
        ):  # open, but needs a ticket in the link
            path = row.path
            for hole, value in filled.items():
                path = path.replace(hole, value)
            assert code(guest.call(row.method, path)) == GUEST, row.path


def test_malformed_authorization_header_is_an_invalid_token(guest: Api) -> None:
    for header in ("Bearer x", "Bearer a.b.c", "Basic x", "Basic " + base64.b64encode(b"a:b").decode()):
        answer = guest.get("/api/v2/users", headers={"Authorization": header})
        assert code(answer) == GUEST
        assert answer.json()["message"] == "Your token is invalid."


def test_unknown_path_or_method_is_404_naming_the_path(admin: Api) -> None:
    answer = admin.get("/rest-server/api/v2/nothing?a=b")
    assert (answer.status_code, answer.json()) == (
        404,
        {"code": "NoApiError", "message": "API /api/v2/nothing?a=b is not found."},
    )
    assert code(admin.delete("/api/v2/jobs")) == (404, "NoApiError")
    assert code(admin.get("/")) == (404, "NoApiError")


def test_paths_ignore_case_and_a_trailing_slash(admin: Api) -> None:
    assert admin.get("/API/v2/Users/").status_code == 200


def test_encoded_slash_stays_in_its_path_segment(admin: Api) -> None:
    answer = admin.get("/api/v2/users/..%2F..%2Finfo")
    assert code(answer) == (400, "NoUserError")
    assert "../../info" in answer.json()["message"]


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost@evil", ""])
def test_a_foreign_host_is_refused(guest: Api, host: str) -> None:
    assert code(guest.get("/api/v2/info", headers={"Host": host})) == FORBIDDEN


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost.evil.example"])
def test_a_foreign_origin_is_refused(admin: Api, origin: str) -> None:
    answer = admin.get("/api/v2/users", headers={"Origin": origin})
    assert code(answer) == FORBIDDEN
    assert "access-control-allow-origin" not in answer.headers


def test_local_web_page_may_call_the_api(admin: Api) -> None:
    origin = {"Origin": "http://localhost:3000"}
    assert (
        admin.get("/api/v2/users", headers=origin).headers["access-control-allow-origin"] == origin["Origin"]
    )
    preflight = {
        **origin,
        "Access-Control-Request-Method": "PUT",
        "Access-Control-Request-Headers": "authorization",
    }
    assert admin.call("OPTIONS", "/api/v2/users", headers=preflight).status_code == 200


def test_host_header_may_be_localhost(guest: Api) -> None:
    assert guest.get("/api/v2/info", headers={"Host": "LOCALHOST:1"}).status_code == 200


@pytest.mark.parametrize("more", [1, 4 * 1024 * 1024])
def test_a_body_over_100_kilobytes_is_too_large(admin: Api, more: int) -> None:
    message = "request entity too large: this server accepts 100 KB"
    answer = admin.submit("#" * (100 * 1024 + more))
    assert (answer.status_code, answer.json()) == (413, {"message": message})
    assert code(admin.submit("#" * 100 * 1024)) == (400, "InvalidProtocolError")


def test_malformed_json_is_400_without_a_code(admin: Api) -> None:
    answer = admin.call("PUT", "/api/v2/users", data=b"{", headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    assert set(answer.json()) == {"message"}


@pytest.mark.parametrize(
    "value", ["NaN", "-Infinity", "[" * 500 + "]" * 500, '{"a":' * 300 + "1" + "}" * 300], ids=range(4)
)
def test_json_that_could_not_be_returned_is_refused(admin: Api, owner: str, value: str) -> None:
    path, json = f"/api/v2/users/{owner}/extension", {"Content-Type": "application/json"}
    answer = admin.call("PUT", path, data=f'{{"extension": {{"odd": {value}}}}}', headers=json)
    assert (answer.status_code, set(answer.json())) == (400, {"message"})
    assert "odd" not in admin.get(f"/api/v2/users/{owner}").json()["extension"]


def test_a_number_too_large_for_json_becomes_null(admin: Api, owner: str) -> None:
    path, json = f"/api/v2/users/{owner}/extension", {"Content-Type": "application/json"}
    assert admin.call("PUT", path, data='{"extension": {"n": 1e999}}', headers=json).status_code == 201
    assert admin.get(f"/api/v2/users/{owner}").json()["extension"]["n"] is None


def test_invalid_http_request_does_not_harm_the_server(guest: Api) -> None:
    connection = http.client.HTTPConnection(urlsplit(guest.uri).netloc, timeout=60)
    connection.request("GET", "/api/v2/info", headers={"Content-Length": "-1"})
    assert connection.getresponse().status == 400
    connection.close()
    assert guest.get("/healthz").status_code == 200


def test_login_accepts_a_form_or_json_on_every_path(server: ServerProcess, guest: Api) -> None:
    owner = server.owner
    login = {"username": owner["user"], "password": owner["password"], "expiration": 4000}
    for path in ("/api/v1/token", "/api/v1/authn/basic/login", "/rest-server/api/v2/authn/basic/login"):
        for body in ({"json": login}, {"data": login}):
            answer = guest.call("POST", path, **body)
            assert answer.status_code == 200
            assert set(answer.json()) == {"user", "token", "admin"}
            assert (answer.json()["user"], answer.json()["admin"]) == (owner["user"], True)


def test_failed_login_is_400_with_the_reason(server: ServerProcess, guest: Api) -> None:
    def attempt(**login: object) -> tuple[int, str | None]:
        return code(guest.post("/api/v1/token", login))

    name = server.owner["user"]
    assert attempt(username=name, password="wrong-password") == (400, "IncorrectPasswordError")
    assert attempt(username="nobody", password="wrong-password") == (400, "NoUserError")
    for wrong in (
        {"username": name},
        {"username": name, "password": "short"},
        {"username": "no/one", "password": "wrong-password"},
        {"username": name, "password": "wrong-password", "expiration": 5},
        {"username": name, "password": "wrong-password", "extra": 1},
        {"username": {"a": 1}, "password": "wrong-password"},
    ):
        assert attempt(**wrong) == (400, "InvalidParametersError")


def test_token_can_be_checked_listed_and_revoked(server: ServerProcess) -> None:
    api = server.admin()
    checked = api.get("/api/v2/tokens/check").json()
    assert set(checked) == {
        "username",
        "application",
        "jobSpecific",
        "encodedFrameworkName",
        "iat",
        "exp",
        "admin",
    }
    assert checked["exp"] - checked["iat"] == 7 * 24 * 3600 and checked["admin"] is True
    assert api.token in api.get("/api/v1/token").json()["tokens"]
    assert api.delete("/api/v2/authn/basic/logout").status_code == 200
    assert code(api.get("/api/v2/tokens/check")) == GUEST


def test_token_payload_matches_openpai(admin: Api, owner: str) -> None:
    payload = admin.token.split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(payload + "=="))
    assert claims["username"] == owner
    assert (claims["application"], claims["jobSpecific"]) == (False, False)


def test_application_token_is_refused_for_operations_of_users(server: ServerProcess, owner: str) -> None:
    person = server.admin()
    answer = person.post("/api/v2/tokens/application", {}).json()
    assert answer["application"] is True
    application = Api(person.uri, answer["token"])
    assert application.get("/api/v2/kubernetes/nodes").status_code == 200
    assert "exp" not in application.get("/api/v2/tokens/check").json()
    for refused in (
        application.get("/api/v2/tokens"),
        application.post("/api/v2/tokens/application", {}),
        application.post("/api/v2/users", {}),
    ):
        assert code(refused) == FORBIDDEN
        assert refused.json()["message"] == "Applications are not allowed to do this operation."
    basic = requests.get(f"{person.uri}/api/v2/users", auth=(owner, answer["token"]), timeout=60)
    assert basic.status_code == 200
    assert person.delete(f"/api/v2/tokens/{answer['token']}").status_code == 200
    assert code(application.get("/api/v2/users")) == GUEST


def test_users_can_revoke_only_their_own_tokens(admin: Api, alice: Api) -> None:
    assert code(alice.delete(f"/api/v2/tokens/{admin.token}")) == FORBIDDEN
    assert code(alice.delete("/api/v2/tokens/garbage")) == (500, "UnknownError")


def test_head_is_answered_like_get_without_a_body(guest: Api) -> None:
    answer = guest.call("HEAD", routes.INFO)
    assert (answer.status_code, answer.text) == (200, "")


def test_no_secret_is_in_the_log(server: ServerProcess, guest: Api) -> None:
    api = server.admin()
    api.delete(f"/api/v2/tokens/{api.token}")
    guest.post("/api/v1/token", {"username": "x", "password": "a-password-to-find"})
    log = server.log
    assert "DELETE /api/v2/tokens/{token}" in log
    for secret in (api.token, server.owner["password"], "a-password-to-find"):
        assert secret not in log
