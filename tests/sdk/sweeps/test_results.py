"""Results of jobs: whose they are, how often they are read, and how they are sorted."""

import dataclasses
import json
import math

import pytest

from openpai_tasks.errors import ConfigError
from openpai_tasks.sdk.sweeps import records
from openpai_tasks.sdk.sweeps import results as results_module
from openpai_tasks.sdk.sweeps.results import (
    JobResult,
    as_number,
    gather_results,
    gather_results_within,
    sort_results,
)
from tests.fuzz import limits
from tests.fuzz.target import Target
from tests.hostile import client_of

API = "/rest-server/api/v2/jobs"
EMBEDDED = "/rest-server/api/v2/embedded"
DETAIL = {"jobStatus": {"username": "bob", "state": "SUCCEEDED"}, "taskRoles": {}}


def test_results_of_another_users_job_are_found(serve, tmp_path):
    server = serve(
        {
            f"GET {API}/bob~train": DETAIL,
            f"GET {API}/bob~train/config": {"extras": {"openpaiSweep": {"point": {"lr": "0.1"}}}},
        }
    )
    [found] = gather_results(client_of(server), ["bob~train"], tmp_path)
    assert found == JobResult("train", "SUCCEEDED", {"lr": 0.1}, {})


def test_a_mark_that_is_no_point_is_ignored(serve, tmp_path):
    config = {"extras": {"openpaiSweep": {"point": ["lr"]}}}
    server = serve({f"GET {API}/bob~train": DETAIL, f"GET {API}/bob~train/config": config})
    assert gather_results(client_of(server), ["bob~train"], tmp_path)[0].point == {}


class Jobs:
    """A server with jobs that printed results; ``jobs`` has the state, attempt and result of each."""

    def __init__(self, serve, **jobs):
        self.jobs = jobs
        self.server = serve({f"GET {API}": self.listed})
        for name in jobs:
            self.server.answers |= {
                f"GET {API}/alice~{name}": lambda request, name=name: self.detail(name),
                f"GET {API}/alice~{name}/config": {"extras": {"openpaiSweep": {"point": {"lr": name[-1]}}}},
                f"GET /log/{name}": lambda request, name=name: json.dumps(self.jobs[name][2]) + "\n",
            }
            for attempt in range(3):
                path = f"{API}/alice~{name}/attempts/{attempt}/taskRoles/main/taskIndex/0/attempts/0/logs"
                log = {"name": "stdout", "uri": f"/log/{name}"}
                self.server.answers[f"GET {path}"] = {"locations": [log]}

    def status(self, name):
        state, attempt, _ = self.jobs[name]
        ended = 2_000 + attempt if state == "SUCCEEDED" else None
        times = {"submissionTime": 1_000, "createdTime": 1_000, "completedTime": ended}
        return {"username": "alice", "state": state, "retries": attempt, "attemptId": attempt, **times}

    def listed(self, request):
        rows = [{"name": name, **self.status(name)} for name in self.jobs]
        wanted = request.query.get("state")
        rows = [row for row in rows if not wanted or row["state"] in wanted.split(",")]
        return {"totalCount": len(rows), "data": rows[: int(request.query.get("limit", 5000))]}

    def detail(self, name):
        task = {"taskIndex": 0, "taskState": self.jobs[name][0], "attemptId": 0}
        return {"jobStatus": self.status(name), "taskRoles": {"main": {"taskStatuses": [task]}}}

    def gather(self, folder, *names):
        """Return the losses, and the paths that were asked for."""
        self.server.seen.clear()
        found = gather_results(client_of(self.server), names or list(self.jobs), folder)
        paths = [request.path.removeprefix(f"{API}/alice~") for request in self.server.seen]
        return [one.result.get("loss") for one in found], paths


@pytest.fixture
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENPAI_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_the_result_of_an_ended_job_is_read_once(serve, own_home, tmp_path):
    jobs = Jobs(serve, t1=("SUCCEEDED", 0, {"loss": 0.5}))
    first, asked = jobs.gather(tmp_path)
    assert first == [0.5] and "/log/t1" in asked
    again, asked = jobs.gather(tmp_path)
    assert again == [0.5] and asked == ["t1"]


def test_a_new_attempt_is_read_anew_and_a_running_job_every_time(serve, own_home, tmp_path):
    jobs = Jobs(serve, t1=("SUCCEEDED", 0, {"loss": 0.5}), t2=("RUNNING", 0, {"loss": 9}))
    assert jobs.gather(tmp_path)[0] == [0.5, 9]
    jobs.jobs = {"t1": ("RUNNING", 1, {"loss": 0.4}), "t2": ("RUNNING", 0, {"loss": 8})}
    assert jobs.gather(tmp_path)[0] == [0.4, 8]
    jobs.jobs = {"t1": ("SUCCEEDED", 1, {"loss": 0.3}), "t2": ("SUCCEEDED", 0, {"loss": 7})}
    assert jobs.gather(tmp_path)[0] == [0.3, 7]


def test_a_damaged_cache_is_ignored_and_replaced(serve, own_home, tmp_path):
    jobs = Jobs(serve, t1=("SUCCEEDED", 0, {"loss": 0.5}))
    jobs.gather(tmp_path)
    (own_home / "cache" / "jobs.db").write_bytes(b"damaged" * 1000)
    assert jobs.gather(tmp_path)[0] == [0.5]
    jobs.gather(tmp_path)
    assert jobs.gather(tmp_path) == ([0.5], ["t1"])


def test_no_result_yet_is_not_kept_for_a_job_that_has_just_ended(serve, own_home, tmp_path, monkeypatch):
    jobs = Jobs(serve, t1=("SUCCEEDED", 0, []))
    monkeypatch.setattr(results_module, "SETTLED_SECONDS", math.inf)
    assert jobs.gather(tmp_path)[0] == [None]
    jobs.jobs["t1"] = ("SUCCEEDED", 0, {"loss": 0.5})
    assert jobs.gather(tmp_path)[0] == [0.5]


def test_the_jobs_of_a_sweep_are_listed_with_one_request(serve, own_home, tmp_path):
    names = [f"s-{number}" for number in range(results_module.LISTED)]
    jobs = Jobs(serve, **{name: ("SUCCEEDED", 0, {"loss": 1}) for name in names})
    record = records.load(tmp_path, "lab", "s")
    for name in (*names, "s-missing"):
        record.add(name, {"lr": name[-1]})
    losses, asked = jobs.gather(tmp_path, "s")
    assert losses == [1] * len(names) + [None] and len(asked) == 1 + 3 * len(names)
    assert jobs.gather(tmp_path, "s") == (losses, [API])


def test_a_large_sweep_is_not_listed_again_once_all_its_jobs_have_ended(
    serve, own_home, tmp_path, monkeypatch
):
    monkeypatch.setattr(results_module, "KEPT_FROM", 8)
    jobs = Jobs(serve, **{f"s-{number}": ("SUCCEEDED", 0, {"loss": number}) for number in range(9)})
    record = records.load(tmp_path, "lab", "s")
    for name in jobs.jobs:
        record.add(name, {"lr": name[-1]})
    jobs.jobs["s-8"] = ("RUNNING", 0, {"loss": 8})
    assert jobs.gather(tmp_path, "s")[0] == jobs.gather(tmp_path, "s")[0] == list(range(9))
    jobs.jobs["s-8"] = ("SUCCEEDED", 0, {"loss": 7})
    assert jobs.gather(tmp_path, "s")[0] == [*range(8), 7]
    jobs.gather(tmp_path, "s")
    assert {request.query["limit"] for request in jobs.server.seen} == {"1"} and len(jobs.server.seen) == 2
    del jobs.jobs["s-0"]  # removed from the cluster
    assert jobs.gather(tmp_path, "s")[0] == [None, *range(1, 8), 7]
    record.add("s-9", {"lr": "9"})
    assert jobs.gather(tmp_path, "s")[0] == [None, *range(1, 8), 7, None]


def test_results_that_the_server_reads_cost_no_request_for_each_job(serve, own_home, tmp_path):
    names = [f"s-{number}" for number in range(results_module.LISTED)]
    jobs = Jobs(serve, **{name: ("SUCCEEDED", 0, {"loss": name}) for name in names})
    *read, none, old, left_out = names
    lines = {name: json.dumps({"loss": float("nan")}) for name in read} | {none: "", old: '{"loss": 1}'}

    def printed(request):
        assert json.loads(request.body) == {"jobs": [f"alice~{name}" for name in names]}
        return {
            "jobs": [
                {"name": f"alice~{name}", "completedTime": 2_000 + (name == old), "line": line}
                for name, line in lines.items()
            ]
        }

    jobs.server.answers[f"POST {EMBEDDED}/printed-results"] = printed
    record = records.load(tmp_path, "lab", "s")
    for name in names:
        record.add(name, {})
    client = client_of(jobs.server)
    client.cluster = dataclasses.replace(client.cluster, info={"engine": "process"})
    found = {one.name: one.result.get("loss") for one in gather_results(client, ["s"], tmp_path)}
    assert all(math.isnan(found[name]) for name in read) and found[none] is None
    assert (found[old], found[left_out]) == (old, left_out)
    asked = {request.path.rpartition("/")[2] for request in jobs.server.seen}
    assert not asked & {f"alice~{name}" for name in read} and {old, left_out} < asked
    assert none not in asked  # its log


def test_a_sweep_from_another_folder_is_listed_with_one_request(serve, own_home, tmp_path):
    jobs = Jobs(serve, **{f"s-{number}": ("SUCCEEDED", 0, {"loss": number}) for number in range(3)})
    for name in jobs.jobs:
        mark = {"name": "s", "point": {"lr": name[-1]}}
        jobs.server.answers[f"GET {API}/alice~{name}/config"] = {"extras": {"openpaiSweep": mark}}
    assert jobs.gather(tmp_path, "s")[0] == [2, 1, 0]
    losses, asked = jobs.gather(tmp_path, "s")
    assert losses == [2, 1, 0] and asked == ["s", API]


def test_results_that_take_too_long_are_counted(serve, own_home, tmp_path, monkeypatch):
    jobs = Jobs(serve, **{f"t{number}": ("SUCCEEDED", 0, {"loss": 1}) for number in range(4)})
    monkeypatch.setattr(results_module, "AT_LEAST", 1)
    found, unread = gather_results_within(-1, client_of(jobs.server), list(jobs.jobs), tmp_path)
    assert [one.result for one in found] == [{"loss": 1}, {}, {}, {}] and unread == 3
    found, unread = gather_results_within(60, client_of(jobs.server), list(jobs.jobs), tmp_path)
    assert [one.result for one in found] == [{"loss": 1}] * 4 and unread == 0


@pytest.mark.parametrize(
    "text, number",
    [("3", 3), ("-3", -3), ("0.10", 0.1), (".5", 0.5), ("1.", 1.0), ("1e-3", 0.001), ("2E5", 2e5), ("0", 0)],
)
def test_text_of_a_number_is_a_number(text, number):
    assert as_number(text) == number and type(as_number(text)) is type(number)


@pytest.mark.parametrize(
    "text", ["007", "1_000", "1e999", "nan", "inf", "", "-", ".", "1 ", "\u0663", "9" * 99]
)
def test_other_text_stays_text(text):
    assert as_number(text) == text


def results(*values):
    return [JobResult(f"job-{number}", "", {}, {"acc": value}) for number, value in enumerate(values)]


def names(found):
    return [one.name.removeprefix("job-") for one in found]


def test_numbers_are_followed_by_texts_and_then_by_everything_else():
    found = results("b", 1, math.nan, "10", None, True, "a", math.inf, [3], 10**400)
    assert "".join(names(sort_results(found, "acc"))) == "7931" + "60" + "2458"
    assert names(sort_results(found, "acc", lowest=True))[:4] == ["1", "3", "9", "7"]
    assert names(sort_results(found, "acc", best=5)) == ["7", "9", "3", "1", "6"]


def test_equal_values_keep_their_order():
    assert names(sort_results(results(1, 2, 1, 2), "acc")) == ["1", "3", "0", "2"]


def test_columns_are_named_as_in_the_table():
    found = [JobResult("a", "X", {"lr": 1}, {"lr": 5}), JobResult("b", "Y", {"lr": 2}, {"lr": 4})]
    assert [one.name for one in sort_results(found, "lr")] == ["b", "a"]
    assert [one.name for one in sort_results(found, "result.lr")] == ["a", "b"]
    assert [one.name for one in sort_results(found, "state")] == ["a", "b"]
    with pytest.raises(ConfigError, match="known: name, state, lr"):
        sort_results(found, "loss")
    assert sort_results([], "loss") == []


@pytest.mark.parametrize("line", [b"\n", b"}\n", b"{ \n"])
def test_result_file_of_many_lines_takes_little_time_and_memory(line):
    text = line * (results_module.LARGEST // len(line))
    assert limits.problem(Target("result", results_module._last_object, ()), text) is None


def test_result_is_the_last_object_in_a_file_also_if_it_is_long():
    long = b'{"a": "' + b"x" * results_module.LAST_LINES + b'"}'
    assert results_module._last_object(b'{"a": 1}\n' + long + b"\n \n")["a"].startswith("x")
    assert results_module._last_object(b'{"a": 1}\n{"a": 2}\nend\n') == {"a": 2}
    assert results_module._last_object(b'{\n"a": 3\n}') == {"a": 3}
