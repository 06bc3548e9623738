"""When a token is renewed and used, over real HTTP. A cluster stores a token a while after the login."""

import os
import pwd
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from openpai_tasks.backends.base import NOT_SHARED, TokenStore
from openpai_tasks.backends.http.retries import NEVER
from openpai_tasks.backends.openpai import Client
from openpai_tasks.errors import Unreachable
from openpai_tasks.settings.credentials import Credentials
from openpai_tasks.settings.registry import Cluster
from tests.scripted import Reply, Scripted

USER = "GET /rest-server/api/v1/user/alice"
LOGIN = "POST /rest-server/api/v1/token"
RECORD = {"username": "alice"}
REFUSED = Reply({"code": "UnauthorizedUserError", "message": "Your token is invalid."}, 401)


class Lab(Scripted):
    """Hands out ``token-1``, ``token-2`` and so on, accepts those in ``good``, records when each is used."""

    def __init__(self, *good):
        super().__init__({LOGIN: self.login, USER: self.user})
        self.good, self.logins, self.used = set(good), [], {}

    def login(self, asked):
        self.logins.append(time.monotonic())
        return {"token": f"token-{len(self.logins)}"}

    def user(self, asked):
        token = asked.token.removeprefix("Bearer ")
        self.used.setdefault(token, time.monotonic())
        return RECORD if token in self.good else REFUSED


@pytest.fixture
def serve():
    started = []

    def start(*good):
        started.append(Lab(*good))
        return started[-1]

    yield start
    for server in started:
        server.close()


def connect(server, token="", tokens=NOT_SHARED, say=lambda line: None):
    cluster = Cluster("lab", server.uri, user="alice", generation="1.8")
    return Client(cluster, Credentials("s3cret", token), tokens=tokens, say=say)


@pytest.mark.parametrize("token", ["", "expired"])
def test_new_token_is_used_and_saved_after_a_pause(serve, token):
    server, kept, messages = serve("token-1"), [], []
    tokens = TokenStore(save=lambda new: kept.append((new, time.monotonic())))
    assert connect(server, token, tokens, messages.append).user_info("alice") == RECORD
    [(new, moment)] = kept
    assert new == "token-1" and len(server.logins) == 1 and messages == []
    assert server.used["token-1"] - server.logins[0] >= 0.6
    assert moment - server.logins[0] >= 0.6  # another command may use it at once


@pytest.mark.parametrize("token", ["", "expired"])
def test_refused_new_token_is_replaced_after_a_longer_pause(serve, token):
    server, messages = serve("token-2"), []
    assert connect(server, token, say=messages.append).user_info("alice") == RECORD
    assert len(server.logins) == 2 and server.used["token-2"] - server.logins[1] >= 1.5
    [line] = messages
    assert "waiting 1.5 s" in line and "cluster 'lab'" in line and "token-" not in line


def test_refused_token_of_an_explicit_login_is_replaced_after_a_longer_pause(serve):
    server = serve("token-2")
    client = connect(server)
    client.login("alice", "s3cret")
    assert client.user_info("alice") == RECORD
    assert len(server.logins) == 2 and server.used["token-2"] - server.logins[1] >= 1.5


def test_expired_token_is_renewed_each_time(serve):
    server = serve("token-1")
    client = connect(server)
    for number in (1, 2, 3):
        server.good = {f"token-{number}"}
        assert client.user_info("alice") == RECORD
    assert len(server.logins) == 3


def test_concurrent_threads_log_in_once(serve):
    server = serve("token-1")
    client, together = connect(server, "expired"), threading.Barrier(8)

    def ask(_):
        together.wait(60)
        return client.user_info("alice")

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, range(8))) == [RECORD] * 8
    assert len(server.logins) == 1


@pytest.mark.parametrize("token", ["", "expired"])
def test_token_saved_by_another_command_is_used(serve, token):
    server = serve("others")
    assert connect(server, token, TokenStore(read=lambda: "others")).user_info("alice") == RECORD
    assert server.logins == []


def test_saved_token_that_is_also_refused_is_replaced(serve):
    server, kept = serve("token-1"), ["others"]
    tokens = TokenStore(read=lambda: kept[-1], save=kept.append)
    assert connect(server, "expired", tokens).user_info("alice") == RECORD
    assert kept == ["others", "token-1"] and server.used["token-1"] - server.logins[0] >= 1.5


@pytest.mark.root
def test_another_user_on_the_port_of_the_embedded_cluster_gets_no_token():
    os.seteuid(pwd.getpwnam("nobody").pw_uid)
    try:
        listening = socket.create_server(("127.0.0.1", 0))
    finally:
        os.seteuid(0)
    with listening:
        cluster = Cluster("local", f"http://127.0.0.1:{listening.getsockname()[1]}", user="alice")
        with pytest.raises(Unreachable, match="used by another user's program"):
            Client(cluster, Credentials("s3cret", "token-1"), timeout=5, policies=NEVER).user_info("alice")
        with listening.accept()[0] as stream:
            assert stream.recv(4096) == b""
