"""The same workflow on the embedded server in each of its profiles, each of which acts like one OpenPAI."""

import json
import time

import pytest

from openpai_tasks.backends.openpai import Client
from openpai_tasks.errors import Conflict, Denied, NotFound
from openpai_tasks.protocol import JobRequest
from openpai_tasks.protocol.routes import job_key
from openpai_tasks.sdk.clusters import known
from openpai_tasks.sdk.clusters.known import NewCluster
from openpai_tasks.sdk.jobs import lookup
from openpai_tasks.sdk.jobs.submission import prepare, read_job_file, submit
from openpai_tasks.sdk.logs import output
from openpai_tasks.sdk.logs.output import LogChoice
from openpai_tasks.settings.config import Settings
from openpai_tasks.settings.credentials import Credentials
from openpai_tasks.settings.registry import Cluster
from tests.forkserver import start_server
from tests.scripted import Reply, Scripted
from tests.sdk.pai_server import PaiServer

PROFILES = ("0.14", "0.18", "1.8", "union")
SETTINGS = Settings(http_timeout=30.0)


@pytest.fixture(scope="module", params=PROFILES)
def server(request, tmp_path_factory):
    """A server of that profile: its profile, its address, and its first user's name and password."""
    folder = tmp_path_factory.mktemp("server")
    process = start_server("--home", str(folder), "--profile", request.param, "--rate-limit", "submit=off")
    try:
        limit = time.monotonic() + 60
        while not (folder / "server.json").exists():
            assert time.monotonic() < limit and process.poll() is None
            time.sleep(0.02)
        uri = json.loads((folder / "server.json").read_text())["uri"]
        login = json.loads((folder / "credentials.json").read_text())
        yield request.param, uri, login["user"], login["password"]
    finally:
        process.terminate()
        process.wait()


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENPAI_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
    for name in ("OPENPAI_PASSWORD", "OPENPAI_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def client(server):
    add(server)
    return known.connect(SETTINGS, "lab")


def add(server, check=True):
    _, uri, user, password = server
    new = NewCluster("lab", uri, user, Credentials(password=password))
    return known.add(SETTINGS, new, check, known.cannot_ask, lambda line: None)


def generation_of(server):
    return "1.8" if server[0] == "union" else server[0]


def start(client, tmp_path, command, name):
    spec = JobRequest(command, name=name, image="python:3")
    return submit(client, prepare(client, spec, tmp_path))


def text(client, name, **which):
    return b"".join(output.read_output(client, name, LogChoice(**which)))


def test_generation_is_detected_when_a_cluster_is_added(server):
    assert add(server).generation == generation_of(server)


def test_generation_of_an_unchecked_cluster_is_detected_at_first_use_and_saved(server):
    assert add(server, check=False).generation == ""
    client = known.connect(SETTINGS, "lab")
    assert client.cluster.generation == ""
    client.jobs()
    assert client.cluster.generation == generation_of(server)
    kept = known.open_registry(SETTINGS).get("lab")
    assert (kept.generation, kept.virtual_clusters) == (generation_of(server), ())
    assert known.connect(SETTINGS, "lab").user_info(client.user)["username"] == client.user


def test_failing_job_from_submission_to_its_end(client, tmp_path):
    job = start(client, tmp_path, "echo out; echo err >&2; exit 3", "fails")
    assert (job.name, job.key) == ("fails", job_key(client.user, "fails"))
    shown = b"".join(output.read_output(client, "fails", LogChoice(), follow=True))
    assert sorted(shown.split()) == [b"err", b"out"]
    done = lookup.wait(client, "fails", 60)
    assert (done.state, done.exit_status, done.final) == ("FAILED", 3, True)
    assert [text(client, "fails", stream=name) for name in ("stdout", "stderr")] == [b"out\n", b"err\n"]
    assert [one.state for one in client.jobs(username=client.user, keyword="fails")] == ["FAILED"]
    assert client.jobs(username=client.user, state="RUNNING", keyword="fails") == []
    with pytest.raises(Conflict):
        start(client, tmp_path, "true", "fails")
    with pytest.raises(NotFound, match="no job named 'nothing'"):
        lookup.find(client, "nothing")


def test_running_job_is_followed_and_stopped(client, tmp_path):
    job = start(client, tmp_path, "echo here; sleep 60", "endless")
    chunks = output.read_output(client, "endless", LogChoice(), follow=True)
    assert next(chunks) == b"here\n"
    (task,) = lookup.find(client, "endless").tasks
    assert (task.role, task.index, task.state) == ("main", 0, "RUNNING")
    assert task.ports["ssh"].isdecimal()
    lookup.stop(client, ["end*"])
    assert b"".join(chunks) in (
        b"",
        b"Terminated\n",
    )  # what a shell may print about the command it waited for
    done = lookup.wait(client, job.key, 60)
    assert (done.state, done.exit_status) == ("STOPPED", 143)


def test_submitted_document_can_be_read_back(client, tmp_path):
    start(client, tmp_path, "echo '1e3: \U0001f600'", "document")
    found = lookup.submitted_document(client, "document")
    assert (found["protocolVersion"], found["name"]) == (2, "document")
    assert "1e3: \U0001f600" in "\n".join(found["taskRoles"]["main"]["commands"])


def test_v1_job_is_converted_unless_the_cluster_accepts_v1(client, server, tmp_path):
    role = {"name": "worker", "taskNumber": 2, "command": "echo $PAI_TASK_INDEX"}
    file = tmp_path / "old.json"
    file.write_text(json.dumps({"jobName": "old", "image": "x", "taskRoles": [role]}))
    submission = read_job_file(file, JobRequest(), client.capabilities.v1_documents)
    submit(client, submission)
    assert lookup.wait(client, "old", 60).state == "SUCCEEDED"
    lines = text(client, "old", role="worker").splitlines()
    assert sorted(lines) == [b"[worker-0] 0", b"[worker-1] 1"]
    is_v1 = "jobName" in lookup.submitted_document(client, "old")
    assert (is_v1, submission.converted) == ((True, False) if server[0] == "0.14" else (False, True))


def test_role_is_found_by_its_original_name(client, tmp_path):
    spec = JobRequest("echo hi", name="roles", image="x", role="ps_server")
    submit(client, prepare(client, spec, tmp_path))
    lookup.wait(client, "roles", 60)
    assert text(client, "roles", role="ps_server") == b"hi\n"


def test_virtual_clusters_are_listed_and_tags_work_where_supported(client, server, tmp_path):
    assert "default" in client.virtual_clusters()
    start(client, tmp_path, "true", "noted")
    assert lookup.describe(client, "noted").name == "noted"
    if generation_of(server) == "1.8":
        client.add_tag(job_key(client.user, "noted"), "t")
        assert client.job(job_key(client.user, "noted")).tags == ("t",)


def test_a_wrong_token_is_refused(server):
    _, uri, user, _ = server
    new = NewCluster("lab", uri, user, Credentials(token="no.to.ken"))
    with pytest.raises(Denied):
        known.add(SETTINGS, new, True, known.cannot_ask, lambda line: None)


def test_error_for_a_moved_cluster_suggests_an_update():
    there = PaiServer()
    here = PaiServer(redirect=there.uri)
    try:
        new = NewCluster("moved", here.uri, "alice", Credentials(token=there.token))
        known.add(SETTINGS, new, False, known.cannot_ask, lambda line: None)
        with pytest.raises(known.Unreachable, match=r"cluster\.update moved"):
            known.connect(SETTINGS, "moved").jobs()
        assert [seen[2] for seen in there.seen + here.seen if seen[2]] == []
    finally:
        here.close()
        there.close()


JOB = {"name": "old", "jobStatus": {"username": "alice", "state": "SUCCEEDED"}, "taskRoles": {}}


def scripted_client(server):
    cluster = Cluster("lab", server.uri, "alice", generation="0.14")
    return Client(cluster, Credentials(token="t0ken"), timeout=30)


def test_job_without_an_owner_is_found_by_its_bare_name():
    server = Scripted(
        {"GET /rest-server/api/v1/jobs/old": JOB, "GET /rest-server/api/v1/jobs/old/config": {"a": 1}}
    )
    try:
        client = scripted_client(server)
        assert lookup.find(client, "old").key == "old"
        assert lookup.submitted_document(client, "old") == {"a": 1}
        with pytest.raises(NotFound):
            lookup.find(client, "bob~old")
    finally:
        server.close()


def test_job_that_the_oldest_servers_show_with_a_delay_is_found(tmp_path):
    server = Scripted({"POST /rest-server/api/v1/user/alice/jobs": Reply({"message": "ok"}, 202)})
    path = "GET /rest-server/api/v1/jobs/alice~old"
    missing = Reply({"code": "NoJobError", "message": "no"}, 404)
    answers = [missing, missing, JOB]  # before it is submitted, just after, and a moment later
    server.answers[path] = lambda asked: answers.pop(0)
    file = tmp_path / "old.json"
    file.write_text('{"jobName": "old", "image": "x", "taskRoles": [{"name": "main", "command": "true"}]}')
    try:
        client = scripted_client(server)
        read = read_job_file(file, JobRequest(), client.capabilities.v1_documents)
        assert submit(client, read).state == "SUCCEEDED"
        assert len(server.received("POST")) == 1
    finally:
        server.close()
