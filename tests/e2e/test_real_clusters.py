"""Resources, storages and outages of real OpenPAI clusters, and how the commands show them."""

import threading

import pytest

from tests.e2e.test_real_answers import API, JOB, detail, event, task
from tests.scripted import Reply

DOCUMENT = {
    "protocolVersion": 2,
    "name": "train",
    "type": "job",
    "prerequisites": [{"name": "image", "type": "dockerimage", "uri": "python:3"}],
    "taskRoles": {
        "worker": {
            "instances": 8,
            "dockerImage": "image",
            "resourcePerInstance": {"cpu": 4, "memoryMB": 1024, "gpu": 8},
            "commands": ["python train.py"],
        }
    },
}


def side(gpus, cpus=640, memory=1 << 20):
    return {"cpu": cpus, "memory": memory, "gpu": gpus, "vCores": cpus, "GPUs": gpus}


def virtual_clusters(total=16, guaranteed=16, used=0):
    sides = {"resourcesUsed": side(used, 0, 0), "resourcesGuaranteed": side(guaranteed)}
    return {"default": {"capacity": 100, "usedCapacity": 0, **sides, "resourcesTotal": side(total)}}


# What a cluster has


def test_resources_of_dead_nodes_are_not_counted_as_usable(shell, lab):
    lab({f"GET {API}/virtual-clusters": virtual_clusters(total=16, guaranteed=8, used=3)})
    [row] = shell.ok("cluster.resources", "lab", "-o", "json").json()
    keys = ("gpus_used", "gpus_usable", "gpus_unavailable", "gpus_total")
    assert [row[key] for key in keys] == [3, 8, 8, 16]
    header, line = shell.ok("cluster.resources", "lab").out.splitlines()
    assert "UNAVAILABLE" in header and line.split()[2] == "3/8" and "8 GPUs" in line


def waiting(notes=(), **answers):
    job = detail([task("WAITING")], state="WAITING", subState="AttemptPreparing", completedTime=None)
    return {
        f"GET {JOB}": job,
        f"GET {JOB}/config": DOCUMENT,
        f"GET {JOB}/events": {"totalCount": len(notes), "data": list(notes)},
        **answers,
    }


UNSCHEDULED = event("FailedScheduling", "0/2 nodes are available: 2 Insufficient nvidia.com/gpu.")


@pytest.mark.parametrize("notes", [(), (UNSCHEDULED,)], ids=["no event yet", "an event"])
def test_why_reports_a_job_that_can_never_fit_even_without_events(shell, lab, notes):
    lab(waiting(notes, **{f"GET {API}/virtual-clusters": virtual_clusters()}))
    why = shell.ok("job.why", "train").out
    reason = "it asks for 64 GPUs, and virtual cluster default has 16 in all: it can never start as it is"
    assert why.startswith(f"train is WAITING: {reason}\n")
    advice = why.partition("what to do:\n")[2].partition("\n\n")[0]
    assert "`inv job.resubmit train --gpu N`" in advice and "wait" not in advice


@pytest.mark.parametrize("kind, word", [("cpu", "CPUs"), ("memoryMB", "MB of memory")])
def test_why_also_reports_cpus_and_memory_that_can_never_fit(shell, lab, kind, word):
    clusters = virtual_clusters(total=64, guaranteed=64)
    for name in ("resourcesGuaranteed", "resourcesTotal"):
        clusters["default"][name] = side(64, cpus=16) if kind == "cpu" else side(64, memory=2048)
    lab(waiting(**{f"GET {API}/virtual-clusters": clusters}))
    why = shell.ok("job.why", "train").out
    assert word in why.splitlines()[0] and f"resourcePerInstance.{kind}=N" in why


def test_why_reports_a_job_that_waits_for_unavailable_nodes(shell, lab):
    clusters = virtual_clusters(total=64, guaranteed=56)
    lab(waiting((UNSCHEDULED,), **{f"GET {API}/virtual-clusters": clusters}))
    first = shell.ok("job.why", "train").out.splitlines()[0]
    assert "64 GPUs" in first and "56 that can be used: 8 of 64 are unavailable" in first


def test_why_reports_that_a_job_waits_for_resources_in_use(shell, lab):
    clusters = virtual_clusters(total=80, guaranteed=72, used=70)
    lab(waiting(**{f"GET {API}/virtual-clusters": clusters}))
    assert "it asks for 64 GPUs, and 2 of 72 are free" in shell.ok("job.why", "train").out


def test_only_one_task_has_to_fit_without_gang_allocation(shell, lab):
    answers = waiting(**{f"GET {API}/virtual-clusters": virtual_clusters()})
    lab({**answers, f"GET {JOB}/config": {**DOCUMENT, "extras": {"gangAllocation": False}}})
    assert "never" not in shell.ok("job.why", "train").out


# Storages


def storage_answers(count, **more):
    names = [f"team{number}" for number in range(count)]
    rows = [{"name": name, "share": True, "volumeName": name, **more} for name in names]
    nfs = {"type": "nfs", "share": True, "readOnly": False}
    details = {
        f"GET {API}/storages/{name}": {"name": name, **nfs, "data": {"server": "nas", "path": f"/{name}"}}
        for name in names
    }
    return {f"GET {API}/storages": {"storages": rows}, **details}


def test_ten_storages_take_eleven_requests_with_details_in_parallel(shell, lab):
    answers = storage_answers(10, default=True)
    everyone = threading.Barrier(10)

    def together(response):
        def answer(request):
            everyone.wait(60)  # fails the test unless all requests run in parallel
            return response

        return answer

    plain = {key: together(response) if key.count("/") > 4 else response for key, response in answers.items()}
    server = lab(plain)
    rows = shell.ok("storage.list", "-o", "json").json()
    assert [(row["name"], row["server"]) for row in rows] == [
        (f"team{n}", f"nas:/team{n}") for n in range(10)
    ]
    assert len(server.seen) == 11


def test_one_failing_storage_does_not_hide_the_others(shell, lab):
    answers = storage_answers(3, default=False)
    answers[f"GET {API}/storages/team1"] = Reply({"code": "UnknownError", "message": "no such volume"}, 500)
    lab(answers)
    ran = shell.ok("storage.list", "-o", "json")
    assert [(row["name"], row["type"]) for row in ran.json()] == [
        ("team0", "nfs"),
        ("team1", "unknown"),
        ("team2", "nfs"),
    ]
    assert "warning: storage team1: " in ran.err and "no such volume" in ran.err


def test_default_storage_is_found_if_the_list_does_not_name_it(shell, lab):
    answers = storage_answers(3)
    everything = answers[f"GET {API}/storages"]

    def listed(request):
        return {"storages": everything["storages"][1:2]} if request.query.get("default") else everything

    server = lab({**answers, f"GET {API}/storages": listed}, "0.18")
    rows = shell.ok("storage.list", "-o", "json").json()
    assert [row["default"] for row in rows] == [False, True, False]
    assert len(server.seen) == 5


# Outages


@pytest.mark.parametrize(
    "status, words", [(502, "HTTP 502 Bad Gateway"), (503, "HTTP 503 Service Unavailable")]
)
@pytest.mark.parametrize("alias", [("lab",), ()])
def test_update_during_an_outage_is_reported_and_changes_nothing(shell, lab, status, words, alias):
    server = lab({})
    server.respond = lambda request: Reply("<html>nginx</html>", status)
    before = (shell.home / "clusters.yaml").read_text()
    ran = shell.inv("cluster.update", *alias)
    assert ran.code == 121 and words in ran.out + ran.err and "try again later" in ran.out + ran.err
    assert (shell.home / "clusters.yaml").read_text() == before


def test_failed_info_request_does_not_mean_an_older_generation(shell, lab):
    info = {"name": "PAI RESTful API", "version": "v1.8.1", "launcherType": "k8s", "authnMethod": "basic"}
    lab({f"GET {API}/info": Reply("", 502), "GET /rest-server/api/v1": info})
    assert shell.inv("cluster.update", "lab").code == 121
    assert "0.18" not in (shell.home / "clusters.yaml").read_text()
