"""The tables of the program, for servers of every version and with odd answers."""

import json
import re

import pytest

from tests.paddlecloud.conftest import PASSWORD
from tests.scripted import Reply

START, END = "2017-07-26T09:00:00Z", "2017-07-26T10:30:00Z"


def job(name, **status):
    return {"metadata": {"name": f"{name}-trainer", "namespace": "ann"}, "status": status}


JOBS = {
    "items": [
        job("old", active=None, succeeded=2, failed=None, start_time=START, completion_time=END),
        job("young", active=3, succeeded=1, failed=None, start_time=END, completion_time=None),
    ],
    "terminating": ["ending"],
}
PSERVERS = {
    "items": [{"metadata": {"name": "young-pserver"}, "status": {"ready_replicas": None, "replicas": 4}}]
}
NO_PSERVERS = {"items": []}
LISTS = {"GET /api/v1/jobs/": JOBS, "GET /api/v1/pservers/": PSERVERS}


def cells(text):
    return [line.split() for line in text.splitlines()]


def test_jobs_of_kubernetes_are_a_table_without_nil(datacenter):
    there = datacenter({**LISTS, "GET /api/v1/filelist/": {"msg": "", "items": []}})
    ran = there.type("get jobs -a")
    assert (ran.code, ran.err) == (0, "")
    head, young, old, ending = cells(ran.out)
    assert head == ["NAME", "ACTIVE", "SUCC", "FAIL", "START", "COMP", "PS_READY", "PS_TOTAL"]
    assert young == ["young", "3", "1", "0", END, "-", "0", "4"]
    assert old == ["old", "0", "2", "0", START, END, "0", "0"]
    assert ending == ["ending", "Terminating", *["-"] * 6]
    for line in ("get jobs", "jobs"):
        ran = there.type(line)
        assert ran.err == "not listed: 1 ended job (`paddlecloud jobs -a` lists all)\n"
        assert [row[line == "jobs"] for row in cells(ran.out)[1:]] == ["young", "ending"]


def test_jobs_of_the_design_document_are_read(datacenter):
    flat = {"code": 200, "msg": [{"name": "flat", "parallelism": 3, "active": 3, "startTime": START}]}
    ran = datacenter({**LISTS, "GET /api/v1/jobs/": flat}).type("jobs")
    assert cells(ran.out)[0] == ["NAMESPACE", "NAME", "DESIRED", "SUCCESSFUL", "AGE"]
    namespace, name, desired, succeeded, age = cells(ran.out)[1]
    assert [namespace, name, desired, succeeded] == ["ann-example-org", "flat", "3", "0"]
    assert re.fullmatch(r"\d+d", age)


def test_all_jobs_include_those_of_which_only_the_folder_is_left(datacenter):
    names = {"msg": "", "items": ["old", "killed"]}
    ran = datacenter({**LISTS, "GET /api/v1/filelist/": names}).type("jobs -a -o json")
    assert [(row["name"], row["state"]) for row in ran.json()] == [
        ("young", "Running"),
        ("old", "Succeeded"),
        ("ending", "Terminating"),
        ("killed", "Terminated"),
    ]


def test_workers_that_have_no_container_yet_are_listed(datacenter):
    ended = {"terminated": {"exit_code": 137, "reason": "OOMKilled", "message": None}}
    pods = {
        "items": [
            {"metadata": {"name": "a"}, "status": {"phase": "Pending", "container_statuses": None}},
            {
                "metadata": {"name": "b"},
                "status": {"phase": "Failed", "container_statuses": [{"state": ended}]},
            },
            {"metadata": {"name": "c"}, "status": None},
        ]
    }
    ran = datacenter({"GET /api/v1/workers/": pods}).type("get workers young")
    assert cells(ran.out)[1:] == [
        ["a", "Pending", "-", "-", "-"],
        ["b", "Failed", "-", "137", "OOMKilled"],
        ["c", "Unknown", "-", "-", "-"],
    ]


def test_a_package_is_found_by_the_name_of_its_newest_job(datacenter):
    """The path of the design document leads to ``jobs`` if nothing is there."""
    older, newer = (job(name, succeeded=1, start_time=when) for name, when in (("a", START), ("b", END)))
    for one in (older, newer):
        one["metadata"]["annotations"] = {"paddle-job-package": "pkg"}
    output = "/pfs/dc1/home/ann@example.org/jobs/b/output"

    def files(request):
        if request.query.get("path", request.query.get("arg")) != output:
            return {"err": "no such file or directory", "results": None}
        facts = {"Path": output, "ModTime": 0, "Size": 1, "IsDir": False}
        return {"err": "", "results": facts if request.query["method"] == "stat" else [facts]}

    there = datacenter({"GET /api/v1/jobs/": {"items": [older, newer]}, "GET /api/v1/pfs/files": files})
    ran = there.type("pfs ls /pfs/dc1/home/ann@example.org/pkg/output")
    assert (ran.code, ran.out.splitlines()[0]) == (0, f"{output} :")
    assert ran.err == f"/pfs/dc1/home/ann@example.org/pkg/output is {output}\n"
    missing = there.type("pfs ls /pfs/dc1/home/ann@example.org/pkg/other")
    assert missing.code == 1 and missing.err.endswith("/pkg/other: no such file or folder\n")


def test_workers_of_an_unknown_job_are_an_error(datacenter):
    ran = datacenter({**LISTS, "GET /api/v1/workers/": {"items": []}}).type("get workers nothing")
    assert (ran.code, ran.out, ran.err) == (1, "", "error: no job named 'nothing' on dc1\n")


def test_quotas_show_what_is_known(datacenter):
    quota = {
        "items": [
            {"status": {"hard": {"pods": "10", "requests.cpu": "10", "services": "5"}, "used": {"pods": 2}}}
        ]
    }
    found = datacenter({"GET /api/v1/quota/": quota})
    assert cells(found.type("get quota").out)[1:] == [["CPU", "10", "-"], ["MaxParallelism", "10", "2"]]
    assert cells(found.type("get quota --all").out)[-1] == ["services", "5", "-"]


def test_logs_of_the_newest_job_are_shown_with_its_pods(datacenter):
    pods = {"items": [{"metadata": {"name": "p"}, "status": {"phase": "Running", "pod_ip": "10.1.9.3"}}]}
    found = datacenter(
        {**LISTS, "GET /api/v1/workers/": pods, "GET /api/v1/logs/": {"code": 200, "msg": "a\n\x1b[31mb\n"}}
    )
    ran = found.type("logs -n 5")
    assert ran.code == 0 and ran.out.splitlines()[:2] == ["running pod list:  [('Running', '10.1.9.3')]", "a"]
    assert "\x1b" not in ran.out
    assert found.server.seen[-1].query == {"jobname": "young", "n": "5"}


def test_kill_reports_what_the_server_says(datacenter):
    refusal = {"code": 500, "msg": "cannot delete\nthe job"}
    found = datacenter({**LISTS, "DELETE /api/v1/jobs/": refusal})
    ran = found.type("kill young")
    assert ran.code == 1 and ran.err.endswith("answered: cannot delete the job\n")
    assert json.loads(found.server.seen[-1].body) == {"jobname": "young"}


def test_an_existing_name_stops_a_submission_before_anything_is_sent(datacenter):
    found = datacenter(LISTS)
    for name, state in {"young": "(running)", "old": "(succeeded)", "ending": "still terminating"}.items():
        ran = found.type(f"submit pkg -entry true -jobname {name}")
        assert ran.code == 1 and ran.out == "" and state in ran.err
    assert {call.split()[0] for call in found.calls} == {"GET"}


def test_the_next_free_name_is_taken_if_none_is_given(datacenter):
    there = {"items": [job("paddle-cluster-job", active=1, start_time=START)]}
    names = {"msg": "", "items": ["paddle-cluster-job-2"]}
    found = datacenter({"GET /api/v1/jobs/": there, "GET /api/v1/filelist/": names})
    assert found.type("submit pkg -entry true -preview").json()["name"] == "paddle-cluster-job-3"


def test_a_datacenter_without_pfs_starts_nothing(datacenter):
    found = datacenter(
        {"GET /api/v1/jobs/": {"items": []}, "GET /api/v1/filelist/": {"msg": "", "items": []}}
    )
    ran = found.type("submit pkg -entry true")
    assert ran.code == 1 and "Starting" not in ran.out and ran.err.count("\n") == 1
    assert "POST /api/v1/jobs/" not in found.calls


ODD = ["", "null", "[]", "{}", '"x"', "{", "<html>", '{"items": 5}', '{"msg": {"x": 1}}', "[" * 100_000]
ODD += ['{"items": [5, null, {}, {"metadata": []}]}', '{"items": [{"metadata": {"name": {"a": 1}}}]}']
ODD += ['{"items": [{"metadata": {"name": "a"}, "status": [1]}]}', '{"items": [], "terminating": [5]}']


@pytest.mark.parametrize("body", ODD, ids=range(len(ODD)))
@pytest.mark.parametrize(
    "line", ["jobs -a", "get jobs -a", "get workers -a", "get quota -a", "logs", "kill x", "logs x"]
)
def test_odd_answers_end_in_a_table_or_one_line(datacenter, line, body):
    paths = ("jobs", "pservers", "workers", "logs", "quota", "filelist")
    answers = {f"{method} /api/v1/{path}/": Reply(body) for path in paths for method in ("GET", "DELETE")}
    ran = datacenter(answers).type(line)
    assert ran.code in (0, 1) and "Traceback" not in ran.err and "nil" not in ran.out
    assert ran.err.count("\n") <= 1 and (ran.code == 0 or ran.err.startswith("error: "))


def test_a_wrong_password_is_one_line_without_the_password(datacenter):
    refused = Reply({"non_field_errors": ["Unable to log in with provided credentials."]}, 400)
    ran = datacenter({**LISTS, "POST /api-token-auth/": refused}).type("jobs")
    assert ran.code == 1 and ran.err.count("\n") == 1 and str(PASSWORD) not in ran.err
