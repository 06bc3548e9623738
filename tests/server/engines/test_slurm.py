"""Jobs on a real Slurm with two nodes: gangs, arrays, limits, and a controller or a node that goes away."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import pytest

from openpai_tasks.errors import PaiError
from openpai_tasks.server.engines.base import Engine, TaskExit, TaskQueued, TaskRunning
from openpai_tasks.server.engines.runner import files, slurm_task
from openpai_tasks.server.engines.slurm import mirror, partitions, programs, reasons, snapshot
from openpai_tasks.server.engines.slurm.engine import SlurmEngine
from openpai_tasks.server.engines.slurm.mirror import QueueMirror
from openpai_tasks.server.engines.slurm.programs import QueueRow, SlurmDown, SlurmRefusal
from openpai_tasks.server.engines.slurm.watcher import TaskWatcher
from openpai_tasks.server.resources import ResourceAmount
from openpai_tasks.server.state.records import Task
from tests.needs import needs
from tests.server.engines.contract import task
from tests.server.engines.slurm_cluster import NODES, SlurmCluster, slurm_cluster, stop
from tests.server.engines.test_runner import prepare
from tests.server.workshop import GRACE, Workshop, machine, role, text, until


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    with slurm_cluster(tmp_path_factory.mktemp("slurm")) as cluster, pytest.MonkeyPatch.context() as patch:
        for name, value in cluster.environment.items():
            patch.setenv(name, value)
        yield cluster


class SlurmWorkshop(Workshop):
    """A server whose tasks run on Slurm."""

    def make_engine(self) -> Engine:
        return SlurmEngine(self.folder / "jobs", self.grace)


@pytest.fixture
def lab(slurm: SlurmCluster, tmp_path: Path) -> Iterator[SlurmWorkshop]:
    made = SlurmWorkshop(tmp_path, machine(), {}, enforce=False, grace=2.0)
    yield made
    made.clean()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The programs of Slurm that the server calls."""
    made: list[str] = []
    real = programs.run

    def run(words: list[str], *arguments: Any) -> str:
        made.append(words[0])
        return real(words, *arguments)

    monkeypatch.setattr(programs, "run", run)
    return made


def test_roles_of_a_job_start_together_and_know_each_other(lab: SlurmWorkshop) -> None:
    worker = 'echo "$PAI_HOST_IP_ps_0 $PAI_PORT_LIST_ps_0_rpc $PAI_TASK_INDEX $SLURMD_NODENAME"'
    server = (
        "import os, socket; port = int(os.environ['PAI_CONTAINER_HOST_rpc_PORT_LIST']);"
        "s = socket.create_server(('', port));"
        "print(*(s.accept()[0].recv(9).decode() for _ in range(2)), os.environ['SLURMD_NODENAME'])"
    )
    call = (
        "import os, socket, time\n"
        "where = (os.environ['PAI_HOST_IP_ps_0'], int(os.environ['PAI_PORT_LIST_ps_0_rpc']))\n"
        "while True:\n"
        "    try: socket.create_connection(where).sendall(b'hi'); break\n"
        "    except OSError: time.sleep(0.1)\n"
    )
    roles = {
        "ps": role(f'python3 -c "{server}"', ports={"rpc": 1}),
        "worker": role(f"{worker}; python3 - <<'END'\n{call}END", instances=2, cpu=2),
    }
    job = lab.run("gang", roles)
    assert job.state == "SUCCEEDED", lab.output(job.key, "all")
    assert lab.output(job.key).startswith("hi hi ")
    first, second, third = lab.tasks(job.key)
    rpc = first.ports["rpc"][0]
    nodes = [
        lab.output(job.key).split()[2],
        *(lab.output(job.key, number=each).split()[3] for each in (1, 2)),
    ]
    assert len(set(nodes)) == NODES and nodes[1] == nodes[2]  # roles with other needs have other nodes
    for number, peer in ((1, second), (2, third)):
        assert lab.output(job.key, number=number).split()[:3] == [first.ip, str(rpc), str(peer.index)]


def test_tasks_on_two_nodes_reach_each_other_by_ssh(lab: SlurmWorkshop, tmp_path: Path) -> None:
    """Each waits for the other's connection to end: a task that ends takes its ssh service with it."""
    command = (
        'ssh main-$((1 - PAI_TASK_INDEX)) "echo \\$SLURMD_NODENAME \\$PAI_HOST_IP_main_1; touch met"\n'
        f"touch {tmp_path}/$PAI_TASK_INDEX\n"
        f"until test -e {tmp_path}/$((1 - PAI_TASK_INDEX)); do sleep 0.05; done\n"
        "test -e met"
    )
    ssh = {"plugin": "ssh", "parameters": {"jobssh": True, "sshbarrier": True}}
    extras = {"com.microsoft.pai.runtimeplugin": [ssh]}
    job = lab.run("mesh", {"main": role(command, instances=2, cpu=4)}, extras=extras)
    assert job.state == "SUCCEEDED", lab.output(job.key, "all")
    there = [lab.output(job.key, number=number).split() for number in (0, 1)]
    assert {node for node, _ in there} == {"node1", "node2"}
    assert {ip for _, ip in there} <= {"127.0.0.1", "127.0.0.2"}


def test_points_of_a_sweep_are_one_array(lab: SlurmWorkshop, slurm: SlurmCluster, calls: list[str]) -> None:
    with lab.database.transaction():
        keys = [lab.submit(f"point-{number}", f"exit {number % 2}") for number in range(30)]
    states = [lab.wait(key).state for key in keys]
    assert states == ["SUCCEEDED", "FAILED"] * 15
    assert calls.count("sbatch") == 1
    until(lambda: not slurm.run("squeue", "-h"))
    lab.close()
    left = lab.folder / "jobs" / ".slurm"
    assert {path.name: oct(path.stat().st_mode)[-3:] for path in left.iterdir()} == {
        "nodes": "600",
        "submitting": "600",  # and nothing of a batch
    }
    lab.open()


def test_many_jobs_are_submitted_mirrored_and_stopped_with_one_call_each(
    lab: SlurmWorkshop, slurm: SlurmCluster, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "MOST_CANCELLED", 100)
    slurm.run("scontrol", "update", "partitionname=main", "state=down")  # jobs wait
    try:
        with lab.database.transaction():
            keys = [lab.submit(f"many-{number}", "true") for number in range(101)]
        until(lambda: "(PartitionDown)" in lab.reasons(keys[-1]).get("FailedScheduling", ""))
        assert calls.count("sbatch") == 1
        tasks, engine = [lab.tasks(key)[0] for key in keys], lab.make_engine()
        engine.poll(tasks)  # learns their ids, so that no files are needed
        moved = [replace(one, folder=lab.folder / "nowhere") for one in tasks]
        calls.clear()
        found = engine.poll(moved)
        assert {type(status) for status in found.values()} == {TaskQueued} and len(found) == 101
        assert calls.count("squeue") < 10  # some are the scheduler's, which looks every second
        engine.close()
        with lab.database.transaction():
            for key in keys:
                lab.state.set_execution(key, "STOP")
        assert {lab.wait(key).state for key in keys} == {"STOPPED"}
        assert calls.count("scancel") == 2  # a hundred at a time
        until(lambda: not slurm.run("squeue", "-h"))
    finally:
        slurm.run("scontrol", "update", "partitionname=main", "state=up")


def test_an_array_that_is_too_large_is_submitted_in_parts(
    lab: SlurmWorkshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, sizes = programs.submit, list[int]()

    def submit(script: str, inherited: list[int]) -> str:
        sizes.append(int((re.findall(r"--array=0-(\d+)", script) or ["0"])[0]) + 1)
        if sizes[-1] > 2:
            raise SlurmRefusal("Slurm: Batch job submission failed: Invalid job array specification")
        return real(script, inherited)

    monkeypatch.setattr(programs, "submit", submit)
    with lab.database.transaction():
        keys = [lab.submit(f"part-{number}", f"echo {number}") for number in range(5)]
    assert [lab.wait(key).state for key in keys] == ["SUCCEEDED"] * 5
    assert [lab.output(key) for key in keys] == [f"{number}\n" for number in range(5)]
    assert sizes == [5, 2, 3, 1, 2]


def test_a_job_waits_while_there_are_no_descriptors_to_submit_it(
    lab: SlurmWorkshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, refused = programs.submit, list[str]()

    def submit(script: str, inherited: list[int]) -> str:
        if len(refused) < 2:
            refused.append(script)
            raise OSError(errno.EMFILE, "Too many open files")
        return real(script, inherited)

    monkeypatch.setattr(programs, "submit", submit)
    key = lab.submit("train", "echo hi")
    assert lab.wait(key).state == "SUCCEEDED" and len(refused) == 2
    assert lab.reasons(key)["StartDelayed"] == "cannot start yet: Too many open files"


def test_a_program_that_cannot_be_run_for_lack_of_descriptors_is_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail() -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr("os.pipe", fail)
    with pytest.raises(SlurmRefusal, match="cannot run squeue: Too many open files"):
        programs.queue()


def test_a_failing_task_is_retried_with_its_exit_code(lab: SlurmWorkshop) -> None:
    job = lab.run("again", "echo why; exit 3", jobRetryCount=1)
    assert (job.state, job.attempt, job.user_retries) == ("FAILED", 1, 1)
    attempt = lab.state.attempts(job.key)[1]
    assert (attempt.user_exit_code, attempt.log_end) == (3, "why")


def test_one_failing_task_ends_the_others(lab: SlurmWorkshop) -> None:
    lab.close()
    lab.grace = GRACE  # for the others to say goodbye
    lab.open()
    up = lab.folder / "up"
    waits = f"trap 'echo bye; exit 0' TERM; touch {up}-$PAI_TASK_INDEX; while :; do sleep 0.1; done"
    fails = f"until test -e {up}-0 && test -e {up}-1; do sleep 0.05; done; exit 7"
    roles = {"bad": role(fails), "good": role(waits, instances=2, cpu=2)}
    job = lab.run("policy", roles)
    assert job.state == "FAILED"
    assert lab.tasks(job.key)[0].user_exit_code == 7
    assert [lab.output(job.key, number=number) for number in (1, 2)] == ["bye\n", "bye\n"]


def test_a_job_that_waits_says_why_and_can_be_stopped(lab: SlurmWorkshop, slurm: SlurmCluster) -> None:
    gate = f"until test -e {lab.folder / 'gate'}; do sleep 0.05; done"
    first = lab.submit("first", {"main": role(gate, instances=2, cpu=4)})
    lab.wait(first, "RUNNING")
    second = lab.submit("second", {"main": role("true", cpu=4)})
    until(lambda: "(Resources)" in lab.reasons(second).get("FailedScheduling", ""))
    lab.state.set_execution(second, "STOP")
    stopped = lab.wait(second)
    assert (stopped.state, stopped.launched) == ("STOPPED", None)
    until(lambda: len(slurm.run("squeue", "-h").splitlines()) == 1)
    (lab.folder / "gate").touch()
    assert lab.wait(first).state == "SUCCEEDED"


def test_a_request_that_no_node_can_meet_fails_with_slurms_reason(lab: SlurmWorkshop) -> None:
    job = lab.run("huge", {"main": role("true", gpu=9)})
    assert job.state == "FAILED"
    assert "could not be started: Slurm: " in lab.tasks(job.key)[0].diagnostics


def test_a_job_cancelled_in_slurm_is_reported_with_the_reason(
    lab: SlurmWorkshop, slurm: SlurmCluster
) -> None:
    key = lab.submit("gone", "trap '' TERM; echo up; while :; do sleep 0.1 || :; done")
    until(lambda: lab.tasks(key) and lab.tasks(key)[0].state == "RUNNING")
    slurm.run("scancel", (lab.tasks(key)[0].folder / "slurm").read_text())
    assert lab.wait(key).state == "FAILED"
    assert "was cancelled in Slurm" in lab.tasks(key)[0].diagnostics


def test_a_lost_node_is_named_and_the_job_is_retried(lab: SlurmWorkshop, slurm: SlurmCluster) -> None:
    gate = f"until test -e {lab.folder / 'gate'}; do sleep 0.05; done"
    key = lab.submit("lost", {"main": role(gate, instances=2, cpu=4)}, jobRetryCount=1)
    lab.wait(key, "RUNNING")
    stop(slurm.folder / "slurmd-node2.pid")
    try:
        slurm.run("scontrol", "update", "nodename=node2", "state=down", "reason=test")
        until(lambda: lab.job(key).attempt == 1)
    finally:
        slurm.run("slurmd", "-N", "node2")  # the node is up again with its registration
    (lab.folder / "gate").touch()
    job = lab.wait(key)
    assert (job.state, job.platform_retries, job.user_retries) == ("SUCCEEDED", 1, 0)
    assert "its node failed" in lab.state.attempts(key)[0].diagnostics
    slurm.wait_for_nodes()


def test_a_task_that_slurm_requeues_does_not_run_twice(lab: SlurmWorkshop, slurm: SlurmCluster) -> None:
    runs = lab.folder / "runs"
    key = lab.submit("again", f"echo run >> {runs}; until test -e {lab.folder / 'gate'}; do sleep 0.05; done")
    lab.wait(key, "RUNNING")
    until(runs.exists)
    slurm.run("scontrol", "requeue", (lab.tasks(key)[0].folder / "slurm").read_text())
    job = lab.wait(key)
    assert job.state == "FAILED" and "was put back into the queue" in lab.tasks(key)[0].diagnostics
    until(lambda: not slurm.run("squeue", "-h"))
    assert runs.read_text() == "run\n"


def test_a_job_that_slurm_requeues_after_its_end_does_not_stay_in_the_queue(
    lab: SlurmWorkshop, slurm: SlurmCluster
) -> None:
    key = lab.submit("short", f"until test -e {lab.folder / 'gate'}; do sleep 0.05; done")
    lab.wait(key, "RUNNING")
    id = (lab.tasks(key)[0].folder / "slurm").read_text()
    (lab.folder / "gate").touch()
    assert lab.wait(key).state == "SUCCEEDED"
    until(lambda: not slurm.run("squeue", "-h"))
    slurm.run("scontrol", "requeue", id)
    assert id in slurm.run("squeue", "-h", "-o", "%A")
    lab.engine._ended.clear()  # as if this server were killed
    for _ in range(2):
        lab.close()
        lab.open()
    assert id not in slurm.run("squeue", "-h", "-o", "%A")


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give up on a program of Slurm sooner."""
    monkeypatch.setattr(programs, "SECONDS", 2.0)
    monkeypatch.setattr(snapshot, "FIRST_SECONDS", 0.1)


@pytest.mark.usefixtures("quickly")
def test_a_server_starts_while_slurm_is_down_if_it_has_answered_before(
    lab: SlurmWorkshop, slurm: SlurmCluster, tmp_path: Path
) -> None:
    trouble = lab.folder / "trouble"
    before = until(lambda: found if (found := lab.engine.capacity()).nodes else None)
    lab.close()
    slurm.stop_controller()
    try:
        lab.open()
        assert lab.engine.capacity() == before
        with pytest.raises(SlurmDown, match="Slurm does not answer"):
            SlurmEngine(tmp_path / "unknown" / "jobs")
        key = lab.submit("early", "echo early")
        until(lambda: "Slurm does not answer" in lab.reasons(key).get("FailedScheduling", ""))
        until(lambda: "Slurm does not answer" in text(trouble))  # it is written a moment later
    finally:
        slurm.start_controller()
    assert lab.wait(key).state == "SUCCEEDED" and lab.output(key) == "early\n"
    until(lambda: not trouble.exists())  # a question that was asked before may fail only now


@pytest.mark.usefixtures("quickly")
def test_jobs_survive_a_controller_that_is_restarted(lab: SlurmWorkshop, slurm: SlurmCluster) -> None:
    gate = f"echo once; until test -e {lab.folder / 'gate'}; do sleep 0.05; done"
    running = lab.submit("running", gate)
    lab.wait(running, "RUNNING")
    slurm.stop_controller()
    try:
        late = lab.submit("late", "echo late")
        until(lambda: "Slurm" in lab.reasons(late).get("FailedScheduling", ""))
        assert lab.job(running).state == "RUNNING"
    finally:
        slurm.start_controller()
    (lab.folder / "gate").touch()
    assert [lab.wait(key).state for key in (running, late)] == ["SUCCEEDED"] * 2
    assert [lab.output(key) for key in (running, late)] == ["once\n", "late\n"]


def test_a_restarted_server_finds_its_jobs_again(lab: SlurmWorkshop) -> None:
    gate = f"echo once; until test -e {lab.folder / 'gate'}; do sleep 0.05; done"
    keys = [lab.submit(f"job-{number}", {"main": role(gate, cpu=3)}) for number in range(4)]
    until(lambda: [lab.job(key).state for key in keys].count("RUNNING") == 2)
    lab.close()
    lab.open()
    (lab.folder / "gate").touch()
    assert [lab.wait(key).state for key in keys] == ["SUCCEEDED"] * 4
    assert [lab.output(key) for key in keys] == ["once\n"] * 4


def test_a_batch_whose_id_was_not_written_is_found_by_its_comment(
    lab: SlurmWorkshop, slurm: SlurmCluster
) -> None:
    slurm.run("scontrol", "update", "partitionname=main", "state=down")  # jobs wait
    try:
        key = lab.submit("lost", "echo once")
        until(lambda: lab.tasks(key) and (lab.tasks(key)[0].folder / "slurm").exists())
        folder = lab.tasks(key)[0].folder
        lab.close()
        (folder / "slurm").unlink()
        with open(folder.parents[2] / ".slurm" / "submitting") as sbatch:  # is still running
            fcntl.flock(sbatch, fcntl.LOCK_SH)
            lab.open()
            until(lambda: "an earlier sbatch has not ended" in lab.reasons(key).get("FailedScheduling", ""))
            assert not (folder / "slurm").exists()
        until(lambda: (folder / "slurm").exists())
        assert len(slurm.run("squeue", "-h", "-t", "PENDING").splitlines()) == 1
    finally:
        slurm.run("scontrol", "update", "partitionname=main", "state=up")
    assert lab.wait(key).state == "SUCCEEDED" and lab.output(key) == "once\n"


def test_a_job_that_comes_into_the_queue_late_runs_nothing(
    lab: SlurmWorkshop, slurm: SlurmCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer of sbatch is lost, and the queue lacks its job, which is submitted again."""
    real, real_run, ids = programs.submit, programs.run, list[str]()

    def submit(script: str, inherited: list[int]) -> str:
        ids.append(real(script, inherited))
        if len(ids) == 1:
            raise SlurmDown("the answer is lost")
        return ids[-1]

    def run(words: list[str], *arguments: Any) -> str:
        is_late = words[0] == "squeue" and len(ids) == 1
        return "" if is_late else real_run(words, *arguments)

    monkeypatch.setattr(programs, "submit", submit)
    monkeypatch.setattr(programs, "run", run)
    monkeypatch.setattr(mirror, "PAUSE_SECONDS", 0.1)
    slurm.run("scontrol", "update", "partitionname=main", "state=down")  # jobs wait
    try:
        key = lab.submit("late", "echo once")
        until(lambda: len(ids) == 2)
        until(lambda: ids[0] not in slurm.run("squeue", "-h", "-o", "%A").split())
    finally:
        slurm.run("scontrol", "update", "partitionname=main", "state=up")
    assert lab.wait(key).state == "SUCCEEDED" and lab.output(key) == "once\n"


def test_a_drained_node_lets_its_tasks_end(lab: SlurmWorkshop, slurm: SlurmCluster) -> None:
    gate = f"until test -e {lab.folder / 'gate'}; do sleep 0.05; done"
    key = lab.submit("drained", {"main": role(gate, instances=2, cpu=4)})
    lab.wait(key, "RUNNING")
    slurm.run("scontrol", "update", "nodename=node2", "state=drain", "reason=test")
    try:
        (lab.folder / "gate").touch()
        assert lab.wait(key).state == "SUCCEEDED"
    finally:
        slurm.run("scontrol", "update", "nodename=node2", "state=resume")
        slurm.wait_for_nodes()


def test_partitions_are_virtual_clusters(lab: SlurmWorkshop) -> None:
    found = lab.engine.capacity().partitions
    assert found == {
        "default": ResourceAmount(8, 40000, 4),
        "main": ResourceAmount(8, 40000, 4),
        "small": ResourceAmount(4, 20000, 2),
        "small:short": ResourceAmount(4, 20000, 2),
    }
    job = lab.run("in-small", "echo $SLURM_JOB_PARTITION", defaults={"virtualCluster": "small"})
    assert lab.output(job.key) == "small\n"


def test_the_runner_finds_the_libraries_of_a_python_that_a_module_provides(
    lab: SlurmWorkshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/python/lib")
    job = lab.run("module", "tr '\\0' '\\n' </proc/$PPID/environ")
    assert "LD_LIBRARY_PATH=/opt/python/lib" in lab.output(job.key).splitlines()


@needs("ps")
def test_secrets_are_neither_in_a_script_nor_on_a_command_line(
    lab: SlurmWorkshop, slurm: SlurmCluster
) -> None:
    gate = f"until test -e {lab.folder / 'gate'}; do sleep 0.05; done"
    key = lab.submit("secret", f"echo <% $secrets.word %> > /dev/null; {gate}", secrets={"word": "hunter22"})
    lab.wait(key, "RUNNING")
    listed = subprocess.run(["ps", "axww", "-o", "args"], capture_output=True, text=True, check=True).stdout
    id = (lab.tasks(key)[0].folder / "slurm").read_text()
    assert "hunter22" not in listed + slurm.run("scontrol", "write", "batch_script", id, "-")
    assert "hunter22" not in slurm.run("scontrol", "show", "job", id)
    (lab.folder / "gate").touch()
    assert lab.wait(key).state == "SUCCEEDED"


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("Priority", "jobs with a higher priority are ahead of it (Priority)"),
        ("QOSMaxGRESPerUser", "it would exceed the limit of GPUs that the quality of service allows"),
        ("AssocGrpCpuLimit", "it would exceed the limit of CPUs that your account allows"),
        ("ReqNodeNotAvail, UnavailableNodes:node1", "are down, drained or reserved (ReqNodeNotAvail)"),
        ("(launch failed requeued held)", "`scontrol release 7` lets it try again"),
        ("SomethingNew", "SomethingNew"),
    ],
)
def test_reasons_are_plain_words(reason: str, words: str) -> None:
    row = QueueRow("7", "PENDING", reason, "2026-11-16T13:00:00", "", "", "")
    shown = reasons.why_waiting(row)
    assert words in shown and shown.endswith("; expected to start at 2026-11-16T13:00:00")


def test_nodes_and_partitions_are_read() -> None:
    text = (
        "a1|10.0.0.1|64|257000|gpu:a100:4(S:0-1)|mixed|gpu*|2-00:00:00\n"
        "a1|10.0.0.1|64|257000|gpu:a100:4(S:0-1)|mixed|all|infinite\n"
        "c1|c1|32|128000|(null)|down*|all|infinite\n"
        "garbage\n"
    )
    found = partitions.parse_nodes(text)
    assert [(node.name, node.address, node.resources.gpu) for node in found.nodes] == [
        ("a1", "10.0.0.1", 4),
        ("c1", "c1", 0),
    ]
    assert found.default == "gpu" and found.partitions["all"].amount == ResourceAmount(64, 257000, 4)
    assert [found.partitions[name].most_minutes for name in ("gpu", "all")] == [2880, None]
    assert partitions.skus(found.partitions["all"]) == {"a100": ResourceAmount(16, 64250, 1)}


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, script: str) -> None:
    """Put a program in front of the one of Slurm."""
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


@pytest.mark.parametrize(
    ("script", "id"),
    [("echo 7", "7"), ("echo 'Welcome to the lab'; echo; echo '7;cluster'", "7"), ("echo 8; echo 7", "7")],
)
def test_the_id_of_a_job_is_found_among_other_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, id: str
) -> None:
    install(tmp_path, monkeypatch, "sbatch", f"cat >/dev/null; {script}")
    assert programs.submit("#!/bin/sh\n") == id


@pytest.mark.parametrize(
    ("script", "line"),
    [
        ("printf 'no id \\377\\n'", "sbatch answered without an id: 'no id \ufffd'"),
        ("echo 'sbatch: error: one' >&2; echo 'sbatch: error: two' >&2; exit 1", "Slurm: two"),
        ("echo 'Unable to contact slurm controller' >&2; exit 1", "Slurm does not answer: Unable to"),
        ("exit 3", "sbatch ended with exit code 3"),
    ],
)
def test_odd_answers_of_sbatch_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, line: str
) -> None:
    install(tmp_path, monkeypatch, "sbatch", f"cat >/dev/null; {script}")
    with pytest.raises(PaiError) as caught:
        programs.submit("#!/bin/sh\n")
    assert line in str(caught.value) and "\n" not in str(caught.value)


def test_an_answer_needs_no_space_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The programs of Slurm end with 0 although they could not write, and no job would be in the queue."""
    install(tmp_path, monkeypatch, "squeue", "echo '7|RUNNING|None|N/A|n1||/lab' || exit 0")
    with open("/dev/full", "w+b") as full:
        monkeypatch.setattr("tempfile.TemporaryFile", lambda: full)
        assert set(programs.queue()) == {"7"}


def test_odd_lines_of_squeue_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = r"--user=x|RUNNING|a|b|c|d|e\n\0377|\n7_1|PEN\0377DING|x|N/A||a|/b|c\n8|RUNNING|None|N/A|no|x"
    install(tmp_path, monkeypatch, "squeue", f"printf %b '{lines}'")
    assert programs.queue() == {"7_1": QueueRow("7_1", "PEN\ufffdDING", "x", "N/A", "", "a", "/b|c")}
    monkeypatch.setattr(programs, "MOST_BYTES", 10)
    with pytest.raises(SlurmRefusal, match="squeue answered with more than"):
        programs.queue()
    long = "9" * 5000
    found = partitions.parse_nodes(f"a|b|{long}|x|gpu:{long}|idle|p*|{long}-{long}:{long}:{long}\n")
    assert found.partitions["p"].amount.memory_mb == 0


def test_all_jobs_are_cancelled_although_some_have_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, "scancel", f'echo "$@" >>{tmp_path}/calls; [ "$2" != 1 ]')
    monkeypatch.setattr(programs, "MOST_CANCELLED", 2)
    programs.cancel({"3", "1", "2"}, "--signal=CONT")
    assert (tmp_path / "calls").read_text() == "--signal=CONT 1 2\n--signal=CONT 3\n"


def test_a_state_that_is_not_known_is_one_of_a_running_job(tmp_path: Path) -> None:
    one = task(tmp_path)
    one.folder.mkdir()
    (one.folder / "slurm").write_text("7")
    mirror = QueueMirror(tmp_path / "trouble", tmp_path)
    mirror.rows = {"7": QueueRow("7", "EXPEDITING", "None", "N/A", "n1", "", str(tmp_path))}
    mirror.refresh = lambda: True  # type: ignore[method-assign]
    assert TaskWatcher(mirror, 1.0, {}).poll([one])[one.uid] == TaskQueued("it is starting on n1")


def row(id: str, state: str, comment: str = "openpai-tasks:a", folder: str = "/lab") -> QueueRow:
    return QueueRow(id, state, "None", "N/A", "n1", comment, folder)


@pytest.fixture
def stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[TaskWatcher, QueueMirror, Task]:
    """A task of the batch ``a`` that is to stop, and a scancel that writes down its arguments."""
    install(tmp_path, monkeypatch, "scancel", f'echo "$@" >>{tmp_path}/calls')
    one = task(tmp_path)
    one.folder.mkdir()
    (one.folder / "slurm.batch").write_text("a JOB batch")
    mirror = QueueMirror(tmp_path / "trouble", tmp_path)
    mirror.refresh = lambda: not mirror.is_pausing  # type: ignore[method-assign]
    return TaskWatcher(mirror, 1.0, {}), mirror, one


def test_a_job_with_the_id_of_a_lost_one_is_not_mistaken_for_it(
    stopped: tuple[TaskWatcher, QueueMirror, Task], monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher, mirror, one = stopped
    monkeypatch.setattr("openpai_tasks.server.engines.slurm.watcher.LATE_SECONDS", 0.0)
    (one.folder / "slurm").write_text("7")
    mirror.rows = {"7": row("7", "PENDING", "openpai-tasks:b")}
    assert "was lost" in watcher.poll([one])[one.uid].reason  # type: ignore[union-attr]
    mirror.rows = {"7_1": row("7_1", "PENDING", "openpai-tasks:b")}
    watcher.stop(one)
    watcher.poll([one])
    assert not (one.folder.parent / "calls").exists()


def test_a_job_of_the_user_with_the_id_of_a_lost_one_is_not_cancelled(
    stopped: tuple[TaskWatcher, QueueMirror, Task],
) -> None:
    watcher, mirror, one = stopped
    (one.folder / "slurm").write_text("7")
    mirror.rows = {"7": row("7", "RUNNING", "(null)", "/home/ann")}
    watcher.stop(one)
    watcher.poll([one])
    assert not (one.folder.parent / "calls").exists()
    assert not mirror.is_of_other(row("7", "RUNNING", "set by the site", str(one.folder.parent)), "a")


def test_a_job_is_lost_only_if_answers_that_follow_each_other_lack_it(
    stopped: tuple[TaskWatcher, QueueMirror, Task], monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher, mirror, one = stopped
    clock = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    (one.folder / "slurm").write_text("7")
    for state in ("PENDING", "RUNNING"):
        for rows in ({}, {"7": row("7", state)}):
            mirror.rows = rows
            assert not isinstance(watcher.poll([one]).get(one.uid), TaskExit)
            clock[0] += 60.0
    mirror.rows = {}
    assert watcher.poll([one]) == {}
    mirror.note_down(SlurmDown("no answer"))
    assert watcher.poll([one]) == {one.uid: TaskQueued("no answer")}
    clock[0] += 60.0
    mirror.note_up()
    assert watcher.poll([one]) == {}
    clock[0] += 60.0
    assert "was lost" in watcher.poll([one])[one.uid].reason  # type: ignore[union-attr]


def test_a_task_that_does_not_end_is_cancelled_although_one_answer_lacks_it(
    stopped: tuple[TaskWatcher, QueueMirror, Task], monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher, mirror, one = stopped
    clock = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    begin(one)
    (one.folder / "slurm").write_text("7")
    mirror.rows = {"7": row("7", "RUNNING")}
    watcher.poll([one])
    watcher.stop(one)
    for rows in ({"7": row("7", "RUNNING")}, {}, {"7": row("7", "RUNNING")}):
        mirror.rows = rows
        watcher.poll([one])
    clock[0] += 60.0
    watcher.poll([one])
    assert (one.folder.parent / "calls").read_text() == "--signal=TERM --batch 7\n7\n"


def begin(one: Task) -> None:
    """Write what the script leaves of a task that runs."""
    (one.folder / "place").write_text(slurm_task.write_place("127.0.0.1", {}, []))
    (one.folder / "started").write_text("9 1000 slurm\n")


def test_a_task_that_began_before_its_id_was_written_is_found_by_its_comment(
    stopped: tuple[TaskWatcher, QueueMirror, Task],
) -> None:
    watcher, mirror, one = stopped
    begin(one)
    mirror.rows = {"7": row("7", "RUNNING")}
    assert isinstance(watcher.poll([one])[one.uid], TaskRunning)
    mirror.rows = {"7": row("7", "CANCELLED")}
    assert "was cancelled in Slurm" in watcher.poll([one])[one.uid].reason  # type: ignore[union-attr]


@pytest.mark.parametrize("seen", [True, False])
def test_a_task_that_ended_before_slurm_requeued_its_job_keeps_its_exit_code(
    stopped: tuple[TaskWatcher, QueueMirror, Task], seen: bool
) -> None:
    """Also if a server starts only after that."""
    watcher, mirror, one = stopped
    begin(one)
    (one.folder / "slurm").write_text("7")
    if seen:
        mirror.rows = {"7": row("7", "RUNNING")}
        assert isinstance(watcher.poll([one])[one.uid], TaskRunning)
    (one.folder / "exit").write_text("code 0\nstopped 0\nbegan 1\nended 2\nlost 0\n")
    mirror.rows = {"7": row("7", "PENDING")}
    *_, end = (watcher.poll([one])[one.uid] for _ in range(1 if seen else 2))
    assert isinstance(end, TaskExit) and (end.user_code, end.platform_code) == (0, None)


def test_a_task_that_waited_for_its_peers_may_be_requeued(
    stopped: tuple[TaskWatcher, QueueMirror, Task],
) -> None:
    watcher, mirror, one = stopped
    begin(one)
    (one.folder / "started").unlink()
    (one.folder / "slurm").write_text("7")
    for state in ("RUNNING", "PENDING", "PENDING"):
        mirror.rows = {"7": row("7", state)}
        assert not isinstance(watcher.poll([one])[one.uid], TaskExit)
    assert not (one.folder.parent / "calls").exists()


def test_tasks_of_a_requeued_job_exchange_their_places_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    one = slurm_task.BatchTask(f"u\tmain\t0\thttp=1\t\t{tmp_path}")
    nodes = {"n1": "10.0.0.1", "n2": "10.0.0.2"}
    for count, node in (("", "n1"), ("1", "n2")):
        monkeypatch.setenv("SLURM_RESTART_COUNT", count)
        monkeypatch.setenv("SLURMD_NODENAME", node)
        (found,) = slurm_task._exchange_places(one, [one], nodes) or ()
        assert found.ip == nodes[node]
        assert slurm_task.read_place((tmp_path / "place").read_text())[0] == nodes[node]


def test_a_task_whose_script_ran_again_is_reported_as_requeued(
    stopped: tuple[TaskWatcher, QueueMirror, Task], monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher, mirror, one = stopped
    monkeypatch.setattr("openpai_tasks.server.engines.slurm.watcher.LATE_SECONDS", 0.0)
    (one.folder / "slurm").write_text("7")
    mirror.rows = {"7": row("7", "COMPLETED")}
    (one.folder / "logs").mkdir()
    (one.folder / "logs/usage").touch()
    os.utime(one.folder / "logs/usage", (1000, 1000))
    end = watcher.poll([one])[one.uid]
    assert isinstance(end, TaskExit)
    assert (end.reason, end.ended) == (reasons.REQUEUED, 1_000_000)  # when it last wrote something


def test_a_script_that_slurm_runs_again_without_its_batch_ends_with_one_line(tmp_path: Path) -> None:
    """It leaves no log. Found by ``inv endure --engine ssh-slurm --seed 61501``."""
    (tmp_path / "a.log").touch()
    with pytest.raises(SystemExit, match="is gone: Slurm has requeued a job that has ended"):
        slurm_task.main(["sh", "1", "pipe", str(tmp_path / "a.tasks"), "0", "batch"])
    assert not list(tmp_path.iterdir())


def test_the_script_ends_with_the_exit_code_even_if_the_server_has_removed_its_file(
    tmp_path: Path,
) -> None:
    """Found by ``inv endure --engine ssh-slurm --seed 240012``."""
    folder = prepare(tmp_path / "main-0-0", "exit 3", SLURM_JOB_ID="7")
    (tmp_path / "a.tasks").write_text(f"array\n\nuid\tmain\t0\thttp=1\t\t{folder}\n")
    program = f"""\
import os, sys
from {files.__package__} import files, slurm_task
files.notify = lambda *_: os.unlink("exit")
sys.exit(slurm_task.main(sys.argv[1:]))"""
    words = ["/bin/sh", "1", str(tmp_path / "pipe"), str(tmp_path / "a.tasks"), "0", "batch"]
    assert subprocess.run([sys.executable, "-c", program, *words]).returncode == 3


def test_a_task_waits_on_its_node_until_the_disk_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by ``inv endure --engine slurm --seed 61001``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("time.sleep", lambda _: None)
    folder, real, failed = tmp_path / "main-0-0", os.open, set[str]()
    (folder / "ssh").mkdir(parents=True)
    (folder / "ssh/config").touch()
    (folder / "environment").write_bytes(b"A=1\0")
    (tmp_path / "a.tasks").write_text(f"array\n\nuid\tmain\t0\tssh=1\t\t{folder}\n")

    def opener(path: str, flags: int, mode: int = 0o600, **where: int) -> int:
        if os.path.abspath(path).startswith(f"{tmp_path}/") and path not in failed:
            failed.add(path)
            raise OSError(errno.EROFS, "Read-only file system")
        return real(path, flags, mode, **where)

    def open_file(path: str, *words: str, **options: str) -> IO[str]:
        return open(path, *words, **options, opener=opener)  # type: ignore[call-overload,no-any-return]

    monkeypatch.setattr(os, "open", opener)
    for module in (slurm_task, files):
        monkeypatch.setattr(module, "open", open_file, raising=False)
    monkeypatch.setattr(slurm_task, "run", lambda *_: 0)
    slurm_task.main(["sh", "1", "pipe", str(tmp_path / "a.tasks"), "0", "batch"])
    assert {"environment", "environment.new", "place.new", "ssh/config.new"} <= failed
    assert b"A=1\0" in (folder / "environment").read_bytes()
    assert b"PAI_CONTAINER_SSH_PORT" in (folder / "environment").read_bytes()


def test_a_stopped_task_is_cancelled_although_the_answer_of_sbatch_was_lost(
    stopped: tuple[TaskWatcher, QueueMirror, Task],
) -> None:
    watcher, mirror, one = stopped
    mirror.rows = {"9": row("9", "PENDING")}
    mirror.note_down(SlurmDown("no answer"))
    watcher.stop(one)
    assert watcher.poll([one]) == {one.uid: TaskQueued("no answer")}
    mirror.note_up()
    assert watcher.poll([one])[one.uid].stopped  # type: ignore[union-attr]
    assert (one.folder.parent / "calls").read_text() == "9\n"
