"""Jobs of PaddleCloud: submit, list, watch, kill."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from openpai_tasks.protocol.routes import OWN_FIELD
from openpai_tasks.server.paddlecloud.submission import parse_memory
from tests.server.conftest import wait_for


def test_job_runs_its_entry_in_its_package_and_is_listed(user1):
    user1.package("first", train_py="print('trained by', __file__)")
    answer = user1.submit("first", "python3 train.py", parallelism=2)
    assert (answer["code"], answer["msg"]) == (200, "")
    for warning in answer.get(OWN_FIELD, {}).get("notices", ()):  # on a machine with few CPUs
        assert warning.endswith("; the job asks for 2 and runs alone")
    status = user1.ended("first")
    assert (status["succeeded"], status["failed"], status["active"]) == (2, None, None)
    assert status["start_time"].endswith("Z") and status["completion_time"].endswith("Z")
    workers = user1.workers("first")
    assert [one["status"]["phase"] for one in workers] == ["Succeeded"] * 2
    for one in workers:
        name = one["metadata"]["name"]
        assert re.fullmatch(r"first-trainer-[a-z0-9]{5}", name)
        assert f"{'=' * 26}{name}{'=' * 26}\ntrained by" in user1.logs("first")
        assert one["status"]["container_statuses"][0]["state"]["terminated"]["exit_code"] == 0


def test_job_shows_in_the_list_of_openpai(user1, server):
    user1.run("shared")
    names = [one["name"] for one in server.login("user1", "a secret").get("/api/v2/jobs").json()]
    assert "shared" in names
    user1.ended("shared")


def test_killed_job_leaves_the_list_and_keeps_its_logs_and_files(user1):
    user1.run("endless", "touch made-here; echo begun; exec sleep 1000")
    wait_for(lambda: "begun" in user1.logs("endless"))
    assert user1.kill("endless") == {"code": 200, "msg": ""}
    assert user1.job("endless") is None
    wait_for(lambda: not user1.get("/api/v1/jobs/")["terminating"])
    assert "begun" in user1.logs("endless")
    assert (user1.home / "jobs" / "endless" / "made-here").exists()
    assert user1.kill("endless")["code"] == 404


def test_name_of_a_killed_job_can_be_used_again(user1):
    user1.run("again", "echo one")
    user1.ended("again")
    refusal = user1.submit("again", "echo two")
    assert refusal["code"] == 409 and "exists already" in refusal["msg"]
    user1.kill("again")
    user1.run("again", "echo two")
    user1.ended("again")
    assert user1.logs("again").endswith("two\n")


def test_job_of_openpai_is_neither_listed_nor_killed_nor_given_another_package(user1, server):
    openpai = server.login("user1", "a secret")
    openpai.run("theirs", "exec sleep 1000")
    assert user1.job("theirs") is None
    assert user1.kill("theirs") == {"code": 404, "msg": "no job named 'theirs'"}
    user1.package("theirs")
    refusal = user1.submit("theirs")
    assert refusal["code"] == 409 and "jobs/theirs is the folder of a job of OpenPAI's API" in refusal["msg"]
    assert openpai.until("user1~theirs", "RUNNING")["jobStatus"]["executionType"] == "START"
    openpai.put("/api/v2/jobs/user1~theirs/executionType", {"value": "STOP"})


@pytest.mark.parametrize(
    "change, words",
    [
        ({"entry": ""}, "no topology or entry"),
        ({"datacenter": ""}, "no datacenter"),
        ({"job_package": "./pkg"}, "invalid job_package './pkg'"),
        ({"job_package": "/pfs/dc2/home/user1/pkg"}, "expected /pfs/local/home/USER/PATH"),
        ({"job_package": "/pfs/local/public"}, "invalid job_package"),
        ({"job_package": "/pfs/local/home/user2/pkg"}, "unauthorized"),
        ({"job_package": "/pfs/local/home/user1/../../x"}, "unauthorized"),
        ({"job_package": "/pfs/local/home/user1/pkg"}, "not exist in cloud: /pfs/local/home/user1/pkg"),
        ({"name": "a_b"}, "invalid job name"),
        ({"name": "absent"}, "package not exist in cloud: /pfs/local/home/user1/jobs/absent"),
        ({"parallelism": 0}, "invalid parallelism"),
        ({"memory": "10GB"}, "invalid memory '10GB'"),
        ({"parallelism": 21}, "exceeds the quota of pods: request: 21, usage: "),
    ],
)
def test_submission_is_refused_with_one_line(user1, change, words):
    user1.package("refused")
    body = {"name": "refused", "entry": "true", "datacenter": "local", "pservers": 0, **change}
    answer = user1.call("POST", "/api/v1/jobs/", json=body).json()
    assert answer["code"] >= 400 and words in answer["msg"] and "\n" not in answer["msg"]
    assert user1.job("refused") is None


def test_more_than_the_quota_is_refused_with_its_numbers(user1):
    limit = parse_memory(user1.get("/api/v1/quota/")["items"][0]["status"]["hard"]["requests.memory"])
    user1.package("large")
    message = user1.submit("large", memory=f"{limit + 1}Mi")["msg"]
    assert f"request: {limit + 1}Mi, usage: " in message and f"limit: {limit}Mi" in message


SAVE = """
import os
os.makedirs(os.environ["OUTPUT"], exist_ok=True)
open("output/" + os.environ["PADDLE_INIT_TRAINER_ID"], "w")
"""
DESIGNED = {
    "name": "paddle-job",
    "job_package": "/pfs/datacenter1/home/user1/job_word_emb",
    "parallelism": 3,
    "cpu": 1,
    "gpu": 1,
    "memory": "1Gi",
    "pservers": 3,
    "pscpu": 1,
    "psmemory": "1Gi",
    "topology": "train.py",
}


def test_the_body_of_the_design_document_is_answered_and_listed_as_it_says(user1):
    package = user1.home / "job_word_emb"
    package.mkdir()
    (package / "train.py").write_text(SAVE)
    assert user1.call("POST", "/api/v1/jobs", json=DESIGNED).json() == {"code": 200, "msg": "OK"}
    listed = user1.get("/api/v1/jobs")
    assert listed["code"] == 200 and DESIGNED in listed["msg"] and user1.job("paddle-job")
    assert user1.ended("paddle-job")["succeeded"] == 3
    assert {path.name for path in (package / "output").iterdir()} == {"0", "1", "2"}


def test_a_job_is_listed_with_its_default_package_and_the_folder_that_was_uploaded(user1):
    user1.run("named", jobPackage="./job_word_emb/", memory="1536Mi")
    row = next(one for one in user1.get("/api/v1/jobs/")["msg"] if one["name"] == "named")
    assert (row["job_package"], row["memory"]) == ("/pfs/local/home/user1/jobs/named", "1536Mi")
    assert user1.job("named")["metadata"]["annotations"] == {"paddle-job-package": "job_word_emb"}


def test_simultaneous_submissions_stay_within_the_quota(user2):
    """Ten jobs of three pods each: six fit into twenty."""
    names = [f"crowd-{number}" for number in range(10)]
    for name in names:
        user2.package(name)
    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(lambda name: user2.submit(name, "sleep 1000", parallelism=3), names))
    assert sorted(one["code"] for one in answers) == [200] * 6 + [403] * 4
    for name, answer in zip(names, answers, strict=True):
        assert answer["code"] == 403 or user2.kill(name)["code"] == 200
    wait_for(lambda: not user2.get("/api/v1/jobs")["terminating"])
