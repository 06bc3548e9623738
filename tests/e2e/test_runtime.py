"""Programs that use the runtime inside jobs, submitted and read with whole commands."""

import json
import os
import random
import signal

import pytest
import yaml

TRAIN = """
import json, os, signal, sys
from openpai_tasks import runtime

ckpt = runtime.checkpoint("state")
path = ckpt.latest()
if path:
    with open(path) as file:
        state = json.load(file)
else:
    state = {"step": 0, "loss": 1.0}
print("starts after step", state["step"], flush=True)
while state["step"] < 6:
    state["step"] += 1
    state["loss"] *= 0.9
    runtime.log_metric("loss", state["loss"], step=state["step"])
    with_text = json.dumps(state)

    def write(path):
        with open(path, "w") as file:
            file.write(with_text)

    ckpt.save(write)
    if state["step"] == int(sys.argv[1]):
        os.kill(os.getpid(), signal.SIGKILL)
print("loss", state["loss"])
"""


@pytest.fixture(scope="module")
def project(cluster):
    """The shared cluster, with a training in its project."""
    (cluster.project / "train.py").write_text(TRAIN)
    return cluster


def outputs(shell, name, kind=""):
    rows = shell.ok("job.outputs", name, "--all", "-o", "json").json()
    return [row["name"] for row in rows if kind in row["name"]]


def metrics(shell, name, tmp_path):
    """The points that the job recorded, by step."""
    shell.ok("job.outputs", name, "--all", "--to", str(tmp_path / name))
    files = sorted((tmp_path / name).glob(".pai/metrics/*"))
    points = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return {point["step"]: point["value"] for point in points}


def test_killed_job_is_retried_and_ends_with_the_numbers_of_an_undisturbed_one(project, tmp_path):
    flags = ("--sources", "train.py", "--follow")
    whole = project.ok("job.sub", "python3 train.py 0", "-j", "undisturbed", *flags)
    assert whole.out.startswith("starts after step 0\n")
    last = whole.out.splitlines()[-1]
    killed = project.ok("job.sub", "python3 train.py 3", "-j", "killed", "--retries", "2", *flags)
    assert "starts after step 3\n" in killed.out and killed.out.splitlines()[-1] == last
    assert metrics(project, "killed", tmp_path) == metrics(project, "undisturbed", tmp_path)
    assert outputs(project, "killed", "metrics") == [
        ".pai/metrics/main-0-0.jsonl",
        ".pai/metrics/main-0-1.jsonl",
    ]
    shown = project.ok("job.outputs", "killed", "-o", "json")
    assert all(one["name"].startswith("tensorboard/") for one in shown.json())  # where it is installed
    assert "files of the runtime left out; --all includes them" in shown.err


OFTEN = """
import array, contextlib, fcntl, json, os, random, sys, termios, time
from openpai_tasks import runtime

ckpt = runtime.checkpoint("state")
path = ckpt.latest()
state = json.load(open(path)) if path else {"step": 0, "loss": 1.0, "random": 7}

def note():
    unread = array.array("i", [0])
    with open(sys.argv[1], "w") as file, contextlib.suppress(OSError):  # of /dev/null
        print(os.getpid(), file=file, flush=True)
        fcntl.ioctl(file, termios.FIONREAD, unread)
        while unread[0] and not os.path.exists(sys.argv[2]):
            time.sleep(0.001)
            fcntl.ioctl(file, termios.FIONREAD, unread)

while state["step"] < 60:
    state["random"] = random.Random(state["random"]).getrandbits(32)
    state["loss"] *= 1 - state["random"] / 2**38
    state["step"] += 1
    runtime.log_metric("loss", state["loss"], step=state["step"])
    ckpt.save(lambda path: json.dump(state, open(path, "w")))
    note()
while not os.path.exists(sys.argv[2]):
    note()
    time.sleep(0.02)
print("loss", state["loss"])
"""


def test_training_killed_five_times_at_random_moments_ends_with_the_numbers_of_an_undisturbed_one(
    project, tmp_path
):
    """The first job is retried twice, which needs no delay, and then resubmitted.

    A pipe, into which the job writes after each step, shows how far it is; it goes on when that was read.
    It ends only after the last kill.
    """
    (project.project / "often.py").write_text(OFTEN)
    steps, over, seed = tmp_path / "steps", tmp_path / "over", random.randrange(1 << 32)
    os.mkfifo(steps)
    chance, pid, jobs = random.Random(seed), b"", ["often"]
    flags = ("--sources", "often.py", "--retries", "2", "--cpu", "1", "--mem", "64m")
    with os.fdopen(os.open(steps, os.O_RDWR), "rb", buffering=0) as pipe:
        project.ok("job.sub", f"python3 often.py {steps} {over}", "-j", "often", *flags)
        for number in range(5):
            if number == 3:
                assert project.inv("job.wait", jobs[-1]).code == 137, seed
                jobs.append(f"often-{number}")
                project.ok("job.resubmit", jobs[-2], "-j", jobs[-1])
            before = pid
            while pid == before:
                pid = pipe.readline()
            for _ in range(chance.randrange(4)):
                pipe.readline()
            for _ in range(chance.randrange(30000)):
                pass  # somewhere within a step
            os.kill(int(pid), signal.SIGKILL)
        over.touch()
        project.ok("job.wait", jobs[-1])
    whole = project.ok("job.sub", f"python3 often.py /dev/null {over}", "-j", "whole", *flags, "--follow")
    assert project.ok("job.logs", jobs[-1]).out.splitlines()[-1] == whole.out.splitlines()[-1], seed
    found = {step: value for job in jobs for step, value in metrics(project, job, tmp_path).items()}
    assert found == metrics(project, "whole", tmp_path), seed


def test_resubmitted_job_goes_on_where_the_one_before_it_ended(project):
    """Also after a job in between that saved nothing; --exact starts afresh."""
    assert project.inv("job.sub", "python3 train.py 2", "-j", "broken", "--sources", "train.py", "-f").code
    again = project.ok("job.resubmit", "broken", "-u", "taskRoles.main.commands.0=exit 1", "-o", "json")
    second = again.json()[0]["name"]
    project.inv("job.wait", second)
    changed = "taskRoles.main.commands.0=python3 train.py 0"
    third = project.ok("job.resubmit", second, "-u", changed, "--follow")
    assert third.out.startswith("starts after step 2\n")
    assert "resumes from checkpoint 2 (state) of job broken; --fresh starts" in third.err
    exact = project.inv("job.resubmit", "broken", "--exact", "--follow")
    assert exact.out.startswith("starts after step 0\n")
    assert "starts fresh, without checkpoint 2 (state) of job broken, which is kept; --resume" in exact.err
    resumed = project.inv("job.resubmit", "broken", "--exact", "--resume", "--follow")
    assert resumed.out.startswith("starts after step 2\n")


def test_resubmitted_job_starts_fresh_if_asked_to(project):
    """Neither the job nor those that it had continued are found, and their checkpoints stay."""
    project.inv("job.sub", "python3 train.py 2", "-j", "first", "--sources", "train.py", "-f")
    project.inv("job.resubmit", "first", "-j", "second", "-f")
    kept = outputs(project, "first")
    fresh = project.inv("job.resubmit", "second", "--fresh", "-j", "third", "-f")
    assert fresh.out.startswith("starts after step 0\n")
    assert "job third starts fresh, without checkpoint " in fresh.err and "--resume" not in fresh.err
    assert "PAI_EARLIER_JOBS" not in project.ok("job.config", "third").out
    assert outputs(project, "first") == kept
    (row,) = project.ok("job.resubmit", "third", "-o", "json").json()
    assert (row["resumes_from"]["job"], row["resumes_from"]["series"]) == ("third", "state")
    (row,) = project.ok("job.resubmit", "third", "--fresh", "-o", "json").json()
    assert row["resumes_from"] is None
    both = project.inv("job.resubmit", "third", "--fresh", "--resume")
    assert (both.code, both.err) == (
        120,
        "error: --fresh and --resume contradict each other: give one of them\n",
    )


def test_resubmission_of_a_job_without_checkpoints_claims_nothing(project):
    project.ok("job.sub", "true", "-j", "plain", "-f")
    ran = project.ok("job.resubmit", "plain", "-o", "json")
    assert "checkpoint" not in ran.err and ran.json()[0]["resumes_from"] is None
    refused = project.inv("job.resubmit", "plain", "--resume")
    reason = "job 'plain' has saved no checkpoint to resume from; leave out --resume"
    assert (refused.code, refused.err) == (120, f"error: {reason}\n")


WRITE = "mkdir -p model && echo 1 >model/a.pt && echo 2 >model/b.txt"


@pytest.mark.parametrize(("end", "code"), [("true", 0), ("exit 9", 9)])
def test_outputs_are_kept_after_success_and_failure(project, end, code):
    name = f"outputs-{code}"
    ran = project.inv("job.sub", f"{WRITE}; {end}", "-j", name, "--outputs", "model/*.pt", "--follow")
    assert ran.code == code and outputs(project, name) == ["model/a.pt"]


def test_outputs_are_kept_when_the_job_is_stopped(project):
    command = (
        f"trap 'echo last >model/last.pt; exit 1' TERM; {WRITE}; echo ready; while :; do sleep 0.1; done"
    )
    project.ok("job.sub", command, "-j", "stopped", "--outputs", "model/*.pt")
    process = project.start("inv", "job.logs", "stopped", "--follow")
    assert process.stdout.readline() == "ready\n"
    project.ok("job.stop", "stopped")
    process.communicate(timeout=100)
    assert outputs(project, "stopped") == ["model/a.pt", "model/last.pt"]


def test_outputs_come_from_the_settings_too_and_stay_in_a_resubmission(project):
    variables = {"INVOKE_OPENPAI_OUTPUTS": "model/*.pt"}
    project.ok("job.sub", WRITE, "-j", "by-setting", "--follow", **variables)
    assert outputs(project, "by-setting") == ["model/a.pt"]
    project.ok("job.resubmit", "by-setting", "-j", "by-setting-2", "--follow")
    assert outputs(project, "by-setting-2") == ["model/a.pt"]


def test_invalid_pattern_is_reported_in_one_line(project):
    ran = project.inv("job.sub", "true", "--outputs", "/etc/*")
    assert ran.code == 120 and "invalid output '/etc/*'" in ran.err and len(ran.err.splitlines()) == 1


MEETING = """
import socket, time
from openpai_tasks import runtime

found = runtime.init_distributed()
if found.rank == 0:
    with socket.create_server((found.master_addr, found.master_port)) as server:
        others = [server.accept()[0] for _ in range(found.world_size - 1)]
        names = sorted(other.makefile().readline().strip() for other in others)
        print("chief", runtime.is_chief(), names)
else:
    while True:
        try:
            with socket.create_connection((found.master_addr, found.master_port)) as connection:
                connection.sendall(f"rank {found.rank} of {found.world_size}\\n".encode())
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
"""


def test_tasks_of_two_roles_meet_at_the_chief(project):
    (project.project / "meet.py").write_text(MEETING)
    roles = ("--role", "chief:cpu=1,mem=64", "--role", "worker:instances=2,cpu=1,mem=64,min-succeeded=-1")
    ran = project.ok("job.sub", "python3 meet.py", "-j", "meeting", "--sources", "meet.py", *roles)
    project.ok("job.wait", "meeting")
    assert (
        "chief True ['rank 1 of 3', 'rank 2 of 3']"
        in project.ok("job.logs", "meeting", "--role", "chief").out
    ), ran


@pytest.mark.parametrize("task", ["container.start", "notebook.serve"])
def test_containers_to_work_in_are_marked(project, task):
    document = yaml.safe_load(project.ok(task, "--preview").out)
    steps = document["deployments"][0]["taskRoles"]["main"]["preCommands"]
    assert "export PAI_INTERACTIVE=1 || exit 1" in steps
