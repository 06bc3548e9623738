"""The pages of one cluster and of all clusters."""

import json
import time
from types import SimpleNamespace

import pytest

from openpai_tasks import sdk
from openpai_tasks.backends.base import ClusterSample
from openpai_tasks.portal.pages import cluster as cluster_page
from tests.attacks import ATTACKS, forbidden
from tests.hostile import Hostile
from tests.portal.conftest import Web
from tests.scripted import Reply
from tests.sdk.pai_server import jwt

API = "/rest-server/api/v2"
TEXT = "".join(ATTACKS.values()) + "<script>alert(1)</script>"
NOW = int(time.time() * 1000)


def follow(visitor, path, *texts):
    """Follow a live page until a part of it has all these texts, and nothing is asked any more; return it."""
    with visitor.get(path, stream=True, headers={"accept": "text/event-stream"}) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        for line in answer.iter_lines():
            if line.startswith(b"data: "):
                (part,) = json.loads(line[6:]).values()
                if all(text in part for text in texts) and "Asking" not in part:
                    return part
    raise AssertionError("the page ended")


def job(name, state, **values):
    row = {
        "name": name,
        "username": "alice",
        "state": state,
        "virtualCluster": "default",
        "totalGpuNumber": 4,
    }
    return {**row, "submissionTime": NOW - 3_600_000, "launchedTime": NOW - 1_800_000, **values}


def listed(request):
    if "WAITING" in request.query.get("state", ""):
        found = [job("first", "RUNNING"), job(f"second{TEXT}", "WAITING", launchedTime=None)]
    else:
        found = [job("ended", "SUCCEEDED", completedTime=NOW - 60_000)]
    total = len(found) if request.query.get("limit") != "1" else 1
    return Reply({"totalCount": total, "data": found[int(request.query.get("offset", 0)) :]})


def amounts(gpus):
    return {"GPUs": gpus, "cpu": 8 * gpus, "memory": 1000 * gpus}


@pytest.fixture(scope="module")
def lab(cluster):
    """A cluster with GPUs, whose texts attack, among those that the portal knows."""
    from tests.scripted import Scripted

    node = {
        "metadata": {"name": f"node{TEXT}"},
        "status": {
            "capacity": {"cpu": "64", "memory": "1048576Ki", "nvidia.com/gpu": "8"},
            "conditions": [{"type": "Ready", "status": "False"}],
        },
    }
    capacity = {"resourcesUsed": amounts(6), "resourcesGuaranteed": amounts(8), "resourcesTotal": amounts(16)}
    capacity["openpaiTasks"] = {"takenGpus": [f"GPU 1: ann ({TEXT}, pid 7)", "GPU 2: bob"]}
    server = Scripted(
        {
            f"GET {API}/info": {"version": "v1.8.1", "launcherType": "k8s", "authnMethod": "basic"},
            "GET /rest-server/api/v1/user/alice": {
                "username": "alice",
                "virtualCluster": ["default"],
                "grouplist": [],
            },
            f"GET {API}/virtual-clusters": {"default": capacity, f"vc{TEXT}": capacity},
            f"GET {API}/cluster/sku-types": {"V100": {"cpu": 4, "memory": 9, "gpu": 1}, "CPU": {"gpu": 0}},
            f"GET {API}/kubernetes/nodes": {"items": [node, "odd", {}]},
            f"GET {API}/storages": {"storages": []},
            f"GET {API}/jobs": listed,
        }
    )
    (cluster.home / "token").write_text(jwt("alice", exp=4102444800))
    ran = cluster.ok("cluster.add", "lab", server.uri, "--token-file", str(cluster.home / "token"))
    assert "lab" in ran.out
    yield server
    cluster.ok("cluster.delete", "lab")
    server.close()


def test_the_cluster_shows_its_virtual_clusters_queue_and_machines(visitor, lab):
    page = visitor.get("/c/lab/cluster")
    text = page.text
    assert page.status_code == 200 and "v1.8.1" in text and "alice" in text
    assert "6 of 8" in text and "(16 in all)" in text and "75 % of the GPUs in use" in text
    assert "others than jobs of this cluster: GPU 1: ann (" in text and "pid 7), GPU 2: bob<" in text
    assert text.index(">first<") < text.index(">second")
    assert "<strong>GPUs in use in the last hour</strong>" in text
    assert "<strong>GPUs in use in the last day</strong>" in text and "Tasks waiting" not in text
    assert "Free GPUs: <strong>2 of 8 V100</strong></p>" in text
    assert "Not ready" in text and "1.0 GiB" in text
    assert not forbidden(text) and "<script>alert" not in text
    assert 'aria-current="page">Cluster' in text


def test_the_cluster_is_followed_live(cluster, visitor):
    follow(visitor, "/c/local/cluster.live", "CPUs", "No jobs are waiting or running")
    cluster.ok("job.sub", "sleep 600", "--job-name", "busy")
    follow(visitor, "/c/local/cluster.live", ">busy<", "state-running")
    cluster.ok("job.sub", "true", "--cpu", "500", "--job-name", "large")
    follow(visitor, "/c/local/cluster.live", ">large<", "state-waiting", '<p class="wait-reason">it ')
    cluster.ok("job.stop", "large")
    cluster.ok("job.stop", "busy")
    follow(visitor, "/c/local/cluster.live", "No jobs are waiting or running")


def test_a_new_job_is_asked_for_again_until_the_cluster_has_looked_at_it(monkeypatch):
    reasons = iter(["the cluster has not started it yet", "it needs a GPU"])
    monkeypatch.setattr(sdk.diagnosis, "wait_reason", lambda client, job: next(reasons))
    job = SimpleNamespace(key="ann~new", state="WAITING", submitted=time.time() * 1000)
    history = cluster_page.History(())
    shown = [cluster_page._explain(None, history, [job])[job.key] for _ in range(3)]
    assert shown == ["the cluster has not started it yet", *["it needs a GPU"] * 2]


def test_a_history_is_drawn_from_its_second_sample_on():
    def titles(samples, has_gpus=False):
        history = cluster_page.History([], {3600: samples, 24 * 3600: samples[:1]})
        return [chart.title for chart in cluster_page._sampled(history, has_gpus)]

    now = int(time.time() * 1000)
    first, second = (
        ClusterSample(now - age, 1, waiting, 1, 1024, 0) for age, waiting in ((60_000, 0), (0, 2))
    )
    assert titles([first]) == []
    assert titles([first, second]) == ["CPUs in use in the last hour", "Tasks waiting in the last hour"]
    assert titles([first, first], has_gpus=True) == [
        "GPUs in use in the last hour",
        "CPUs in use in the last hour",
    ]


def test_clusters_are_listed_at_once_and_their_states_follow(cluster, visitor, lab):
    with Hostile(lambda request: [], pause=0.1) as silent:
        cluster.ok("cluster.add", "dead", "http://127.0.0.1:9", "--no-check")
        cluster.ok(
            "cluster.add", "slow", silent.uri, "--no-check", "--user", "alice", "--token", jwt("alice")
        )
        try:
            page = visitor.get("/clusters")
            assert page.text.count("Asking…") == 4 and "pai cluster.add" in page.text
            assert 'href="/c/lab/jobs"' in page.text and 'aria-label="Main"' in page.text
            last = follow(visitor, "/clusters.live", "Connection refused", "no answer within", "12 of 16")
            assert not forbidden(last)
        finally:
            cluster.ok("cluster.delete", "dead", "slow")


def test_a_user_who_signed_in_sees_only_that_cluster(cluster, visitor, lab):
    login = json.loads((cluster.home / "local" / "credentials.json").read_text())
    guest = Web()
    form = {"cluster": "local", "user": login["user"], "password": login["password"]}
    guest.post(f"{visitor.root}/sign-in", data=form, timeout=60)
    page = guest.get(f"{visitor.root}/clusters", timeout=60)
    assert page.status_code == 200 and "/c/local/jobs" in page.text
    assert "/c/lab/" not in page.text and "cluster.add" not in page.text
    assert guest.get(f"{visitor.root}/c/lab/cluster", timeout=60).status_code == 404


def test_an_open_page_survives_a_stop_and_a_start_of_the_cluster(cluster, tab):
    tab.goto(f"{tab.root}/c/local/cluster")
    tab.get_by_role("heading", name="Queue").wait_for()
    cluster.ok("cluster.stop")
    tab.get_by_text("the embedded cluster is stopped").wait_for()
    assert not cluster.ok("cluster.status", "-o", "json").json()["running"]
    cluster.ok("cluster.start")
    tab.locator("#problem").wait_for(state="hidden")
    cluster.ok("job.sub", "sleep 600", "--job-name", "afterwards")
    tab.get_by_role("link", name="afterwards").wait_for()
    cluster.ok("job.stop", "afterwards")
