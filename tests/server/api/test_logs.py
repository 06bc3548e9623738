"""Log locations and log contents over HTTP."""

from __future__ import annotations

import io
import time
from urllib.parse import parse_qs, urlsplit

import jwt
import pytest

from openpai_tasks.server.accounts import tokens
from openpai_tasks.server.api import request
from openpai_tasks.server.state.database import Database
from tests.server.conftest import Api, ServerProcess, code

PLACE = "/attempts/0/taskRoles/main/taskIndex/0/attempts/0/logs"
RESULTS = "/api/v2/embedded/printed-results"
INVALID = (400, "InvalidParametersError")
LINES = 5000  # of ten bytes: more than the 16 KiB of a tail


@pytest.fixture(scope="module")
def logs(alice: Api) -> dict[str, str]:
    """Names and addresses of a finished job's logs."""
    alice.run("logs", f"echo trouble >&2; seq -f 'line%05.0f' 1 {LINES} | head -c -1; echo")
    alice.until("alice~logs", "SUCCEEDED")
    return locations(alice, PLACE)


def locations(api: Api, place: str) -> dict[str, str]:
    body = api.get(f"/api/v2/jobs/alice~logs{place}").json()
    return {one["name"]: one["uri"] for one in body["locations"]}


def test_task_has_three_logs_and_their_times_whose_urls_need_no_other_token(
    logs: dict[str, str], guest: Api
) -> None:
    assert set(logs) == {"stdout", "stderr", "all", "times"}
    assert guest.get(logs["stderr"]).text == "trouble\n"
    out = guest.get(logs["stdout"])
    assert (out.status_code, len(out.text.splitlines())) == (200, LINES)
    assert out.headers["content-type"].startswith("text/plain")
    assert len(guest.get(logs["all"]).content) == len(out.content) + len("trouble\n")


def test_log_url_has_the_format_of_the_log_manager(logs: dict[str, str]) -> None:
    parts = urlsplit(logs["stdout"])
    assert parts.path == "/log-manager/127.0.0.1:9103/api/v1/logs/stdout"
    assert set(parse_qs(parts.query)) == {"username", "framework-name", "pod-uid", "taskrole", "token"}


@pytest.mark.parametrize("flag", ["tail-mode", "tailMode"])
def test_tail_mode_gives_the_last_sixteen_kilobytes(logs: dict[str, str], alice: Api, flag: str) -> None:
    uri = locations(alice, f"{PLACE}?{flag}=true")["stdout"]
    answer = alice.get(uri)
    assert (answer.status_code, len(answer.content)) == (206, 16 * 1024)
    assert answer.text.endswith(f"line{LINES:05}\n")
    assert alice.get(locations(alice, f"{PLACE}?{flag}=true")["stderr"]).text == "trouble\n"


def test_range_request_returns_that_part(logs: dict[str, str], guest: Api) -> None:
    size = LINES * 10

    def part(wanted: str) -> tuple[int, str, str]:
        answer = guest.get(logs["stdout"], headers={"Range": wanted})
        return answer.status_code, answer.headers.get("content-range", ""), answer.text

    assert part("bytes=0-8") == (206, f"bytes 0-8/{size}", "line00001")
    assert part("bytes=10-18") == (206, f"bytes 10-18/{size}", "line00002")
    assert part(f"bytes={size - 10}-") == (206, f"bytes {size - 10}-{size - 1}/{size}", f"line{LINES:05}\n")
    assert part("bytes=-10") == (206, f"bytes {size - 10}-{size - 1}/{size}", f"line{LINES:05}\n")
    assert part(f"bytes={size}-") == (416, f"bytes */{size}", "")
    assert part("lines=1-2")[0] == 200


def test_growing_log_is_read_from_the_last_offset(alice: Api) -> None:
    alice.run("grow", "echo one; while [ ! -e go ]; do sleep 0.05; done; echo two")
    alice.until("alice~grow", "RUNNING")
    place = "/api/v2/jobs/alice~grow" + PLACE
    seen, limit = b"", time.monotonic() + 60
    while seen != b"one\n" and time.monotonic() < limit:
        found = alice.get(place).json().get("locations", ())  # files appear one by one
        if uri := next((one["uri"] for one in found if one["name"] == "stdout"), ""):
            answer = alice.get(uri, headers={"Range": f"bytes={len(seen)}-"})
            seen += answer.content if answer.status_code == 206 else b""
    assert seen == b"one\n"
    assert alice.get(uri, headers={"Range": "bytes=4-"}).status_code == 416
    alice.put("/api/v2/jobs/alice~grow/executionType", {"value": "STOP"})
    alice.until("alice~grow", "STOPPED")


def test_unknown_task_attempt_is_404_and_unknown_job_or_task_is_500(alice: Api, logs: dict[str, str]) -> None:
    place = PLACE.replace("attempts/0/logs", "attempts/1/logs")
    assert code(alice.get(f"/api/v2/jobs/alice~logs{place}")) == (404, "NoTaskLogError")
    assert code(alice.get(f"/api/v2/jobs/alice~none{PLACE}")) == (500, "UnknownError")
    for part, other in (
        ("main", "none"),
        ("taskIndex/0", "taskIndex/7"),
        ("/attempts/0/task", "/attempts/x/task"),
    ):
        assert code(alice.get(f"/api/v2/jobs/alice~logs{PLACE.replace(part, other)}")) == (
            500,
            "UnknownError",
        )


def test_a_path_cannot_leave_the_log_folder(guest: Api, logs: dict[str, str]) -> None:
    for name in ("..%2Fexit", "..%2F..%2F..%2F..%2Fcluster.db", "environment", "%2Fetc%2Fpasswd"):
        answer = guest.get(logs["stdout"].replace("/stdout?", f"/{name}?"))
        assert code(answer) == (404, "NoTaskLogError"), name


def test_log_ticket_is_valid_for_its_task_only(guest: Api, logs: dict[str, str]) -> None:
    uri = logs["stdout"]
    token = parse_qs(urlsplit(uri).query)["token"][0]
    pod = parse_qs(urlsplit(uri).query)["pod-uid"][0]
    head, _, signature = token.rpartition(".")
    forged = uri.replace(token, f"{head}.{signature.swapcase()}")
    for wrong in (forged, uri.replace(pod, "other"), uri.split("?")[0]):
        assert code(guest.get(wrong)) == (401, "UnauthorizedUserError")
    assert code(guest.get("/api/v2/jobs", headers={"Authorization": f"Bearer {token}"}))[0] == 401


def test_log_ticket_expires(server: ServerProcess, guest: Api, logs: dict[str, str]) -> None:
    query = parse_qs(urlsplit(logs["stdout"]).query)
    database = Database(server.folder / "cluster.db", "")
    key = bytes(database.rows("SELECT value FROM account_keys WHERE name = 'logs'")[0]["value"])
    database.close()
    claims = jwt.decode(query["token"][0], key, algorithms=["HS256"])
    assert 0 < claims["exp"] - time.time() <= tokens.TICKET_LIFETIME
    stale = jwt.encode({**claims, "exp": int(time.time()) - 1}, key, algorithm="HS256")
    assert code(guest.get(logs["stdout"].replace(query["token"][0], stale))) == (401, "UnauthorizedUserError")


def test_log_is_sent_in_few_large_pieces() -> None:
    pieces = request.read_pieces(lambda: io.BytesIO(bytes(10 * request.PIECE)), 5, 3 * request.PIECE)
    assert [len(piece) for piece in pieces] == [request.PIECE] * 3
    assert request.PIECE >= 1 << 19


def test_printed_results_of_many_ended_jobs_come_in_one_answer(logs: dict[str, str], alice: Api) -> None:
    two = """echo '{"loss": 1}'; echo '  {"loss": NaN}  '; echo '{torn'"""
    alice.run("two-results", two)
    alice.run("long-log", "echo '{}'; seq 1 50000")
    for name in ("two-results", "long-log"):
        alice.until(f"alice~{name}", "SUCCEEDED")
    names = [f"alice~{name}" for name in ("logs", "two-results", "long-log", "no-such-job")]
    rows = alice.post(RESULTS, {"jobs": names}).json()["jobs"]
    found = {row["name"]: row["line"] for row in rows}
    assert found == {"alice~logs": "", "alice~two-results": '{"loss": NaN}'}
    detail = alice.get("/api/v2/jobs/alice~logs").json()["jobStatus"]
    assert detail["completedTime"] in [row["completedTime"] for row in rows]
    assert code(alice.post(RESULTS, {"jobs": [str(number) for number in range(501)]})) == INVALID
    assert code(alice.post(RESULTS, {"jobs": "all"})) == INVALID
