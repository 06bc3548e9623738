"""What a job's tasks used over time: recorded by a real runner, shown by API, command and portal."""

import csv
import io
import json
import os
import signal

import pytest
import requests

from tests.portal.test_life import is_alive
from tests.server.workshop import until

BURN = """python3 -c "
import os, time
data = bytearray(100 << 20)
while time.process_time() < 3: pass
while not os.path.exists('{end}'): time.sleep(0.05)
" """
"""Uses three seconds of a processor, however busy the machine is."""


@pytest.fixture(scope="module")
def burnt(cluster):
    cluster.ok("job.sub", BURN.format(end=cluster.home / "end"), "--job-name", "burn")
    return "burn"


def rows(cluster, name):
    return json.loads(cluster.ok("container.top", name, "--history", "-o", "json").out)


def test_a_job_shows_its_processor_time_and_memory_while_it_runs(cluster, burnt):
    def used():
        found = rows(cluster, burnt)
        return found if sum(row["cpu"] * row["seconds"] for row in found) > 2.8 else []

    found = until(used)
    assert sum(row["cpu"] * row["seconds"] for row in found) < 4
    assert found[-1]["task"] == "main-0" and 100 << 20 < found[-1]["memory_max"] < 200 << 20


def test_samples_survive_a_killed_server_and_belong_to_the_ended_job(cluster, burnt):
    before = rows(cluster, burnt)
    pid = json.loads((cluster.home / "local/server.json").read_text())["pid"]
    os.kill(pid, signal.SIGKILL)
    until(lambda: not is_alive(pid))
    until(lambda: len(rows(cluster, burnt)) > len(before))
    (cluster.home / "end").touch()
    cluster.ok("job.wait", burnt)
    after = rows(cluster, burnt)
    assert after[: len(before)] == before
    table = cluster.ok("container.top", burnt, "--history").out
    assert "CPU cores" in table and "Memory in GiB" in table
    assert table.splitlines()[-1].startswith("main-0") and "MiB" in table
    text = cluster.ok("container.top", burnt, "--history", "-o", "csv").out
    assert len(list(csv.DictReader(io.StringIO(text)))) == len(after)
    refused = cluster.inv("container.top", burnt, "--history", "--role", "other")
    assert refused.code and "it has: main-0" in refused.err and refused.err.count("\n") == 1


def test_the_page_of_a_job_has_plots_of_its_usage(visitor, cluster, burnt):
    text = visitor.get(f"/c/local/jobs/{burnt}").text
    assert 'id="job-usage"' in text and "<strong>CPU cores</strong>" in text
    assert "<strong>Memory in GiB</strong>" in text and "GPU use" not in text


def test_the_api_returns_few_rows_if_asked_and_refuses_others(cluster, burnt):
    known = json.loads((cluster.home / "local/server.json").read_text())
    root = f"http://127.0.0.1:{known['port']}/rest-server/api/v2"
    token = (cluster.home / "local/token").read_text().strip()
    bearer = {"authorization": f"Bearer {token}"}
    user = json.loads(cluster.ok("job.status", burnt, "-o", "json").out)["user"]
    path = f"{root}/jobs/{user}~{burnt}/attempts/0/taskRoles/main/taskIndex/0/attempts/0/usage"
    body = requests.get(path, headers=bearer, params={"points": 2}, timeout=60).json()
    assert body["isRecorded"] is True and len(body["rows"]) == 2
    assert body["rows"][0]["values"]["cpu"][1] >= body["rows"][0]["values"]["cpu"][0] > 0
    assert requests.get(path, timeout=60).status_code == 401
    assert requests.get(path, headers=bearer, params={"points": "x"}, timeout=60).status_code == 400
    assert requests.get(path.replace("Index/0", "Index/7"), headers=bearer, timeout=60).status_code == 404
    busy = requests.get(f"{root}/embedded/usage", headers=bearer, params={"seconds": 3600}, timeout=60).json()
    assert busy["rows"] and {"time", "running", "waiting", "cpu", "gpu", "memory_mb"} == set(busy["rows"][0])
