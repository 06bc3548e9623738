"""Jobs of several roles on the embedded cluster, submitted over HTTP and run by real processes."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import pytest
import requests

SERVER = """
import os, socketserver

class Sum(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            self.server.total += int(line)
            self.server.calls += 1
            self.wfile.write(b"%d\\n" % self.server.total)

port = int(os.environ["PAI_CONTAINER_HOST_grads_PORT_LIST"].split(",")[0])
socketserver.TCPServer.allow_reuse_address = True
with socketserver.ThreadingTCPServer((os.environ["PAI_CONTAINER_HOST_IP"], port), Sum) as server:
    server.daemon_threads = True
    server.total = server.calls = 0
    print("serving", flush=True)
    server.serve_forever()
"""

WORKER = """
import os, socket, time

def connect(index):
    host = os.environ[f"PAI_HOST_IP_psserver_{index}"]
    port = int(os.environ[f"PAI_PORT_LIST_psserver_{index}_grads"])
    end = time.monotonic() + 60
    while True:
        try:
            return socket.create_connection((host, port))
        except ConnectionRefusedError:
            if time.monotonic() > end:
                raise
            time.sleep(0.02)

own = int(os.environ["PAI_TASK_INDEX"]) + 1
servers = int(os.environ["PAI_TASK_ROLE_TASK_COUNT_PS_server"])
for index in range(servers):
    with connect(index) as link, link.makefile("rwb") as stream:
        for step in range(10):
            stream.write(b"%d\\n" % own)
            stream.flush()
            total = int(stream.readline())
        print(f"worker {own} saw {total} on {index}", flush=True)
"""


class Cluster:
    def __init__(self, shell: Any) -> None:
        login = shell.ok("cluster.credentials", "local", "-o", "json").json()
        self.user, self.base = login["user"], f"{login['uri']}/rest-server"
        self.headers = {"Authorization": f"Bearer {login['token']}"}

    def get(self, path: str) -> requests.Response:
        return requests.get(f"{self.base}{path}", headers=self.headers, timeout=60)

    def run(self, document: dict[str, Any], seconds: float = 100) -> Any:
        """Run a job; 200 tasks take about 1 s where nothing else runs."""
        headers = {**self.headers, "Content-Type": "text/yaml"}
        answer = requests.post(
            f"{self.base}/api/v2/jobs", data=json.dumps(document), headers=headers, timeout=60
        )
        assert answer.status_code == 202, answer.text
        limit = time.monotonic() + seconds
        while time.monotonic() < limit:
            body = self.get(f"/api/v2/jobs/{self.user}~{document['name']}").json()
            if body["jobStatus"]["state"] in ("SUCCEEDED", "FAILED", "STOPPED"):
                return body
            time.sleep(0.05)
        raise AssertionError(f"still {body['jobStatus']}")

    def log(self, task: dict[str, Any]) -> str:
        locations = self.get(task["containerLog"]).json()["locations"]
        uri = next(one["uri"] for one in locations if one["name"] == "stdout")
        return requests.get(f"{self.base.removesuffix('/rest-server')}{uri}", timeout=60).text


@pytest.fixture(scope="module")
def api(cluster: Any) -> Cluster:
    return Cluster(cluster)


def role(script: str, instances: int, ports: dict[str, int], completion: dict[str, int]) -> dict[str, Any]:
    return {
        "instances": instances,
        "completion": completion,
        "dockerImage": "image",
        "resourcePerInstance": {"cpu": 0, "memoryMB": 64, "gpu": 0, "ports": ports},
        "commands": [f"cat > program.py <<'END'{script}END", f"exec {sys.executable} program.py"],
    }


def test_workers_and_parameter_servers_exchange_data(api: Cluster) -> None:
    roles = {
        "PS_server": role(SERVER, 2, {"grads": 1}, {"minSucceededInstances": -1}),
        "worker": role(WORKER, 3, {"spare": 2}, {"minFailedInstances": 1}),
    }
    image = {"name": "image", "type": "dockerimage", "uri": "python:3"}
    document = {"protocolVersion": 2, "name": "parameters", "type": "job", "prerequisites": [image]}
    body = api.run({**document, "taskRoles": roles})
    assert body["jobStatus"]["state"] == "SUCCEEDED", body["jobStatus"]
    workers = body["taskRoles"]["worker"]["taskStatuses"]
    servers = body["taskRoles"]["psserver"]["taskStatuses"]
    assert [task["taskState"] for task in workers] == ["SUCCEEDED"] * 3
    assert [(task["taskState"], task["containerExitCode"]) for task in servers] == [("STOPPED", -220)] * 2
    logs = "".join(api.log(task) for task in workers)
    last = {index: [] for index in "01"}
    for line in logs.splitlines():
        last[line[-1]].append(int(line.split()[3]))
    assert {index: max(totals) for index, totals in last.items()} == {"0": 60, "1": 60}
    assert all(api.log(task) == "serving\n" for task in servers)


def test_two_hundred_tasks_run_in_a_short_time(api: Cluster) -> None:
    resources = {"cpu": 0, "memoryMB": 0, "gpu": 0}
    one = {"instances": 200, "dockerImage": "image", "resourcePerInstance": resources}
    image = {"name": "image", "type": "dockerimage", "uri": "python:3"}
    document = {"protocolVersion": 2, "name": "crowd", "type": "job", "prerequisites": [image]}
    body = api.run({**document, "taskRoles": {"main": {**one, "commands": ["echo $PAI_TASK_INDEX"]}}})
    assert body["jobStatus"]["state"] == "SUCCEEDED"
    assert len(body["taskRoles"]["main"]["taskStatuses"]) == 200
