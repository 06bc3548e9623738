"""Jobs on a real Slurm with two nodes: gangs, arrays, limits, and a controller or a node that goes away."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from openpai_tasks.server.engines.base import Engine
from openpai_tasks.server.engines.slurm import programs, reasons
from openpai_tasks.server.engines.slurm.engine import SlurmEngine
from openpai_tasks.server.engines.slurm.programs import QueueRow
from openpai_tasks.server.resources import ResourceAmount
from tests.server.engines.slurm_cluster import NODES, SlurmCluster, slurm_cluster
from tests.server.workshop import Workshop, machine, role, until


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    with slurm_cluster(tmp_path_factory.mktemp("slurm")) as cluster, pytest.MonkeyPatch.context() as patch:
        for name, value in cluster.environment.items():
            patch.setenv(name, value)
        yield cluster


class SlurmWorkshop(Workshop):
    """A server whose tasks run on Slurm."""

    def make_engine(self) -> Engine:
        return SlurmEngine(self.folder / "jobs", {"home": self.folder / "storage"}, self.grace)


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

    def run(words: list[str], text: str = "") -> str:
        made.append(words[0])
        return real(words, text)

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
        "for _ in range(100):\n"
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
    for number, task in ((1, second), (2, third)):
        assert lab.output(job.key, number=number).split()[:3] == [first.ip, str(rpc), str(task.index)]


def test_points_of_a_sweep_are_one_array(lab: SlurmWorkshop, slurm: SlurmCluster, calls: list[str]) -> None:
    with lab.database.transaction():
        keys = [lab.submit(f"point-{number}", f"exit {number % 2}") for number in range(40)]
    states = [lab.wait(key).state for key in keys]
    assert states == ["SUCCEEDED", "FAILED"] * 20
    assert calls.count("sbatch") == 1  # the scheduler starts a hundred jobs in a turn
    assert calls.count("squeue") < len(keys)
    until(lambda: not list((lab.folder / "jobs" / ".slurm").iterdir()))  # nothing is left of a batch


def test_a_failing_task_is_retried_with_its_exit_code(lab: SlurmWorkshop) -> None:
    job = lab.run("again", "echo why; exit 3", jobRetryCount=1)
    assert (job.state, job.attempt, job.user_retries) == ("FAILED", 1, 1)
    attempt = lab.state.attempts(job.key)[1]
    assert (attempt.user_exit_code, attempt.log_end) == (3, "why")


def test_one_failing_task_ends_the_others(lab: SlurmWorkshop) -> None:
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
        lab.open()
        until(lambda: (folder / "slurm").exists())
        assert len(slurm.run("squeue", "-h").splitlines()) == 1
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
    }
    job = lab.run("in-small", "echo $SLURM_JOB_PARTITION", defaults={"virtualCluster": "small"})
    assert lab.output(job.key) == "small\n"


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
        ("SomethingNew", "SomethingNew"),
    ],
)
def test_reasons_are_plain_words(reason: str, words: str) -> None:
    row = QueueRow("7", "PENDING", reason, "2026-11-16T13:00:00", "", "")
    shown = reasons.why_waiting(row)
    assert words in shown and shown.endswith("; expected to start at 2026-11-16T13:00:00")


def test_nodes_and_partitions_are_read() -> None:
    text = (
        "a1|10.0.0.1|64|257000|gpu:a100:4(S:0-1)|mixed|gpu*\n"
        "a1|10.0.0.1|64|257000|gpu:a100:4(S:0-1)|mixed|all\n"
        "c1|c1|32|128000|(null)|down*|all\n"
        "garbage\n"
    )
    found = programs.parse_nodes(text)
    assert [(node.name, node.address, node.resources.gpu) for node in found.nodes] == [
        ("a1", "10.0.0.1", 4),
        ("c1", "c1", 0),
    ]
    assert found.default == "gpu" and found.partitions["all"] == ResourceAmount(64, 257000, 4)
