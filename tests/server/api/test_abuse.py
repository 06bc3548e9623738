"""Clients that send slowly, too often or too much are cut off, and all others are still served."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import anyio
import pytest

from openpai_tasks.errors import ApiError, TooManyRequests
from openpai_tasks.loopback.guesses import Guesses
from openpai_tasks.server.api import pools, table
from openpai_tasks.server.api.handlers import authn, jobs, jobs_v1
from tests.server.conftest import Api, ServerProcess, code, wait_for
from tests.server.profiles import serving

LOGIN = b"POST /api/v1/token HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def connect(uri: str) -> socket.socket:
    return socket.create_connection(("127.0.0.1", urlsplit(uri).port or 0), timeout=60)


def ending(connection: socket.socket) -> bytes:
    """Return what still arrives until the server closes the connection."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := connection.recv(65536):
            received += piece
    return received


def drip(connection: socket.socket, pieces: Iterator[bytes]) -> None:
    with contextlib.suppress(OSError):
        for piece in pieces:
            connection.sendall(piece)
            time.sleep(0.5)


# Slow requests


def test_slow_requests_are_cut_off(guest: Api) -> None:
    """All in parallel, since each connection takes the ten seconds of the limit."""
    silent, half, headers, body, nothing, again = (connect(guest.uri) for _ in range(6))
    half.sendall(b"GET /healthz HT")
    headers.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n")
    body.sendall(LOGIN + b"Content-Length: 50\r\n\r\n{")
    nothing.sendall(LOGIN + b"Content-Length: 50\r\nExpect: 100-continue\r\n\r\n")
    again.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    answer = b""
    while not answer.endswith(b"Pylon ready."):
        answer += again.recv(65536)
    again.sendall(b"GET /he")
    slow = [
        (headers, (b"X-%d: 1\r\n" % number for number in range(1000))),
        (body, (b" " for _ in range(49))),
    ]
    threads = [threading.Thread(target=drip, args=one, daemon=True) for one in slow]
    for thread in threads:
        thread.start()
    for connection in (silent, half, headers, again):
        assert ending(connection) == b""
    refusal = ending(body)
    assert refusal.startswith(b"HTTP/1.1 408 ")
    assert json.loads(refusal.partition(b"\r\n\r\n")[2]) == {"message": "the body did not arrive within 10 s"}
    assert b"HTTP/1.1 408 " in ending(nothing)
    assert guest.get("/healthz").status_code == 200


def test_endless_request_header_is_refused(guest: Api) -> None:
    with connect(guest.uri) as connection:
        with contextlib.suppress(OSError):
            connection.sendall(b"GET /healthz HTTP/1.1\r\nX: " + b"x" * 1_000_000)
        assert ending(connection).startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 431 "))


def test_client_that_disconnects_is_not_logged(server: ServerProcess, guest: Api) -> None:
    for _ in range(20):
        with connect(guest.uri) as connection:
            connection.sendall(LOGIN + b"Content-Length: 50\r\n\r\n{")
    assert guest.get("/healthz").status_code == 200
    assert "ClientDisconnect" not in server.log


# Many connections


@pytest.mark.skipif(sys.platform != "linux", reason="sets a limit as Linux has it")
def test_many_connections_neither_block_others_nor_fill_the_log(own_server: ServerProcess) -> None:
    argv = [sys.executable, "-m", "openpai_tasks.server", "--home", str(own_server.folder)]
    with (own_server.folder.parent / "server.log").open("a") as log:
        own_server.process = subprocess.Popen(
            ["sh", "-c", 'ulimit -n 90; exec "$@"', "sh", *argv], stderr=log, text=True
        )
    uri = own_server.facts(own_server.process)["uri"]
    admin = own_server.admin()
    with contextlib.ExitStack() as stack:
        for _ in range(500):
            stack.enter_context(connect(uri))
        for _ in range(10):
            assert wait_for(lambda: _answers(admin))
    admin.run("after")
    admin.until(f"{own_server.owner['user']}~after", "SUCCEEDED")
    assert "Traceback" not in own_server.log
    assert len(own_server.log.splitlines()) < 20


def _answers(api: Api) -> bool:
    with contextlib.suppress(OSError):
        return api.get("/api/v2/jobs").status_code == 200
    return False


@pytest.mark.parametrize(
    "handler", [authn.login, jobs.submit, jobs.get_config, jobs_v1.remove], ids=lambda one: str(one.__name__)
)
def test_slow_calls_leave_threads_for_other_calls(handler: object) -> None:
    gate, begun = threading.Event(), threading.Semaphore(0)
    (pool,) = {row.pool for row in table.ROUTES if row.handler is handler}

    def slow() -> None:
        begun.release()
        gate.wait(60)

    async def crowd() -> None:
        here = pools.ThreadPools()
        async with anyio.create_task_group() as group:
            for _ in range(pools.MOST_WAITING + pools.SIZES[pool]):
                group.start_soon(here.run, pool, slow)
            while not begun.acquire(blocking=False):
                await anyio.sleep(0.005)
            await anyio.wait_all_tasks_blocked()
            with pytest.raises(ApiError, match="Too many such requests"):
                await here.run(pool, slow)
            assert await here.run("", lambda: "answered") == "answered"
            gate.set()

    anyio.run(crowd)


# Passwords


def test_wrong_passwords_for_one_user_are_rate_limited(server: ServerProcess, admin: Api) -> None:
    for name in ("victim", "other"):
        assert admin.post("/api/v2/users", {"username": name, "password": "right-secret"}).status_code == 201
    guest = Api(admin.uri)

    def login(name: str, password: str) -> int:
        answer = guest.post("/api/v1/token", {"username": name, "password": password})
        if answer.status_code == 429:
            assert 1 <= int(answer.headers["Retry-After"]) <= 6
        return answer.status_code

    tries = [login("victim", f"wrong-{number}") for number in range(60)]
    assert tries[:10] == [400] * 10
    assert tries.count(429) >= 30
    assert login("other", "right-secret") == 200
    assert wait_for(lambda: login("victim", "right-secret") == 200)
    assert [login("victim", "wrong-again") for _ in range(5)] == [400] * 5  # the success had reset the count


def test_wrong_old_passwords_are_rate_limited(server: ServerProcess, admin: Api) -> None:
    assert admin.post("/api/v2/users", {"username": "changer", "password": "first-secret"}).status_code == 201
    changer = server.login("changer", "first-secret")
    path, body = "/api/v2/users/changer/password", {"oldPassword": "x", "newPassword": "second-secret"}
    found = [changer.put(path, body).status_code for _ in range(40)]
    assert set(found) == {403, 429}


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_password_guesses_recover_with_time_and_are_counted_per_caller() -> None:
    clock = Clock()
    guesses = Guesses(clock)
    for _ in range(10):
        guesses.begin("uid 1", "alice")
    with pytest.raises(TooManyRequests) as refused:
        guesses.begin("uid 1", "alice")
    assert refused.value.retry_after == 6
    guesses.begin("uid 1", "bob")
    guesses.begin("uid 2", "alice")  # another user of the machine is not blocked
    clock.now += 6
    guesses.begin("uid 1", "alice")
    with pytest.raises(TooManyRequests):
        guesses.begin("uid 1", "alice")
    guesses.note_right("uid 1", "alice")
    guesses.begin("uid 1", "alice")


def test_caller_cannot_try_one_password_for_every_user() -> None:
    guesses = Guesses(Clock())
    with pytest.raises(TooManyRequests):
        for number in range(1000):
            guesses.begin("uid 1", f"name{number}")
    assert number == 50
    guesses.begin("uid 2", "name1")


def test_guess_counters_use_bounded_memory() -> None:
    guesses = Guesses(Clock())
    for number in range(5000):
        guesses.begin(f"uid {number}", "alice")
    assert len(guesses._forgotten_at) <= 1000


# Large requests


def test_body_size_limit_is_configurable(own_server: ServerProcess) -> None:
    assert own_server.start("--body-limit", "300")["body_limit"] == 300
    admin = own_server.admin()
    assert code(admin.submit("#" * 300 * 1024)) == (400, "InvalidProtocolError")
    assert admin.submit("#" * (300 * 1024 + 1)).status_code == 413


@pytest.mark.parametrize("profile", ["0.14", "0.18", "1.8"])
def test_every_profile_has_the_body_size_limit_of_the_real_server(
    tmp_path_factory: pytest.TempPathFactory, profile: str
) -> None:
    with serving(tmp_path_factory.mktemp("profile"), "--profile", profile) as server:
        assert server.admin().submit("#" * (100 * 1024 + 1)).status_code == 413


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{number}: &a{number} [{', '.join([f'*a{number - 1}'] * 10)}]\n" for number in range(1, 9)
)


@pytest.mark.parametrize(
    "text",
    [
        BOMB,
        "[" * 50_000,
        "- " * 50_000,
        "{a: " * 25_000,
        "a: " + "9" * 90_000,
        "a: 0x" + "f" * 90_000,
        "a: 1" + ":59" * 30_000,
        "".join(f"k{number}: 1\n" for number in range(10_000)),
    ],
    ids=["aliases", "lists", "dashes", "mappings", "number", "hexadecimal", "sexagesimal", "keys"],
)
def test_malicious_document_within_the_size_limit_is_merely_refused(admin: Api, text: str) -> None:
    answer = admin.submit(text)
    assert answer.status_code in (400, 500) and set(answer.json()) <= {"code", "message"}
    assert "see the server's log" not in answer.text
    assert admin.get("/healthz").status_code == 200
