"""Commands that watch a job wait while the cluster or its logs fail; real processes and real HTTP."""

import contextlib
import signal

import pytest

from openpai_tasks.protocol import JobRequest
from openpai_tasks.sdk.clusters import known
from openpai_tasks.sdk.jobs import submission
from openpai_tasks.sdk.sweeps import grid
from openpai_tasks.sdk.sweeps.sweep import SweepRun, plan_sweep
from openpai_tasks.settings.config import Settings
from tests.faults import switch
from tests.notebook_files import write

SMALL = ("--cpu", "1")
LOST, BACK = "cluster 'local' does not answer: ", "cluster 'local' answers again"
OUTAGES = {
    "gateway": (502, "HTTP 502 Bad Gateway"),
    "database": (True, "connect ECONNREFUSED 127.0.0.1:5432"),
}
OUTPUT = "warning: cannot read the output of main-0: "


def faults(shell, **switches):
    switch(shell.home / "local", **switches)


@pytest.fixture
def calm(cluster):
    """The shared cluster, without faults before and after."""
    faults(cluster)
    yield cluster
    faults(cluster)


class Gate:
    """A file that jobs wait for."""

    def __init__(self, path):
        self.path, self.wait = path, f"while [ ! -e '{path}' ]; do sleep 0.1; done"

    def open(self):
        self.path.touch()


@pytest.fixture
def gate(tmp_path):
    gate = Gate(tmp_path / "gate")
    yield gate
    gate.open()


def submitted(shell, command, *flags):
    return shell.ok("job.sub", command, *flags, *SMALL, "-o", "json").json()[0]["name"]


@contextlib.contextmanager
def running(shell, *words):
    """Run a command, and kill it if it still runs at the end of the block."""
    process = shell.start("inv", *words)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.communicate()


def until(stream, words):
    """Return the lines of a stream up to the line that contains these words."""
    lines = []
    while not lines or words not in lines[-1]:
        lines.append(stream.readline())
        assert lines[-1], lines
    return lines


def end(process):
    out, err = process.communicate(timeout=100)
    return process.returncode, out, err


@pytest.mark.parametrize("outage", OUTAGES)
@pytest.mark.parametrize("words", [("job.wait",), ("job.connect",), ("job.logs", "--follow")])
def test_watching_commands_wait_until_the_cluster_is_back(calm, gate, outage, words):
    name = submitted(calm, f"{gate.wait}; exit 7")
    fault, reason = OUTAGES[outage]
    faults(calm, **{outage: fault})
    with running(calm, *words, name) as process:
        lines = until(process.stderr, LOST)
        faults(calm)
        lines += until(process.stderr, BACK)
        gate.open()
        code, _, err = end(process)
    output = "".join(lines) + err
    assert code == 7 and "Traceback" not in output
    assert f"{LOST}{reason}; retrying for up to 900 s (setting watch-patience)\n" in output
    assert (output.count(LOST), output.count(BACK)) == (1, 1)


def test_following_continues_after_an_outage(calm, gate):
    with running(calm, "job.sub", f"echo one; {gate.wait}; echo two; exit 7", "-f", *SMALL) as process:
        assert process.stdout.readline() == "one\n"
        faults(calm, gateway=504)
        until(process.stderr, LOST)
        faults(calm)
        until(process.stderr, BACK)
        gate.open()
        code, out, err = end(process)
    assert (code, out) == (7, "two\n") and LOST not in err


@pytest.mark.parametrize("outage, code", [("gateway", 121), ("database", 122)])
def test_watching_gives_up_after_its_patience_and_the_job_continues(calm, gate, outage, code):
    name = submitted(calm, gate.wait)
    faults(calm, **{outage: OUTAGES[outage][0]})
    ran = calm.inv("job.wait", name, INVOKE_OPENPAI_WATCH_PATIENCE="2s")
    assert ran.code == code and f"job {name} continues; " in ran.err
    assert ran.err.count(LOST) == 1 and "for up to 2 s" in ran.err
    assert ran.err.splitlines()[-1].startswith("error: ")


def test_wait_that_times_out_during_an_outage_exits_124(calm, gate):
    name = submitted(calm, gate.wait)
    faults(calm, gateway=502)
    ran = calm.inv("job.wait", name, "--timeout", "1")
    assert ran.code == 124 and "timed out: " in ran.err.splitlines()[-1]


def test_single_reads_and_unknown_jobs_are_not_retried(calm):
    assert "no job named" in calm.inv("job.wait", "nobody").err
    faults(calm, database=True)
    ran = calm.inv("job.status", "nobody")
    assert ran.code == 122 and LOST not in ran.err


def test_invalid_patience_is_reported_with_its_source(calm):
    ran = calm.inv("job.list", INVOKE_OPENPAI_WATCH_PATIENCE="soon")
    assert ran.code == 120 and ran.err.count("\n") == 1
    assert ran.err.startswith("error: INVOKE_OPENPAI_WATCH_PATIENCE: watch-patience must be a duration")


def test_sweep_continues_after_an_outage_and_submits_each_job_once(calm, gate):
    sweep = ("job.sub", gate.wait, "-j", "wide", "--sweep", "i=1..3", "--max-parallel", "2", "-o", "json")
    with running(calm, *sweep, *SMALL) as process:
        until(process.stderr, "2 RUNNING")
        faults(calm, gateway=502)
        until(process.stderr, LOST)
        faults(calm)
        until(process.stderr, BACK)
        gate.open()
        code, _, err = end(process)
    assert code == 0, err
    rows = calm.ok("job.list", "--keyword", "wide", "-o", "json").json()
    assert [row["state"] for row in rows] == ["SUCCEEDED"] * 3


def test_container_start_waits_through_an_outage(shell):
    shell.ok("job.sub", "sleep 1000", "-j", "alone", "--cpu", "9999")
    with running(shell, "container.start", "-j", "large", "--no-shell") as process:
        until(process.stderr, "waiting: ")
        faults(shell, database=True)
        until(process.stderr, LOST)
        faults(shell)
        until(process.stderr, BACK)
        shell.ok("job.stop", "large")
        code, _, err = end(process)
    assert code == 143 and "job 'large' is STOPPED" in err, err


def test_a_notebook_is_downloaded_after_an_outage(calm, gate):
    wait = f"import os, time\nwhile not os.path.exists({str(gate.path)!r}): time.sleep(0.1)"
    write(calm.project / "patient.ipynb", wait, "print('done')")
    with running(calm, "notebook.run", "patient.ipynb", "--to", "ipynb", *SMALL) as process:
        until(process.stderr, "cell 1 of 2")
        faults(calm, database=True)
        until(process.stderr, LOST)
        faults(calm)
        until(process.stderr, BACK)
        gate.open()
        code, out, err = end(process)
    assert code == 0 and "patient" in out, err


@pytest.mark.parametrize(
    "fault", [{"logs": 500}, {"log_files": 502}, {"log_files": 404}, {"logs": {"main/0": 500}}]
)
def test_failing_logs_give_a_warning_and_are_read_later(calm, gate, fault):
    faults(calm, **fault)
    with running(calm, "job.sub", f"echo one; {gate.wait}; echo two; exit 3", "-f", *SMALL) as process:
        lines = until(process.stderr, OUTPUT)
        faults(calm)
        assert process.stdout.readline() == "one\n"
        gate.open()
        code, out, err = end(process)
    output = "".join(lines) + err
    assert (code, out) == (3, "two\n")
    assert output.count("warning: ") == 1 and "still following the job" in output and "token=" not in output


@pytest.mark.parametrize("fault", [{"logs": 500}, {"log_files": 503}])
def test_logs_that_never_recover_leave_the_job_its_own_exit_code(calm, fault):
    faults(calm, **fault)
    ran = calm.run(
        "inv", "-d", "job.sub", "echo one; exit 3", "-f", "-j", f"mute-{next(iter(fault))}", *SMALL
    )
    assert (ran.code, ran.out) == (3, "")
    assert ran.err.count(OUTPUT) == 1
    assert "some output of job 'mute-" in ran.err and "`inv job.logs mute-" in ran.err
    assert all(part.startswith("***") for part in ran.err.split("token=")[1:])


@pytest.mark.parametrize(
    "status, message", [(404, "the cluster has no logs of main-0"), (500, "cannot read the output of main-0")]
)
def test_logs_of_the_other_tasks_are_still_read(calm, status, message):
    name, lines = f"parts-{status}", ["[main-1] from 1", "[main-2] from 2"]
    faults(calm, logs={"main/0": status})
    three = ("echo from $PAI_TASK_INDEX", "--instances", "3")
    ran = calm.ok("job.sub", *three, "-f", "-j", name, *SMALL)
    assert sorted(ran.out.splitlines()) == lines and ran.err.count(message) == 1
    ran = calm.inv("job.logs", name)
    assert ran.out.splitlines() == lines and ran.code == (0 if status == 404 else 122)


def test_an_earlier_attempt_can_be_read(calm, tmp_path):
    mark = tmp_path / "mark"
    command = f"[ -e '{mark}' ] && echo second && exit 0; touch '{mark}'; echo first; exit 9"
    name = submitted(calm, command, "--retries", "1")
    calm.ok("job.wait", name)
    assert [calm.ok("job.logs", name, "--attempt", number).out for number in "01"] == ["first\n", "second\n"]
    assert calm.ok("job.logs", name).out == "second\n"
    for wrong in ("2", "-1"):
        ran = calm.inv("job.logs", name, f"--attempt={wrong}")
        assert ran.code == 120 and f"--attempt {wrong}: job" in ran.err and "has attempts 0 to 1" in ran.err
    ran = calm.inv("job.logs", name, "--attempt", "0", "--follow")
    assert ran.code == 120 and "cannot be combined with --follow" in ran.err


def test_sweep_submission_with_a_lost_response_is_not_repeated(calm):
    faults(calm, lost_submit=500, calls=1)
    calm.ok("job.sub", "true", "-j", "lost", "--sweep", "i=1..2", "--detach", *SMALL)
    assert len(calm.ok("job.list", "--keyword", "lost", "-o", "json").json()) == 2


def test_sweep_submission_that_did_not_arrive_is_repeated_after_the_outage(calm, monkeypatch):
    monkeypatch.setenv("OPENPAI_HOME", str(calm.home))
    messages = []
    client = known.connect(Settings.load(), "local", messages.append)
    request = JobRequest("true", "unsent", image="python:3", memory_mb=64, is_memory_asked=False)
    packed = submission.pack_files(client, request, calm.project)
    sweep = plan_sweep(*packed, grid.parse_points(["i=1..1"]), is_named=True)
    run = SweepRun(client, sweep, calm.project, messages.append)
    [name] = sweep.points
    faults(calm, database=True, calls=6)  # the submission, four look-ups, and the first retry
    run._submit_one(name, is_last=True)
    assert [line.partition(": ")[0] for line in messages] == ["cluster 'local' does not answer", BACK]
    assert calm.inv("job.wait", name).code == 0
