"""What every call to a cluster has in common, over real HTTP: tokens, pauses, redirects, errors."""

import email.utils
import time

import pytest

from openpai_tasks.backends.base import TokenStore
from openpai_tasks.backends.http.redirects import may_follow
from openpai_tasks.backends.openpai import Client
from openpai_tasks.errors import ApiError, Conflict, Denied, NotFound, TooManyRequests, Unreachable
from openpai_tasks.settings.credentials import Credentials
from openpai_tasks.settings.registry import Cluster
from tests import hostile
from tests.hostile import Hostile
from tests.scripted import Reply, Scripted
from tests.sdk.clusters.test_known import certificate  # noqa: F401
from tests.server.conftest import wait_for

USER = "/rest-server/api/v1/user/alice"
JOBS = "/rest-server/api/v2/jobs"
LOGIN = "POST /rest-server/api/v1/token"
RECORD = {"username": "alice"}


def client_of(server, generation="1.8", **known):
    cluster = Cluster("lab", server.uri, user="alice", generation=generation)
    return Client(cluster, Credentials(**(known or {"token": "t0ken"})), timeout=30)


def busy(seconds):
    """The text of OpenPAI's rate limiter, which is not JSON."""
    headers = (("Retry-After", str(seconds)), ("Content-Type", "text/html; charset=utf-8"))
    return Reply("Too many requests, please try again later.", 429, headers)


def test_busy_server_is_retried_no_sooner_than_its_retry_after(serve):
    times = []

    def answer(asked):
        times.append(time.monotonic())
        return busy(1) if len(times) == 1 else RECORD

    server = serve({f"GET {USER}": answer})
    assert client_of(server).user_info("alice") == RECORD
    assert times[1] - times[0] >= 1


def test_retry_after_may_be_a_date(serve):
    answers = [busy(email.utils.formatdate(time.time() - 5, usegmt=True)), Reply("", 202)]
    server = serve({f"POST {JOBS}": lambda asked: answers.pop(0)})
    client_of(server).submit("name: x\n")
    assert [one.body for one in server.seen] == ["name: x\n"] * 2


def test_too_long_retry_after_is_an_error_without_waiting(serve):
    server = serve({f"POST {JOBS}": busy(3600)})
    with pytest.raises(TooManyRequests, match="try again in 3600 s") as caught:
        client_of(server).submit("name: x\n")
    assert (caught.value.status, caught.value.retry_after, len(server.seen)) == (429, 3600, 1)


@pytest.mark.parametrize(
    "response, kind, code, words",
    [
        (Reply({"message": "request entity too large"}, 413), ApiError, "", "request entity too large"),
        (Reply({"code": None, "message": "bad indentation"}, 500), ApiError, "", "bad indentation"),
        (Reply({"code": "ConflictJobError", "message": "taken"}, 409), Conflict, "ConflictJobError", "taken"),
        (Reply(b"null", 404), NotFound, "", "HTTP 404"),
        (Reply("<html>Bad\nGateway</html>", 400), ApiError, "", "HTTP 400"),
        (
            Reply({"code": "X", "message": '[{"dataPath":".name","message":"should be string"}]'}, 400),
            ApiError,
            "X",
            r"answered: \.name should be string$",
        ),
    ],
)
def test_error_is_one_line_whatever_the_response_body(serve, response, kind, code, words):
    server = serve({f"POST {JOBS}": response})
    with pytest.raises(kind, match=words) as caught:
        client_of(server).submit("x")
    assert caught.value.code == code
    assert "\n" not in str(caught.value)


def test_redirect_to_another_server_never_gets_the_token(serve):
    other = serve({f"GET {USER}": RECORD})
    for place in (other.uri, other.uri.replace("127.0.0.1", "localhost")):
        moved = Reply("", 307, (("Location", place + USER),))
        client = client_of(serve({f"GET {USER}": moved}))
        with pytest.raises(ApiError, match="not followed"):
            client.user_info("alice")
    assert other.seen == []


def test_redirect_to_another_server_gets_neither_password_nor_document(serve):
    other = serve({f"POST {JOBS}": "", LOGIN: {"token": "x"}})
    moved = Reply("", 307, (("Location", f"{other.uri}/elsewhere"),))
    server = serve({f"POST {JOBS}": moved, LOGIN: moved})
    for call in (client_of(server).submit, client_of(server, password="s3cret").submit):
        with pytest.raises(ApiError, match=r"cluster\.update"):
            call("x")
    assert other.seen == []


def test_a_redirect_on_the_same_server_is_followed_with_the_token(serve):
    server = serve(
        {
            f"GET {USER}": Reply("", 301, (("Location", "/rest-server/there"),)),
            "GET /rest-server/there": RECORD,
        }
    )
    assert client_of(server).user_info("alice") == RECORD
    assert [one.token for one in server.seen] == ["Bearer t0ken"] * 2


def test_redirect_loop_is_an_error(serve):
    server = serve({f"GET {USER}": Reply("", 302, (("Location", USER),))})
    with pytest.raises(ApiError, match="again and again"):
        client_of(server).user_info("alice")


@pytest.mark.parametrize(
    "url, target, token, any_host, may",
    [
        ("http://pai/x", "https://pai/x", True, False, True),
        ("http://pai:80/x", "https://pai:443/x", True, False, True),
        ("http://pai/x", "https://pai:8443/x", True, False, False),
        ("http://pai/x", "https://pai:8443/x", False, False, True),
        ("https://pai/x", "http://pai/x", False, True, False),
        ("https://pai/x", "https://pai.evil/x", True, False, False),
        ("https://pai/x", "https://pai.evil/x", True, True, False),
        ("https://pai/x", "https://pai.evil/x", False, False, False),
        ("https://pai/x", "https://blobs/x", False, True, True),
        ("https://pai/x", "file:///etc/passwd", False, True, False),
        ("https://pai/x", "https://pai:port/x", False, True, False),
    ],
)
def test_which_redirects_may_be_followed(url, target, token, any_host, may):
    assert may_follow(url, target, token, any_host) is may


def test_expired_token_is_renewed_with_the_password(serve):
    server = serve({LOGIN: {"token": "fresh"}})
    refused = Reply({"code": "UnauthorizedUserError", "message": "Your token is invalid."}, 401)
    server.answers[f"GET {USER}"] = lambda asked: RECORD if asked.token == "Bearer fresh" else refused
    saved = []
    cluster = Cluster("lab", server.uri, user="alice", generation="1.8")
    known = Credentials(password="s3cret", token="old")
    assert Client(cluster, known, tokens=TokenStore(save=saved.append)).user_info("alice") == RECORD
    assert saved == ["fresh"]
    with pytest.raises(Denied, match=r"`pai cluster\.update lab --login` renews the login"):
        client_of(server).user_info("alice")


def test_login_response_without_a_token_is_an_error(serve):
    with pytest.raises(ApiError, match="returned no token"):
        client_of(serve({LOGIN: {}})).login("alice", "s3cret")


def test_certificates_are_verified_even_if_the_record_says_not_to(certificate):  # noqa: F811
    server = Scripted({f"GET {USER}": RECORD}, certificate)
    try:
        for verify, trusted in ((False, False), (True, False), (certificate, True)):
            cluster = Cluster("lab", server.uri, user="alice", generation="1.8", verify=verify)
            client = Client(cluster, Credentials(token="t0ken"), timeout=30)
            if trusted:
                assert client.user_info("alice") == RECORD
            else:
                with pytest.raises(Unreachable, match="no secure connection"):
                    client.user_info("alice")
    finally:
        server.close()
    assert len(server.seen) == 1


def test_silent_server_times_out_once_and_the_error_names_the_setting():
    with Hostile(lambda request: []) as server:
        with pytest.raises(Unreachable, match=r"no data arrived within 2 s \(the setting http-timeout\)"):
            hostile.client_of(server, 2.0).user_info("alice")
        wait_for(lambda: server.connections)  # its thread may be slower than the client
        assert server.connections == 1
