"""Which requests are retried, after which pause, and when the client gives up, over real HTTP."""

import contextlib
import email.utils
import itertools
import subprocess
import time

import pytest

from openpai_tasks.backends.http.retries import USUAL, Policies
from openpai_tasks.backends.openpai import Client, endpoints
from openpai_tasks.errors import ApiError, PaiError, TooManyRequests, Unreachable
from openpai_tasks.net.retry import RetryPolicy
from openpai_tasks.settings.credentials import Credentials
from openpai_tasks.settings.registry import Cluster
from tests.hostile import OK, Hostile, client_of, reading
from tests.scripted import Reply

QUICK = Policies(USUAL.unanswered, RetryPolicy(tries=20, least_pause=0.5, budget_seconds=2.0))
JOBS = "/rest-server/api/v2/jobs"
USER = "/rest-server/api/v1/user/alice"


def busy(**headers):
    named = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Reply("Too many requests, please try again later.", 429, named)


NO_PAUSE = ["0", "-1", "nan", "-nan", "1e0", "0.0", "", "soon", "0x1", "1_0", "Thu, 01 Jan 1970 00:00:00 GMT"]
NO_PAUSE += ["Thu, 99 Foo 99999 99:99:99 GMT", "Mon, 01 Jan 0001 00:00:00 -0000", "inf", "-inf"]
TOO_LONG = ["86400", "9" * 5000, "Fri, 31 Dec 9999 23:59:59 GMT", "3600"]


@pytest.mark.parametrize("wanted", NO_PAUSE)
def test_busy_server_is_never_retried_without_a_pause(serve, wanted):
    times = []
    messages = busy(Retry_After=wanted)
    server = serve({f"POST {JOBS}": lambda asked: times.append(time.monotonic()) or messages})
    with pytest.raises(TooManyRequests, match="accepts no more requests"):
        client_of(server, policies=QUICK).submit("x")
    assert 1 <= len(times) <= 4
    assert all(later - earlier >= 0.5 for earlier, later in itertools.pairwise(times))


@pytest.mark.parametrize("wanted", TOO_LONG)
def test_retry_after_beyond_the_budget_is_an_error_at_once(serve, wanted):
    server = serve({f"GET {USER}": busy(Retry_After=wanted)})
    with pytest.raises(TooManyRequests, match="accepts no more requests") as caught:
        client_of(server).user_info("alice")
    assert len(server.seen) == 1
    assert len(str(caught.value)) < 200
    assert 0 < caught.value.retry_after <= 86400


def test_rate_limit_reset_takes_precedence_over_retry_after():
    """The reset time is read by the server's clock, which may be wrong."""
    there = time.time() - 10_000
    date = email.utils.formatdate(there, usegmt=True)
    full = (
        f"HTTP/1.1 429 Busy\r\nRetry-After: 3600\r\nDate: {date}\r\nX-RateLimit-Reset: {int(there) + 1}\r\n"
    )
    answers = [f"{full}Content-Length: 0\r\n\r\n".encode(), OK + b"Content-Length: 2\r\n\r\n{}"]
    with Hostile(lambda request: [answers.pop(0)]) as server:
        assert client_of(server).user_info("alice") == {}


@pytest.mark.parametrize("reset", ["", "60", "nan", "-5", "1e10", "9" * 400, "99999999999"])
def test_retry_after_is_used_when_the_rate_limit_reset_is_invalid(serve, reset):
    server = serve({f"GET {USER}": busy(Retry_After="3600", X_RateLimit_Reset=reset)})
    with pytest.raises(TooManyRequests, match="try again in 3600 s"):
        client_of(server).user_info("alice")


def test_long_pause_is_announced_and_a_short_pause_is_not(serve):
    answers = [busy(Retry_After="1"), busy(Retry_After="3"), {"username": "alice"}]
    server, messages = serve({f"GET {USER}": lambda asked: answers.pop(0)}), []
    client_of(server, say=messages.append).user_info("alice")
    assert len(messages) == 1
    assert "cluster 'lab'" in messages[0] and "waiting 3 s" in messages[0]


def test_server_that_is_alternately_busy_and_unreachable_is_given_up(serve):
    answers = {0: busy(Retry_After="0"), 1: Reply("", 502)}
    server = serve({f"GET {USER}": lambda asked: answers[len(server.seen) % 2]})
    with pytest.raises(PaiError):
        client_of(server, policies=QUICK).user_info("alice")
    assert len(server.seen) <= 8


@pytest.mark.parametrize("method, times", [("GET", 4), ("PUT", 4), ("POST", 1)])
def test_only_idempotent_requests_are_retried(serve, method, times):
    gone = Reply("", 502)
    server = serve({f"GET {USER}": gone, f"PUT {JOBS}/alice~x/tag": gone, f"POST {JOBS}": gone})
    client = client_of(server)
    acts = {
        "GET": lambda: client.user_info("alice"),
        "PUT": lambda: client.add_tag("alice~x", "t"),
        "POST": lambda: client.submit("x"),
    }
    with pytest.raises(Unreachable, match="HTTP 502"):
        acts[method]()
    assert len(server.seen) == times


@pytest.mark.parametrize("method, times", [("GET", 1), ("PUT", 2), ("POST", 1)])
def test_only_idempotent_writes_are_retried_after_a_database_error(serve, method, times):
    words = {"code": "ECONNREFUSED", "message": "connect ECONNREFUSED"}
    answers = [Reply({}, 202), Reply(words, 500)]
    paths = {"GET": f"{JOBS}/alice~x", "PUT": f"{JOBS}/alice~x/executionType", "POST": JOBS}
    server = serve({f"{method} {paths[method]}": lambda asked: answers.pop()})
    client = client_of(server)
    acts = {
        "GET": lambda: client.job("alice~x"),
        "PUT": lambda: client.stop_job("alice~x"),
        "POST": lambda: client.submit("x"),
    }
    with contextlib.nullcontext() if method == "PUT" else pytest.raises(ApiError, match="ECONNREFUSED"):
        acts[method]()
    assert len(server.seen) == times


@pytest.mark.parametrize("alias, logins", [("lab", 2), ("local", 1)])
def test_useless_login_is_repeated_once_but_not_on_the_local_cluster(serve, alias, logins):
    refused = Reply({"message": "no"}, 401)
    server = serve({f"GET {USER}": refused, "POST /rest-server/api/v1/token": {"token": "t"}})
    cluster = Cluster(alias, server.uri, user="alice", generation="1.8")
    with pytest.raises(ApiError):
        Client(cluster, Credentials(password="s3cret", token="old")).user_info("alice")
    assert len(server.received("POST")) == logins and len(server.received("GET")) == logins + 1


@pytest.mark.parametrize("total", [10**12, None], ids=["grows", "unknown"])
def test_endless_job_list_is_given_up(serve, monkeypatch, total):
    """Each page has different jobs."""
    monkeypatch.setattr(endpoints, "MOST_PAGES", 5)

    def page(asked):
        first, size = int(asked.query["offset"]), int(asked.query["limit"])
        rows = [{"name": f"j{first + number}", "username": "a"} for number in range(min(size, 100))]
        return {"totalCount": total, "data": rows} if total else [{**row} for row in rows] * 50

    server = serve({f"GET {JOBS}": page})
    with pytest.raises(ApiError, match="returns an endless list of jobs"):
        client_of(server).jobs()
    assert len(server.seen) == 5


def test_jobs_in_states_unknown_to_the_server_are_searched_in_whole_pages(serve, monkeypatch):
    monkeypatch.setattr(endpoints, "MOST_PAGES", 5)
    running = {"username": "a", "state": "RUNNING"}
    rows = [{"name": f"j{number}", **running} for number in range(1000)]
    rows[990] |= {"subState": "AttemptCompleted", "appExitCode": 1}
    rows[991] |= {"executionType": "STOP"}

    def page(asked):
        first, size = int(asked.query["offset"]), int(asked.query["limit"])
        return {"totalCount": len(rows), "data": rows[first : first + size]}

    client = client_of(serve({f"GET {JOBS}": page}))
    assert [job.name for job in client.jobs(state="RETRYING", limit=1)] == ["j990"]
    assert [job.name for job in client.jobs(state="STOPPING", limit=1)] == ["j991"]


def test_pauses_grow_and_stay_within_the_budget():
    policy = RetryPolicy(tries=20, least_pause=0.5, budget_seconds=60.0)
    spent, pauses = 0.0, []
    while (pause := policy.pause(len(pauses), spent=spent)) is not None:
        spent, pauses = spent + pause, [*pauses, pause]
    assert pauses == sorted(pauses) and min(pauses) >= 0.5 and spent <= 60
    assert len(set(RetryPolicy(2, 1.0).pause(0) for _ in range(100))) > 1
    assert policy.pause(0, wanted=59) >= 59
    assert policy.pause(0, wanted=61) is None


def test_an_interrupt_ends_a_pause_at_once():
    head = b"HTTP/1.1 429 Busy\r\nRetry-After: 100\r\nContent-Length: 0\r\n\r\n"
    with Hostile(lambda request: [head]) as server, reading(server) as process:
        assert "waiting 100 s" in process.stdout.readline()
        for _ in range(5):  # a signal just before the pause would be noticed only after it
            process.send_signal(2)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
        assert process.returncode not in (None, 0)
