"""A submission without a clear response: the client looks for the job and keeps its sources meanwhile."""

from pathlib import Path

import pytest

from openpai_tasks.backends.openpai import Client
from openpai_tasks.errors import ApiError, Conflict, NotFound, Unreachable, Unsupported
from openpai_tasks.protocol import JobRequest
from openpai_tasks.protocol.document.policy import JobPolicy
from openpai_tasks.sdk.jobs import submission
from openpai_tasks.sdk.jobs.provenance import Origin
from openpai_tasks.sdk.jobs.submission import NotSubmitted, Submission
from openpai_tasks.settings.credentials import Credentials
from openpai_tasks.settings.registry import Cluster
from tests.scripted import Reply, Scripted

JOBS = "/rest-server/api/v2/jobs"
JOB = f"GET {JOBS}/alice~train"
DETAIL = {"name": "train", "username": "alice", "jobStatus": {"state": "RUNNING"}, "taskRoles": {}}
BROKEN = Reply({"code": "ECONNREFUSED", "message": "connect ECONNREFUSED"}, 500)
ABSENT = Reply({"code": "NoJobError", "message": "no such job"}, 404)


@pytest.fixture(autouse=True)
def quick(monkeypatch, tmp_path):
    monkeypatch.setenv("OPENPAI_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(submission, "PAUSES", (0.0, 0.0, 0.0, 0.0))


@pytest.fixture
def lab():
    """A server that answers the submission, and then each lookup, as the test says."""
    server = Scripted({})

    def answering(posted, *looks):
        left = list(looks)
        server.answers = {f"POST {JOBS}": posted, JOB: lambda asked: left.pop(0) if left[1:] else left[0]}
        cluster = Cluster("lab", server.uri, user="alice", generation="1.8")
        return Client(cluster, Credentials(token="t0ken"), timeout=30)

    yield server, answering
    server.close()


@pytest.mark.parametrize(
    "looks", [[DETAIL], [ABSENT, DETAIL], [BROKEN, BROKEN, DETAIL], [BROKEN, ABSENT, DETAIL]]
)
def test_job_that_exists_after_a_server_error_counts_as_submitted(lab, looks):
    server, answering = lab
    submission.submit_once(answering(BROKEN, *looks), Submission("train", "name: train\n"))
    assert len(server.received("POST")) == 1


@pytest.mark.parametrize("theirs", [["python train.py"], ["python other.py"]])
def test_a_job_with_other_commands_that_took_the_name_is_a_conflict(lab, theirs):
    server, answering = lab
    client = answering(BROKEN, DETAIL)
    server.answers[f"{JOB}/config"] = {"taskRoles": {"main": {"commands": theirs}}}
    made = Submission("train", "name: train\ntaskRoles: {main: {commands: [python train.py]}}\n")
    if theirs == ["python train.py"]:
        assert submission.submit_once(client, made) == ()
    else:
        with pytest.raises(Conflict, match="a job named 'train' exists on cluster 'lab'"):
            submission.submit_once(client, made)


def test_job_that_is_missing_after_a_server_error_counts_as_not_submitted(lab):
    server, answering = lab
    with pytest.raises(NotSubmitted, match=r"'train' was not submitted: .*ECONNREFUSED") as caught:
        submission.submit_once(answering(BROKEN, BROKEN, ABSENT), Submission("train", "name: train\n"))
    assert caught.value.exit_code == ApiError.exit_code and len(server.received("POST")) == 1


@pytest.mark.parametrize("posted", [BROKEN, Reply("", 502)])
def test_an_unreachable_cluster_leaves_the_submission_unknown(lab, posted):
    server, answering = lab
    with pytest.raises(
        Unreachable, match=r"may have been submitted: check with `pai job\.status train -a lab`"
    ) as caught:
        submission.submit_once(answering(posted, BROKEN), Submission("train", "name: train\n"))
    assert not isinstance(caught.value, NotSubmitted) and len(server.received("POST")) == 1


@pytest.mark.parametrize("status", [400, 403, 413])
def test_clear_refusal_causes_no_lookup(lab, status):
    server, answering = lab
    with pytest.raises(ApiError):
        submission.submit_once(answering(Reply({"message": "no"}, status), DETAIL), Submission("train", "x"))
    assert server.received("GET") == []


def test_lookup_after_the_submission_is_retried_on_a_database_error(lab):
    _, answering = lab
    assert submission.wait_for_job(answering("", BROKEN, ABSENT, DETAIL), "alice~train").name == "train"
    with pytest.raises(ApiError, match="ECONNREFUSED"):
        submission.wait_for_job(answering("", BROKEN), "alice~train")
    with pytest.raises(NotFound):
        submission.wait_for_job(answering("", ABSENT), "alice~train")


def test_error_says_that_a_job_that_cannot_be_read_back_is_submitted(lab):
    _, answering = lab
    client = answering("", ABSENT, BROKEN)
    with pytest.raises(ApiError, match=r"job 'train' was submitted, but then: .*ECONNREFUSED"):
        submission.submit(client, Submission("train", "name: train\n"))


def test_ctrl_c_while_the_answer_is_waited_for_leaves_a_word_about_the_job(lab, monkeypatch):
    client, lines = lab[1](DETAIL, DETAIL), []
    monkeypatch.setattr(client, "say", lines.append)
    monkeypatch.setattr(client, "submit", lambda *words: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        submission.submit_once(client, Submission("train", "name: train\n"))
    assert lines == ["job 'train' may have been submitted: check with `pai job.status train -a lab`"]


def test_kept_failures_are_refused_before_anything_is_sent(lab):
    """OpenPAI would ignore the policy of the document."""
    server, answering = lab
    client = answering(ABSENT, ABSENT)
    request = JobRequest("false", "train", image="some/image", policy=JobPolicy(keep_failed=60))
    made = submission.build(request, submission.JobFiles(None, None, Origin(Path())))
    with pytest.raises(
        Unsupported, match=r"\(OpenPAI 1.8\) does not keep failed tasks: leave out --keep-failed"
    ):
        submission.submit(client, made)
    assert {one.method for one in server.seen} <= {"GET"}
