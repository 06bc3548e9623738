"""Jobs that run again at their time limit, and jobs that are stopped because their GPUs are idle."""

import contextlib
import os
import sqlite3
import time

import pytest

from tests.server.workshop import until

SMI = """\
#!/bin/sh
case "$*" in
*utilization*) echo "0, 1, 512" ;;
*=index*) echo "0, GPU-{pid}-limits, test, 40000" ;;
*apps*) ;;
*) echo "GPU-{pid}-limits, 4, Disabled" ;;
esac
"""
TRAIN = """\
import sys, time
from openpai_tasks import runtime

saved = runtime.checkpoint("step.txt")
path = saved.latest()
step = int(open(path).read()) if path else 0
print("begins at", step, flush=True)
while step == 0 and not runtime.should_stop():
    time.sleep(0.05)
if runtime.should_stop():
    saved.save(lambda path: open(path, "w").write(str(step + 1)))
    sys.exit(143)
"""


@pytest.fixture
def gpu(shell):
    """A GPU that nobody uses."""
    program = shell.project / "nvidia-smi"
    program.write_text(SMI.format(pid=os.getpid()))
    program.chmod(0o755)
    shell.environment["PATH"] = f"{shell.project}{os.pathsep}{shell.environment['PATH']}"
    shell.environment["CUDA_VISIBLE_DEVICES"] = "0"


@pytest.mark.timeout(600)
def test_a_training_goes_on_after_its_time_limit_and_an_idle_job_is_stopped(shell, gpu):
    (shell.project / "train.py").write_text(TRAIN)
    shell.ok("job.sub", "sleep 600", "-j", "idle", "--gpu", "1", "--idle-stop", "2s")
    limits = ("--max-time", "18s", "--requeue-on-timeout", "5", "--grace", "9s")
    train = ("python3 train.py", "--sources", "train.py", "-j", "train", *limits, "--follow")
    ran = shell.ok("job.sub", *train, timeout=250)  # Python may need most of 9 seconds to start
    begins = [int(line.split()[-1]) for line in ran.out.splitlines() if line.startswith("begins at")]
    assert begins[0] == 0 < begins[-1] and begins == sorted(begins)  # it never starts over
    assert "job train reached its time limit and runs again: attempt 1" in ran.err
    job = shell.ok("job.status", "train", "-o", "json").json()
    times = f"requeued {job['requeues']} of 5 times at its time limit of 18s"
    assert job["requeues"] >= len(begins) - 1  # the limit may be reached before the program has begun
    assert times in shell.ok("job.status", "train").out
    why = shell.ok("job.why", "train").out
    assert f"it was {times}" in why and "retried" not in why

    assert shell.inv("job.wait", "idle").code == 143
    why = "idle is STOPPED: its GPUs were idle for 2s (--idle-stop)"
    assert shell.ok("job.why", "idle").out.startswith(why)


def test_jobs_with_idle_gpus_are_listed(cluster):
    """The server has recorded it for one of two running jobs."""
    for name in ("quiet", "busy"):
        cluster.ok("job.sub", "sleep 600", "-j", name)
        until(lambda name=name: cluster.ok("job.status", name, "-o", "json").json()["state"] == "RUNNING")
    since = int(1000 * (time.time() - 3660))
    with contextlib.closing(sqlite3.connect(cluster.home / "local/cluster.db", timeout=60)) as database:
        database.execute("UPDATE jobs SET gpus_idle_since = ? WHERE name = 'quiet'", [since])
        database.commit()
    [row] = cluster.ok("job.list", "--idle", "-o", "json").json()
    assert (row["name"], row["gpus_idle_since"]) == ("quiet", since)
    assert "1h 01m" in cluster.ok("job.list", "--idle").out
    assert "its GPUs have been idle for 1h 01m" in cluster.ok("job.status", "quiet").out
    assert "its GPUs have been idle for 1 h 01 min" in cluster.ok("job.why", "quiet").out
    cluster.ok("job.stop", "quiet", "busy", "--yes")
    cluster.inv("job.wait", "quiet", "busy")
    assert cluster.ok("job.list", "--idle", "-o", "json").json() == []
