"""Rate limits: how calls are counted, and what a refusal looks like."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from openpai_tasks.errors import ConfigError
from openpai_tasks.server.api import rates
from openpai_tasks.server.api.rates import Limiter, Rate, RateLimited, merge_rates, parse_rate
from tests.server.conftest import JOB, Api, ServerProcess, code, wait_for

MESSAGE = "Too many requests, please try again later."


def test_rate_is_parsed_as_a_count_per_period() -> None:
    assert parse_rate("list=60/min") == ("list", Rate(60, 60))
    assert parse_rate("submit=3600/h") == ("submit", Rate(3600, 3600))
    assert parse_rate("api=5/2s") == ("api", Rate(5, 2))
    assert parse_rate("api=off") == ("api", None)
    for text in ("list", "list=", "list=5", "other=5/s", "list=x/s", "list=5/day", "list=-5/s"):
        with pytest.raises(ConfigError, match="invalid rate limit"):
            parse_rate(text)


def test_rates_can_be_changed_and_removed() -> None:
    before = {"api": Rate(1, 1), "list": Rate(2, 2)}
    assert merge_rates(before, {"api": None, "submit": Rate(3, 3)}) == {
        "list": Rate(2, 2),
        "submit": Rate(3, 3),
    }


def test_each_caller_has_a_window_that_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(rates, "time", SimpleNamespace(monotonic=lambda: now, time=time.time))
    limiter = Limiter({"list": Rate(2, 1.0)})
    assert limiter.take("list", "alice")["x-ratelimit-remaining"] == "1"
    assert limiter.take("list", "alice")["x-ratelimit-remaining"] == "0"
    with pytest.raises(RateLimited) as refused:
        limiter.take("list", "alice")
    assert refused.value.headers["retry-after"] == "1"
    assert limiter.take("list", "bob")["x-ratelimit-remaining"] == "1"
    assert limiter.take("submit", "alice") == {}
    now += 1.0
    assert limiter.take("list", "alice")["x-ratelimit-remaining"] == "1"


def test_refusal_is_a_page_with_a_retry_after_header(own_server: ServerProcess) -> None:
    own_server.start("--rate-limit", "list=2/6s", "--rate-limit", "submit=2/h")
    admin = own_server.admin()
    first = [admin.get("/api/v2/jobs").status_code for _ in range(2)]
    while (refused := admin.get("/api/v1/jobs")).status_code == 200:
        pass  # the first calls were longer ago than six seconds
    assert (first, refused.status_code, refused.text) == ([200, 200], 429, MESSAGE)
    assert refused.headers["content-type"] == "text/html; charset=utf-8"
    assert refused.headers["X-RateLimit-Limit"] == "2"
    assert refused.headers["X-RateLimit-Remaining"] == "0"
    assert 1 <= int(refused.headers["Retry-After"]) <= 6
    assert admin.get("/api/v2/jobs/none~none").status_code == 404
    assert wait_for(lambda: admin.get("/api/v2/jobs").status_code == 200)


def test_refused_submissions_count_and_guests_do_not(own_server: ServerProcess) -> None:
    own_server.start("--rate-limit", "submit=2/h")
    admin = own_server.admin()
    guest = Api(admin.uri)
    assert [guest.submit("x").status_code for _ in range(3)] == [401] * 3
    assert code(admin.submit("{}")) == (400, "InvalidProtocolError")
    job = JOB.format(name="one", command="'true'")
    assert [admin.submit(job).status_code for _ in range(2)] == [202, 429]


def test_api_limit_counts_all_callers_and_exempts_healthz(own_server: ServerProcess) -> None:
    own_server.start("--rate-limit", "api=3/h")
    admin = own_server.admin()
    assert [admin.get("/rest-server/api/v2/info").status_code for _ in range(3)] == [200, 200, 429]
    assert admin.get("/api/v9").status_code == 429
    assert admin.get("/healthz").status_code == 200
