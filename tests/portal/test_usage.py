"""What a job's tasks used over time: recorded by a real runner, shown by API, command and portal."""

import csv
import io
import json

import pytest
import requests

from tests.processes import kill
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

    found = until(used, 200)
    assert sum(row["cpu"] * row["seconds"] for row in found) < 4
    assert found[-1]["task"] == "main-0" and 100 << 20 < found[-1]["memory_max"] < 200 << 20


def test_samples_survive_a_killed_server_and_belong_to_the_ended_job(cluster, burnt):
    before = rows(cluster, burnt)
    pid = json.loads((cluster.home / "local/server.json").read_text())["pid"]
    kill(pid)
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


def test_the_report_sums_hours_their_use_and_failures(visitor, cluster, burnt):
    # long enough for its share of the hours not to be rounded to 0
    cluster.inv("job.sub", "sleep 1; exit 3", "--job-name", "fails", "--tag", "bad", "--follow")
    report = cluster.ok("cluster.report", "--since", "1h", "-o", "json")
    [row] = report.json()
    assert "jobs of all users, by user, since 20" in report.err
    assert row["jobs"] == 2 and 0 < row["cpu_hours"] < 1 and row["gpu_hours"] == 0 and row["gpu_used"] is None
    assert 0 < row["cpu_used"] <= 110 and 0 < row["failed"] < 100
    table = cluster.ok("cluster.report", "--by", "tag", "-o", "csv").out.splitlines()
    assert table[0] == "name,jobs,gpu_hours,gpu_used,cpu_hours,cpu_used,waited,failed"
    assert [line.split(",")[0] for line in table[1:]] == ["", "bad"] and table[2].endswith(",100.0")
    page = visitor.get("/c/local/report?by=tag&since=1h").text
    assert "<strong>CPUs in use, by tag</strong>" in page and ">bad</th>" in page
    assert visitor.get("/c/local/report.csv?by=tag").text.splitlines()[0] == table[0]
    for flags, problem in (
        (["--by", "x"], "--by: expected user"),
        (["--since", "-"], "--since: expected a d"),
    ):
        refused = cluster.inv("cluster.report", *flags)
        assert refused.code == 120 and problem in refused.err and refused.err.count("\n") == 1


def test_only_administrators_see_what_others_used(cluster, burnt):
    known = json.loads((cluster.home / "local/server.json").read_text())
    root = f"http://127.0.0.1:{known['port']}/rest-server/api/v2"
    owner = {"authorization": f"Bearer {(cluster.home / 'local/token').read_text().strip()}"}
    account = {"username": "guest", "password": "guest-password", "admin": False, "email": ""}
    assert requests.post(f"{root}/users", headers=owner, json=account, timeout=60).status_code == 201
    login = {"username": "guest", "password": "guest-password"}
    token = requests.post(f"{root}/authn/basic/login", json=login, timeout=60).json()["token"]
    guest = {"authorization": f"Bearer {token}"}
    path = f"{root}/embedded/report"
    assert requests.get(path, headers=guest, timeout=60).json()["rows"] == []
    refused = requests.get(path, headers=guest, params={"username": "all"}, timeout=60)
    assert refused.status_code == 403 and "not allowed to see what other users used" in refused.text
    assert requests.get(path, headers=owner, params={"by": "x"}, timeout=60).status_code == 400
    (row,) = requests.get(path, headers=owner, params={"points": 1500}, timeout=60).json()["rows"]
    assert len(row["series"]) == 100


def test_the_api_returns_few_rows_if_asked_and_refuses_others(cluster, burnt):
    known = json.loads((cluster.home / "local/server.json").read_text())
    root = f"http://127.0.0.1:{known['port']}/rest-server/api/v2"
    token = (cluster.home / "local/token").read_text().strip()
    bearer = {"authorization": f"Bearer {token}"}
    user = json.loads(cluster.ok("job.status", burnt, "-o", "json").out)["user"]
    path = f"{root}/jobs/{user}~{burnt}/attempts/0/taskRoles/main/taskIndex/0/attempts/0/usage"
    body = requests.get(path, headers=bearer, params={"points": 2}, timeout=60).json()
    assert body["unrecorded"] == "" and len(body["rows"]) == 2
    assert body["rows"][0]["values"]["cpu"][1] >= body["rows"][0]["values"]["cpu"][0] > 0
    assert requests.get(path, timeout=60).status_code == 401
    assert requests.get(path, headers=bearer, params={"points": "x"}, timeout=60).status_code == 400
    assert requests.get(path.replace("Index/0", "Index/7"), headers=bearer, timeout=60).status_code == 404
    busy = requests.get(f"{root}/embedded/usage", headers=bearer, params={"seconds": 3600}, timeout=60).json()
    assert busy["rows"] and {"time", "running", "waiting", "cpu", "gpu", "memory_mb"} == set(busy["rows"][0])
