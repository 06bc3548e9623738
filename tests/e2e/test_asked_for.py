"""What a job asks for and the machine does not have, and what it used in the end."""

import logging
import os
from pathlib import Path

import pytest
import requests

from openpai_tasks import submit
from openpai_tasks.protocol.routes import OWN_FIELD
from tests.api.conftest import use_home
from tests.e2e.test_embedded_cluster import facts
from tests.notices import MEMORY, NO_GPU
from tests.processes import kill
from tests.server.workshop import until


@pytest.fixture(autouse=True)
def no_gpu(shell):
    """The server sees only the GPUs of a program that a test writes."""
    shell.environment["CUDA_VISIBLE_DEVICES"] = ""
    shell.environment["PATH"] = f"{shell.project}{os.pathsep}{shell.environment['PATH']}"


def one_gpu(shell):
    program = shell.project / "nvidia-smi"
    program.write_text(f"#!/bin/sh\necho 0, GPU-{os.getpid()}, test, 100\n")
    program.chmod(0o755)
    shell.environment["CUDA_VISIBLE_DEVICES"] = "0"


def warnings(ran):
    return [line for line in ran.err.splitlines() if line.startswith("warning: ")]


def test_what_the_machine_lacks_is_said_once_and_the_job_runs_alone(shell, monkeypatch, caplog):
    ran = shell.ok("job.sub", "true", "-j", "large", "--gpu", "1", "--cpu", "9999", "--follow")
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    has = f"this machine has {cpus} CPU{'s' if cpus > 1 else ''}; the job asks for 9999 and runs alone"
    assert warnings(ran) == [f"warning: {NO_GPU}", f"warning: {has}"]
    events = shell.ok("job.status", "large", "-o", "json").json()["events"]
    assert {one["reason"]: one["message"] for one in events}["ResourcesMissing"] == f"{NO_GPU}; {has}"
    swept = shell.ok("job.sub", "echo {x}", "-j", "many", "--gpu", "1", "--sweep", "x=1,2,3")
    assert warnings(swept) == [f"warning: {NO_GPU}"]
    assert not warnings(shell.ok("job.sub", "true"))
    use_home(monkeypatch, shell.home)
    monkeypatch.chdir(shell.project)
    with caplog.at_level(logging.WARNING, "openpai_tasks"):
        assert submit("true", gpu=1).wait().state == "SUCCEEDED"
    assert NO_GPU in [record.getMessage() for record in caplog.records]


def test_more_gpus_than_there_are_need_an_override(shell):
    one_gpu(shell)
    why = "this machine has 1 GPU; the job asks for 2"
    for wanted in (["--gpu", "2"], ["--gpu", "1", "--instances", "2"]):
        ran = shell.inv("job.sub", "true", *wanted)
        assert ran.code and why in ran.err.splitlines()[-1] and "local.enforce set to false" in ran.err
    assert shell.ok("job.sub", "true", "--gpu", "1").err == ""
    shell.ok("cluster.stop")
    shell.environment["INVOKE_OPENPAI_LOCAL_ENFORCE"] = "false"
    ran = shell.ok("job.sub", "echo $CUDA_VISIBLE_DEVICES", "--gpu", "2", "--follow")
    assert ran.out == "0\n" and warnings(ran) == [f"warning: {why} and runs with what is there"]


def test_enforced_limits_refuse_whatever_is_too_large(shell):
    shell.environment["INVOKE_OPENPAI_LOCAL_ENFORCE"] = "true"
    for flag in ("--gpu", "--cpu"):
        ran = shell.inv("job.sub", "true", flag, "9999")
        assert ran.code and "9999, and local.enforce is true" in ran.err.splitlines()[-1]
    assert shell.ok("job.list", "-o", "json").json() == []


def test_peak_memory_and_cpu_time_of_a_task_are_shown(shell):
    code = "x = b'x' * (60 << 20); sum(range(10**6))"
    shell.ok("job.sub", f'python3 -c "{code}" & wait', "-j", "used", "--follow")
    [task] = shell.ok("job.status", "used", "-o", "json").json()["tasks"]
    assert 60 <= task["peak_memory_mb"] < 200 and 0 < task["cpu_seconds"] < 60
    shown = shell.ok("job.status", "used").out
    assert "PEAK MB  CPU S" in shown and f"  {task['peak_memory_mb']}  " in shown


def memory_limits(shell):
    """Start the cluster, and return what it says of limits of memory."""
    shell.ok("cluster.start")
    return shell.ok("cluster.status", "-o", "json").json()["limits"]


def test_submission_says_if_memory_is_not_limited(shell):
    limits = memory_limits(shell)
    default = shell.ok("job.sub", "cat /proc/self/cgroup", "--follow")
    assert "openpai-" not in default.out and not warnings(default)  # nobody has asked for a limit
    ran = shell.ok("job.sub", "true", "--memoryMB", "64")
    if limits.startswith("memory enforced"):
        assert not warnings(ran)
    else:
        why = limits.removeprefix("memory not enforced: ")
        assert why and warnings(ran) == [f"warning: {MEMORY}{why}"]


@pytest.mark.root
def test_memory_is_limited_where_the_system_allows_it(shell):
    limits = memory_limits(shell)
    if not limits.startswith("memory enforced"):
        pytest.skip(limits)
    too_much = "python3 -c \"x = b'x' * (300 << 20)\""
    ran = shell.inv("job.sub", too_much, "-j", "killed", "--memoryMB", "64", "--follow")
    assert ran.code == 137 and not warnings(ran)
    why = shell.ok("job.why", "killed").out
    cause = "a process was killed for memory: the task reached 64 MB of the 64 MB that it asked for"
    assert why.startswith(f"killed failed: {cause}\n") and "-1200" in why
    assert cause in ran.err and shell.ok("job.list", "-o", "json").json()[0]["cause"] == cause
    limited = shell.ok("job.sub", "cat /proc/self/cgroup", "--memoryMB", "64", "--follow")
    assert "openpai-" in limited.out
    shell.ok("job.sub", f"{too_much} || true", "--memoryMB", "64", "--follow")  # only that process is killed
    assert not groups(limited.out)


@pytest.mark.root
def test_cgroup_of_a_task_goes_with_it_also_if_server_and_runner_are_killed(shell):
    limits = memory_limits(shell)
    if not limits.startswith("memory enforced"):
        pytest.skip(limits)
    shell.ok("job.sub", "cat /proc/self/cgroup; exec sleep 1000", "-j", "long", "--memoryMB", "64")
    folder = until(lambda: next((shell.home / "local" / "jobs").glob("*~long/0/main-0-0"), None))
    log = folder / "logs" / "stdout"
    until(lambda: log.exists() and log.read_text().endswith("\n"))
    [group] = groups(log.read_text())
    assert group.is_dir()
    for pid in (facts(shell)["pid"], int((folder / "started").read_text().split()[0])):
        kill(pid)
    assert "lost its runner" in shell.inv("job.wait", "long").err
    assert not group.exists()


def groups(text):
    """Return the cgroups of tasks in the content of /proc/self/cgroup that exist."""
    paths = [line.split(":", 2)[2] for line in text.splitlines() if "/openpai-" in line]
    mounted = [
        line.split()[4]
        for line in Path("/proc/self/mountinfo").read_text().splitlines()
        if " - cgroup" in line
    ]
    found = {Path(f"{point}{path}") for path in paths for point in mounted}
    return [path for path in sorted(found) if path.is_dir()]


def test_answer_to_a_submission_has_the_warnings(shell):
    shell.ok("job.sub", "true", "-j", "first", "--gpu", "1")
    text = shell.ok("job.config", "first").out.replace("name: first", "name: second", 1)
    uri, token = facts(shell)["uri"], shell.ok("cluster.credentials", "local", "-o", "json").json()["token"]
    answer = requests.post(
        f"{uri}/rest-server/api/v2/jobs",
        data=text,
        headers={"authorization": f"Bearer {token}", "content-type": "text/yaml"},
        timeout=60,
    )
    assert (answer.status_code, answer.json()[OWN_FIELD]["notices"]) == (202, [NO_GPU])
