"""The client of PaddleCloud: tokens, both forms of answers, and odd ones, over scripted HTTP."""

import json

import pytest

from openpai_tasks.backends import kinds
from openpai_tasks.backends.paddlecloud.client import PaddleClient, TrainingRequest
from openpai_tasks.errors import ApiError, ConfigError, Conflict, Denied, NotFound, Unreachable
from openpai_tasks.settings.credentials import Credentials
from openpai_tasks.settings.registry import Cluster
from tests.scripted import Reply

JOBS = "GET /api/v1/jobs/"
ODD = ["null", 1, "x", [], [1], {"items": 1}, {"items": [1, None, {}, {"metadata": 3, "status": []}]}]


@pytest.fixture
def client(serve):
    def connect(answers, **known):
        server = serve({"POST /api-token-auth/": {"token": "t1"}, **answers})
        credentials = Credentials(**(known or {"password": "pw"}))
        cluster = Cluster("dc1", server.uri, "ann", "paddlecloud", "v1", prefix="")
        made = PaddleClient(cluster, credentials)
        made.server = server
        return made

    return connect


def test_token_is_fetched_once_and_renewed_after_401(client):
    def jobs(request):
        return {"items": []} if request.token == "Token t1" else Reply({"detail": "Invalid token."}, 401)

    found = client({JOBS: jobs}, token="old", password="pw")
    assert found.trainer_sets() == found.trainer_sets() == ()
    login, get = "/api-token-auth/", "/api/v1/jobs/"
    assert [one.path for one in found.server.seen] == [get, login, get, get]
    assert found.server.seen[1].body == '{"username": "ann", "password": "pw"}'


def test_signing_in_checks_the_name_of_the_datacenter(serve):
    server = serve(
        {
            "POST /api-token-auth/": {"token": "t1"},
            "GET /api/v1/token2user/": lambda request: (
                {"user": "ann"} if request.token else Reply({"detail": "no credentials"}, 401)
            ),
            "GET /api/v1/filelist/": {"msg": "file path not valid: "},
        }
    )
    driver = kinds.driver("paddlecloud")
    cluster = Cluster("lab", server.uri, "ann", "paddlecloud", info={"datacenter": "dc7"})
    with pytest.raises(ConfigError, match=r"has no /pfs/dc7/home/ann.*--datacenter"):
        driver.sign_in(cluster, Credentials(password="pw"), str, str, 10.0)


def test_another_kind_of_server_is_not_asked_for_a_login(serve):
    server = serve({"GET /api/v1/token2user/": {"user": "ann"}})
    cluster = Cluster("lab", server.uri, "ann", "paddlecloud")
    with pytest.raises(Unreachable, match="not as a PaddleCloud server"):
        kinds.driver("paddlecloud").sign_in(cluster, Credentials(password="pw"), str, str, 10.0)
    assert all(one.method == "GET" for one in server.seen)


def test_a_refused_token_without_a_password_is_denied(client):
    found = client({JOBS: Reply({"detail": "Invalid token."}, 401)}, token="old")
    with pytest.raises(Denied, match="Invalid token"):
        found.trainer_sets()


def test_jobs_are_read_in_the_form_of_kubernetes(client):
    status = {"active": None, "succeeded": 2, "failed": None, "start_time": "2018-06-19T08:00:00Z"}
    row = {"metadata": {"name": "my-trainer-trainer"}, "status": status, "spec": {"parallelism": 2}}
    found = client({JOBS: {"items": [row], "terminating": ["gone", "my-trainer"]}})
    one, other = found.trainer_sets()
    assert (one.job, one.active, one.succeeded, one.failed, one.parallelism) == ("my-trainer", 0, 2, 0, 2)
    assert (one.started, one.completed, one.is_terminating) == (1529395200000, None, False)
    assert (other.job, other.is_terminating) == ("gone", True)


def test_jobs_are_read_in_the_form_of_the_design_document(client):
    row = {"name": "first", "parallelism": 3, "active": 1, "startTime": "2018-06-19T08:00:00Z"}
    found = client({JOBS: {"code": 200, "msg": [row]}})
    (one,) = found.trainer_sets()
    assert (one.job, one.active, one.parallelism, one.started) == ("first", 1, 3, 1529395200000)


@pytest.mark.parametrize("answer", ODD, ids=str)
def test_odd_answers_are_empty_or_one_line(client, answer):
    paths = ("jobs", "pservers", "workers", "quota", "filelist")
    found = client({f"GET /api/v1/{path}/": answer for path in paths})
    calls = (found.trainer_sets, found.pserver_sets, found.workers, found.quotas, lambda: found.files("/"))
    for call in calls:
        try:
            assert isinstance(call(), tuple)
        except ApiError as err:
            assert "PaddleCloud" in str(err) and "\n" not in str(err)


def test_a_waiting_pod_has_a_reason_and_no_container_status(client):
    unmet = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no nodes"}
    pending = {"phase": "Pending", "container_statuses": None, "conditions": [unmet]}
    ended = {"exit_code": 137, "reason": "OOMKilled", "message": None}
    killed = {"phase": "Failed", "container_statuses": [{"state": {"terminated": ended}}]}
    items = [
        {"metadata": {"name": name}, "status": status}
        for name, status in (("j-trainer-a", pending), ("j-trainer-b", killed))
    ]
    one, other = client({"GET /api/v1/workers/": {"items": items}}).workers("j")
    assert (one.phase, one.reason, one.message, one.exit_code) == (
        "Pending",
        "Unschedulable",
        "no nodes",
        None,
    )
    assert (other.phase, other.reason, other.exit_code) == ("Failed", "OOMKilled", 137)


def test_submission_has_the_fields_of_the_shipped_client(client):
    found = client({"POST /api/v1/jobs/": {"code": 200, "msg": "OK"}})
    found.submit_training(TrainingRequest("first", entry="python train.py", parallelism=2, min_instance=3))
    body = json.loads(found.server.seen[-1].body)
    assert (body["name"], body["entry"], body["parallelism"]) == ("first", "python train.py", 2)
    assert (body["datacenter"], body["minInstance"], body["min_instance"]) == ("dc1", 3, 3)


@pytest.mark.parametrize(
    "answer, kind, status",
    [
        ({"msg": "package not exist in cloud: /pfs/x"}, NotFound, 404),
        ({"msg": 'jobs.batch "x" already exists'}, Conflict, 409),
        ({"code": 409, "msg": "job x is terminating"}, Conflict, 409),
        ({"code": 403, "msg": "exceeds the quota"}, Denied, 403),
        ({"msg": "something\nodd"}, ApiError, 400),
        ({"code": 500, "msg": "broken"}, ApiError, 500),
        ({"code": "x"}, ApiError, 0),
        (["x"], ApiError, 0),
        (Reply("<h1>Server Error</h1>", 500), ApiError, 500),
    ],
)
def test_refusals_are_errors_of_their_kind_in_one_line(client, answer, kind, status):
    found = client({"POST /api/v1/jobs/": answer})
    with pytest.raises(ApiError) as refused:
        found.submit_training(TrainingRequest("first", entry="x"))
    assert (type(refused.value), refused.value.status) == (kind, status)
    assert "\n" not in str(refused.value) and "<h1>" not in str(refused.value)


def test_a_missing_file_is_not_mistaken_for_its_content(client):
    missing = Reply({"msg": "file not exist"}, headers=(("Content-Type", "application/json"),))
    saved = (("Content-Type", "application/json"), ("Content-Disposition", "attachment; filename=x"))
    with pytest.raises(NotFound):
        b"".join(client({"GET /api/v1/file/": missing}).download("/pfs/dc1/home/ann/x"))
    found = client({"GET /api/v1/file/": Reply('{"msg": "content"}', headers=saved)})
    assert b"".join(found.download("/pfs/dc1/home/ann/x")) == b'{"msg": "content"}'


def test_upload_sends_a_form_and_quotes_the_name(client):
    found = client({"POST /api/v1/file/": {"msg": ""}})
    found.upload('/pfs/dc1/home/ann/a "b"\r\nc', b"data\r\n")
    sent = found.server.seen[-1]
    assert sent.query == {"path": '/pfs/dc1/home/ann/a "b"\r\nc'}
    assert 'name="file"; filename="a _b___c"' in sent.body and "\r\n\r\ndata\r\n\r\n--" in sent.body
