"""Sweeps from the command line: many jobs, each submitted exactly once."""

import csv
import io
import re
import signal
import time

import pytest
import yaml

from openpai_tasks.backends.http import retries
from openpai_tasks.protocol import JobRequest
from openpai_tasks.sdk.clusters import known
from openpai_tasks.sdk.jobs import submission
from openpai_tasks.sdk.sweeps import grid
from openpai_tasks.sdk.sweeps.sweep import SweepRun, plan_sweep
from openpai_tasks.settings.config import Settings
from tests.forkserver import start_server


def names(shell, keyword):
    listed = shell.ok("job.list", "--keyword", keyword, "--limit", "5000", "-o", "json").json()
    return sorted(job["name"] for job in listed)


def test_grid_runs_and_its_results_form_a_table(cluster):
    command = """printf 'noise\\n{"loss": %s, "note": "a,b"}\\nmore noise\\n' "$(({lr} * bs))" """
    ran = cluster.ok("job.sub", command, "-j", "grid", "--sweep", "lr=2,3", "--sweep", "bs=10,20")
    assert [line.split()[:4] for line in ran.out.splitlines()[1:]] == [
        ["grid-lr-2-bs-10", "2", "10", "SUCCEEDED"],
        ["grid-lr-2-bs-20", "2", "20", "SUCCEEDED"],
        ["grid-lr-3-bs-10", "3", "10", "SUCCEEDED"],
        ["grid-lr-3-bs-20", "3", "20", "SUCCEEDED"],
    ]
    rows = list(csv.DictReader(io.StringIO(cluster.ok("job.results", "grid", "-o", "csv").out)))
    assert [row["loss"] for row in rows] == ["20", "40", "30", "60"]
    assert rows[0] == {
        "name": "grid-lr-2-bs-10",
        "state": "SUCCEEDED",
        "lr": "2",
        "bs": "10",
        "loss": "20",
        "note": "a,b",
    }
    [one] = cluster.ok("job.results", "grid-lr-3-bs-20", "-o", "json").json()
    assert one["point"] == {"lr": 3, "bs": 20} and one["result"]["loss"] == 60


def test_results_are_found_without_the_record_of_this_folder(cluster):
    cluster.ok("job.sub", """echo '{"x": {a}}'""", "-j", "elsewhere", "--sweep", "a=1,2")
    (cluster.project / ".openpai" / "sweeps" / "local" / "elsewhere.jsonl").unlink()
    found = cluster.ok("job.results", "elsewhere", "-o", "json").json()
    assert sorted((row["point"]["a"], row["result"]["x"]) for row in found) == [(1, 1), (2, 2)]
    assert len(cluster.ok("job.results", "elsewhere-*", "-o", "json").json()) == 2
    assert cluster.inv("job.results", "nowhere").code == 122


def test_a_result_may_be_written_to_the_output_folder(cluster):
    command = """echo '{"accuracy": 0.5}' > "$PAI_OUTPUT_DIR/result.json" """
    cluster.ok("job.sub", command, "-j", "writes", "-f")
    [row] = cluster.ok("job.results", "writes", "-o", "json").json()
    assert row["result"] == {"accuracy": 0.5}


def test_one_failure_fails_the_sweep_and_is_named(cluster):
    ran = cluster.inv("job.sub", "exit {code}", "-j", "codes", "--sweep", "code=0,4", "-o", "json")
    assert ran.code == 1 and "1 of 2 jobs of sweep 'codes'" in ran.err and "codes-code-4" in ran.err
    assert [(row["state"], row["exit_code"]) for row in ran.json()] == [("SUCCEEDED", 0), ("FAILED", 4)]


def test_rows_of_a_file_become_jobs_that_are_submitted_once(cluster):
    (cluster.project / "rows.csv").write_text("who,times\nann,1\nbob & co,2\n")
    (cluster.project / "greet.sh").write_text("echo hello $1 x $times\n")
    cluster.ok("job.sub", "sh greet.sh {who}", "-j", "rows", "--sweep-file", "rows.csv", "--src", "greet.sh")
    assert cluster.ok("job.logs", "rows-who-ann-times-1").out == "hello ann x 1\n"
    assert cluster.ok("job.logs", "rows-who-bob_co-times-2").out == "hello bob & co x 2\n"
    again = cluster.ok(
        *("job.sub", "sh greet.sh {who}", "-j", "rows", "--sweep-file", "rows.csv", "--src", "greet.sh")
    )
    assert "2 of 2 jobs of sweep rows exist already" in again.err
    (cluster.project / "greet.sh").write_text("echo changed\n")
    changed = cluster.inv(
        *("job.sub", "sh greet.sh {who}", "-j", "rows", "--sweep-file", "rows.csv", "--src", "greet.sh")
    )
    assert changed.code == 120 and "choose another --job-name" in changed.err


def test_max_parallel_limits_the_running_jobs(cluster):
    marks = cluster.project / "marks"
    marks.mkdir()
    command = f"touch {marks}/{{i}}; ls {marks} | wc -l; sleep 0.3; rm {marks}/{{i}}"
    cluster.ok(
        *("job.sub", command, "-j", "few", "--sweep", "i=1..5", "--max-parallel", "1"),
        *("--cpu", "1", "--mem", "16"),
    )
    seen = [cluster.ok("job.logs", f"few-i-{i}").out.strip() for i in range(1, 6)]
    assert seen == ["1"] * 5


def test_preview_shows_the_first_job_and_sends_nothing(cluster):
    ran = cluster.ok("job.sub", "echo {a}", "-j", "looked-at", "--sweep", "a=1,2", "--preview")
    assert yaml.safe_load(ran.out)["taskRoles"]["main"]["commands"] == ["echo 1"]
    assert "2 jobs" in ran.err and names(cluster, "looked-at") == []


def test_unrelated_job_with_the_same_name_blocks_the_sweep(cluster):
    cluster.ok("job.sub", "true", "-j", "mine-a-1")
    ran = cluster.inv("job.sub", "true", "-j", "mine", "--sweep", "a=1,2")
    assert ran.code == 122 and "mine-a-1" in ran.err and names(cluster, "mine-a-2") == []


def test_the_same_command_without_a_name_is_the_same_sweep(cluster):
    first = cluster.ok("job.sub", "echo nameless {a}", "--sweep", "a=1,2", "-o", "json").json()
    again = cluster.ok("job.sub", "echo nameless {a}", "--sweep", "a=1,2,3", "-o", "json").json()
    assert [row["name"] for row in again[:2]] == [row["name"] for row in first]
    assert len(names(cluster, "echo-nameless")) == 3


def test_a_sweep_that_was_interrupted_submits_only_what_is_missing(cluster):
    gate = cluster.project / "gate"
    command = f"until test -e '{gate}'; do sleep 0.05; done"
    args = ("job.sub", command, "-j", "broken-off", "--sweep", "i=1..30", "--cpu", "1", "--mem", "16")
    process = cluster.start("inv", *args)
    until_submitted(cluster, "broken-off")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    gate.touch()
    assert process.returncode == 130 and "to submit the rest" in err
    before = len(names(cluster, "broken-off"))
    again = cluster.ok(*args, "-o", "json")
    assert {row["state"] for row in again.json()} == {"SUCCEEDED"} and len(again.json()) == 30
    # One more may have been on its way to the cluster when the command ended.
    assert before == 30 or any(f"{count} of 30 jobs" in again.err for count in (before, before + 1))
    assert len(names(cluster, "broken-off")) == 30


def until_submitted(shell, name):
    """Wait until the record of the sweep lists a few submitted jobs."""
    record, deadline = shell.project / ".openpai/sweeps/local" / f"{name}.jsonl", time.monotonic() + 60
    while not (record.exists() and record.read_text().count("\n") > 5):
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def limited(shell, request):
    """An embedded cluster that accepts 12 submissions in two seconds, or as many as given."""
    rate = getattr(request, "param", "12/2s")
    server = start_server("--home", str(shell.home / "local"), "--rate-limit", f"submit={rate}")
    deadline = time.monotonic() + 60
    while not (shell.home / "local" / "server.json").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    yield shell
    server.terminate()
    server.wait(timeout=60)


def test_a_cluster_that_limits_submissions_gets_each_job_exactly_once(limited):
    began = time.monotonic()
    ran = limited.ok("job.sub", "true", "-j", "many", "--sweep", "i=1..26", "--detach", "-o", "json")
    assert time.monotonic() - began > 3  # 26 at 12 in two seconds
    assert len(ran.json()) == 26 and len(names(limited, "many")) == 26


@pytest.mark.parametrize("limited", ["2/9s"], indirect=True)  # in which even a busy machine submits two
def test_a_long_pause_is_respected_and_reported(limited, monkeypatch):
    monkeypatch.setenv("OPENPAI_HOME", str(limited.home))
    client = known.connect(Settings.load(), "local")
    client._policies = retries.NEVER
    packed = submission.pack_files(client, JobRequest("true", image="python:3"), limited.project)
    sweep = plan_sweep(*packed, grid.parse_points(["i=1..3"]))
    messages = []
    run = SweepRun(client, sweep, limited.project, messages.append)
    *_, last = run.until_over(detach=True)
    assert [job.state for job in last] == ["WAITING"] * 3
    assert len(messages) == 1 and re.match(r"the cluster asks for a pause of [1-9] s \(2 of 3", messages[0])


def test_a_stopped_cluster_is_reported_in_one_line_and_a_rerun_submits_the_rest(shell):
    args = ("job.sub", "true", "-j", "hurt", "--sweep", "i=1..120", "--detach", "--cpu", "1")
    shell.ok("cluster.start")
    process = shell.start("inv", *args)
    until_submitted(shell, "hurt")
    process.send_signal(signal.SIGSTOP)  # or it may submit the rest while the cluster is being stopped
    shell.ok("cluster.stop", "--keep-jobs")
    process.send_signal(signal.SIGCONT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 121 and "to submit the rest" in err and "Traceback" not in err
    assert len(err.splitlines()) == 1
    assert len(shell.ok(*args, "-o", "json").json()) == 120
    assert len(names(shell, "hurt")) == 120
