"""What tasks of PaddleCloud get: variables, addresses of parameter servers, limits, and their ends."""

from __future__ import annotations

import json
import os
import sys

import pytest

from tests.server.conftest import ServerProcess, wait_for
from tests.server.paddlecloud.conftest import sign_in

SHOW = """
import json, os, sys
print(json.dumps({"cwd": os.getcwd(), "env": dict(os.environ)}), flush=True)
"""
LISTEN = """
import os, socket
with socket.create_server((os.environ["POD_IP"], int(os.environ["PADDLE_INIT_PORT"]))) as server:
    print("listens", *server.getsockname(), flush=True)
    while True:
        connection, _ = server.accept()
        with connection:
            connection.sendall(os.environ["PADDLE_INIT_PSERVER_ID"].encode())
"""
ASK = """
import os, socket, time

def ask(host, port):
    for _ in range(600):
        try:
            with socket.create_connection((host, int(port)), timeout=60) as connection:
                return connection.recv(10).decode()
        except ConnectionRefusedError:
            time.sleep(0.1)

both = [one.rsplit(":", 1) for one in os.environ["PADDLE_PSERVERS_IP_PORT_LIST"].split(",")]
print("by list", *(ask(*one) for one in both), flush=True)
addresses = os.environ["PADDLE_INIT_PSERVERS"].split(",")
print("by address", *(ask(one, os.environ["PADDLE_INIT_PORT"]) for one in addresses), flush=True)
"""


def exit_state(worker):
    return worker["status"]["container_statuses"][0]["state"]["terminated"]


def test_trainer_has_the_variables_of_a_pod(user1):
    user1.package("variables", show_py=SHOW)
    body = {"cpu": 2, "memory": "10Gi", "passes": 3, "topology": "conf.py", "datacenter": "dc1"}
    user1.submit("variables", "python3 show.py  '<% $parameters.x %>' \"$ODD\"", parallelism=2, **body)
    user1.ended("variables")
    sections = user1.logs("variables").split("=" * 26)[2::2]
    seen = [json.loads(text) for text in sections]
    package = user1.home / "jobs" / "variables"
    for index, one in enumerate(seen):
        env = one["env"]
        assert os.path.realpath(one["cwd"]) == os.path.realpath(package)
        assert env["TRAINER_PACKAGE"].endswith("/pfs/dc1/home/user1/jobs/variables")
        assert os.path.samefile(env["TRAINER_PACKAGE"], package)
        assert env["PYTHONPATH"].split(":")[0] == env["TRAINER_PACKAGE"]
        expected = {
            "PADDLE_JOB_NAME": "variables",
            "TRAINERS": "2",
            "PSERVERS": "0",
            "TOPOLOGY": "conf.py",
            "ENTRY": "python3 show.py  '<% $parameters.x %>' \"$ODD\"",
            "PADDLE_INIT_PORT": "7164",
            "PADDLE_INIT_TRAINER_COUNT": "2",
            "PADDLE_INIT_PORTS_NUM": "1",
            "PADDLE_INIT_PORTS_NUM_FOR_SPARSE": "1",
            "PADDLE_INIT_NUM_GRADIENT_SERVERS": "2",
            "PADDLE_INIT_NUM_PASSES": "3",
            "PADDLE_INIT_USE_GPU": "0",
            "PADDLE_INIT_TRAINER_ID": str(index),
            "PADDLE_INIT_PSERVERS": "",
            "NAMESPACE": "user1",
            "PADDLE_CLOUD_CURRENT_DATACENTER": "dc1",
            "PADDLE_CLOUD_USERNAME": "user1",
            "TRAINING_ROLE": "TRAINER",
        }
        assert {name: env.get(name) for name in expected} == expected


def test_trainers_reach_every_parameter_server_which_end_with_them(user1):
    user1.package("servers", train_py=ASK, pserver_py=LISTEN)
    user1.submit("servers", "python3 train.py", parallelism=2, pservers=2)
    assert user1.ended("servers")["succeeded"] == 2
    text = user1.logs("servers")
    assert text.count("by list 0 1\n") == 2
    if sys.platform == "linux":
        assert text.count("by address 0 1\n") == 2
    pservers = user1.workers("servers", role="pserver")
    assert [one["status"]["phase"] for one in pservers] == ["Succeeded"] * 2
    assert exit_state(pservers[0])["message"] == "stopped at the end of the job"
    assert "listens" in user1.logs("servers", w=pservers[0]["metadata"]["name"])
    listed = {one["metadata"]["name"]: one["status"] for one in user1.get("/api/v1/pservers/")["items"]}
    assert listed["servers-pserver"] == {"ready_replicas": None, "replicas": 0}


def test_parameter_server_without_a_program_waits_for_the_trainers(user1):
    folder = user1.package("idle")
    user1.submit("idle", "while [ ! -e go ]; do sleep 0.05; done", pservers=1)
    pserver = user1.workers("idle", role="pserver")[0]["metadata"]["name"]
    wait_for(lambda: "waits for the end of the trainers" in user1.logs("idle", w=pserver))
    (folder / "go").touch()
    assert user1.ended("idle")["succeeded"] == 1
    assert "waits for the end of the trainers" in user1.logs("idle", w=pserver)


def test_topology_alone_is_run_as_a_program(user1):
    folder = user1.package("walk")
    (folder / "modules").mkdir()
    (folder / "modules" / "train.py").write_text("print('trained')")
    user1.submit("walk", "", topology="modules/train.py", parallelism=4, cpu=2, memory="10Gi", pservers=4)
    assert user1.ended("walk")["succeeded"] == 4
    assert user1.logs("walk").count("trained\n") == 4


@pytest.mark.parametrize(
    "entry, code, message",
    [
        ("exit 1", 1, "General Error"),
        ("kill -9 $$", 137, "out of memory? submit it with more memory"),
        ("kill -SEGV $$", 139, "Segmentation Fault"),
        ("exit 7", 7, "exited with code 7"),
    ],
)
def test_end_of_a_failed_worker_is_explained(user1, entry, code, message):
    name = f"failing-{code}"
    user1.run(name, entry)
    status = user1.ended(name)
    assert (status["failed"], status["completion_time"]) == (1, None)
    found = exit_state(user1.workers(name)[0])
    assert found["exit_code"] == code and message in found["message"]


def test_failed_trainer_ends_the_others(user1):
    user1.run("half", 'if [ "$PADDLE_INIT_TRAINER_ID" = 1 ]; then exit 3; fi; exec sleep 1000', parallelism=3)
    status = user1.ended("half")
    assert (status["succeeded"], status["failed"]) == (None, 1)
    assert [exit_state(one)["exit_code"] for one in user1.workers("half")][1] == 3


def test_fault_tolerant_job_is_started_again(user1):
    entry = "echo x >> tries; [ $(wc -l < tries) -gt 2 ]"
    user1.run("tolerant", entry, faulttolerant=True)
    assert user1.ended("tolerant")["succeeded"] == 1
    user1.run("intolerant", entry)
    assert user1.ended("intolerant")["failed"] == 1


def test_waiting_worker_says_why_and_the_quota_is_used_up(user1):
    limit = quota(user1)["hard"]["requests.cpu"]
    user1.run("first-in-line", "exec sleep 1000", cpu=int(limit))
    wait_for(lambda: user1.workers("first-in-line")[0]["status"]["phase"] == "Running")
    user1.package("next")
    assert f"quota of CPU: request: 1, usage: {limit}, limit: {limit}" in user1.submit("next")["msg"]
    user1.run("next", cpu=0)
    wait_for(lambda: waiting(user1, "next"))
    assert user1.logs("next").endswith("the pod waits to be started\n")
    found = quota(user1)
    assert found["used"] == {**found["used"], "pods": "2", "requests.cpu": limit, "requests.memory": "2Gi"}
    assert found["hard"]["pods"] == "20" and int(found["hard"]["requests.memory"][:-2]) >= 100
    user1.kill("first-in-line")
    user1.ended("next")


def quota(user):
    return user.get("/api/v1/quota/")["items"][0]["status"]


def waiting(user, name):
    state = user.workers(name)[0]["status"]["container_statuses"][0]["state"]["waiting"]
    return state and state["message"]


def test_terminating_job_is_listed_and_its_name_is_taken(user1):
    user1.run("slow-end", "trap 'touch stopping' TERM; touch begun; while [ ! -e end ]; do sleep 0.05; done")
    folder = user1.home / "jobs" / "slow-end"
    wait_for((folder / "begun").exists)
    user1.kill("slow-end")
    wait_for((folder / "stopping").exists)
    assert user1.get("/api/v1/jobs/")["terminating"] == ["slow-end"] and user1.job("slow-end") is None
    refusal = user1.submit("slow-end")
    assert refusal["code"] == 409 and "is terminating" in refusal["msg"]
    assert user1.kill("slow-end")["code"] == 200
    (folder / "end").touch()
    wait_for(lambda: user1.get("/api/v1/jobs/")["terminating"] == [])


def test_last_lines_of_each_worker_are_shown(user1):
    user1.run("lines", "seq 1 25; printf end")
    user1.ended("lines")
    text = user1.logs("lines")
    assert text.split("=\n", 1)[1].split("\n") == [*map(str, range(17, 26)), "end"]
    assert user1.logs("lines", n=2).endswith("=\n25\nend") and user1.logs("lines", n=0).endswith("=\n")
    pod = user1.workers("lines")[0]["metadata"]["name"]
    assert user1.logs("lines", w=pod, n=99) == "".join(f"{n}\n" for n in range(1, 26)) + "end"
    for query in ({"n": "-1"}, {"n": "x"}, {"w": "lines-trainer-00000"}):
        assert user1.get("/api/v1/logs", jobname="lines", **query)["code"] in (400, 404)


def test_jobs_and_tokens_outlive_the_server(own_server: ServerProcess):
    uri = own_server.start()["uri"]
    owner = own_server.owner
    user = sign_in(own_server, f"{uri}/paddlecloud", owner["user"], owner["password"])
    user.run("survivor", "touch begun; while [ ! -e end ]; do sleep 0.05; done; echo survived")
    folder = user.home / "jobs" / "survivor"
    wait_for((folder / "begun").exists)
    own_server.end()
    user.uri = f"{own_server.start()['uri']}/paddlecloud"
    assert user.job("survivor")["status"]["active"] == 1
    (folder / "end").touch()
    assert user.ended("survivor")["succeeded"] == 1
    assert user.logs("survivor").endswith("survived\n")
