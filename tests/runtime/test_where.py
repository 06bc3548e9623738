"""The runtime recognises where it runs, from the variables of each kind of cluster."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys

import pytest

from openpai_tasks import runtime
from openpai_tasks.runtime import BATCH, INTERACTIVE, LOCAL, PeerTask, where
from tests.runtime.programs import RUNTIME, Program

TWO_ROLES = {
    "PAI_JOB_NAME": "me~train-1",
    "PAI_USER_NAME": "me",
    "PAI_TASK_ROLE_LIST": "ps_server,worker",
    "PAI_TASK_ROLE_TASK_COUNT_ps_server": "1",
    "PAI_TASK_ROLE_TASK_COUNT_worker": "2",
    "PAI_TASKS_NUM": "3",
    "PAI_CURRENT_TASK_ROLE_NAME": "worker",
    "PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX": "1",
    "FC_FRAMEWORK_ATTEMPT_ID": "2",
    "FC_TASK_ATTEMPT_ID": "0",
    "PAI_HOST_IP_psserver_0": "10.0.0.1",
    "PAI_HOST_IP_worker_0": "10.0.0.2",
    "PAI_HOST_IP_worker_1": "10.0.0.3",
    "PAI_PORT_LIST_psserver_0_http": "2001",
    "PAI_PORT_LIST_worker_0_http": "2002",
    "PAI_PORT_LIST_worker_0_grpc": "3002,3003",
    "PAI_PORT_LIST_worker_1_http": "2003",
    "PAI_PORT_LIST_worker_1_grpc": "3004,3005",
    "PAI_OUTPUT_DIR": "/mnt/home/me/jobs/train-1/output",
}


def test_laptop_is_local():
    here = where({"USER": "me", "PATH": "/bin"})
    assert (here.place, here.user, here.job, here.output) == (LOCAL, "me", "", None)


def test_kubernetes_job_names_its_task_and_its_peers():
    """Servers reduce the names of roles in the variables with hosts, but not in the list of roles."""
    here = where(TWO_ROLES)
    assert (here.place, here.user, here.job, here.platform) == (BATCH, "me", "train-1", "openpai")
    assert (here.role, here.index, here.attempt, here.count) == ("worker", 1, 2, 3)
    assert here.output == "/mnt/home/me/jobs/train-1/output"
    assert here.peers == {
        "ps_server": (PeerTask("10.0.0.1", {"http": (2001,)}),),
        "worker": (
            PeerTask("10.0.0.2", {"grpc": (3002, 3003), "http": (2002,)}),
            PeerTask("10.0.0.3", {"grpc": (3004, 3005), "http": (2003,)}),
        ),
    }


def test_role_has_its_own_name_even_if_the_server_reduces_it():
    here = where({**TWO_ROLES, "PAI_CURRENT_TASK_ROLE_NAME": "psserver", "PAI_TASK_INDEX": "0"})
    assert here.role == "ps_server" and here.label == "ps_server-1"


def test_yarn_job_has_a_plain_name_and_no_local_output_folder():
    here = where(
        {
            "PAI_JOB_NAME": "train-1",
            "PAI_USER_NAME": "me",
            "PAI_CONTAINER_ID": "container_1",
            "PAI_TASK_ROLE_NAME": "trainer",
            "PAI_TASK_ROLE_INDEX": "1",
            "PAI_HOST_IP_trainer_0": "10.0.0.1",
            "PAI_HOST_IP_trainer_1": "10.0.0.2",
            "PAI_OUTPUT_DIR": "hdfs://10.0.0.9:9000/Output/me/train-1",
        }
    )
    assert (here.place, here.job, here.role, here.index, here.count) == (BATCH, "train-1", "trainer", 1, 2)
    assert here.output is None


def test_yarn_job_may_have_its_owner_in_its_name_and_keeps_the_names_of_roles():
    """The variables of OpenPAI 0.14, in which names of roles are not reduced."""
    here = where(
        {
            "PAI_JOB_NAME": "me~train-1",
            "PAI_USER_NAME": "me",
            "PAI_USERNAME": "me",
            "PAI_CONTAINER_ID": "container_1",
            "PAI_TASK_ROLE_COUNT": "2",
            "PAI_TASK_ROLE_LIST": "ps_server,worker",
            "PAI_TASK_ROLE_TASK_COUNT_ps_server": "1",
            "PAI_TASK_ROLE_TASK_COUNT_worker": "2",
            "PAI_CURRENT_TASK_ROLE_NAME": "ps_server",
            "PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX": "0",
            "PAI_TASK_INDEX": "0",
            "PAI_HOST_IP_ps_server_0": "10.0.0.1",
            "PAI_HOST_IP_worker_0": "10.0.0.2",
            "PAI_HOST_IP_worker_1": "10.0.0.3",
            "PAI_PORT_LIST_ps_server_0_http": "2001",
            "PAI_TASKS_NUM": "3",
            "PAI_OUTPUT_DIR": "hdfs://10.0.0.9:9000/Output/me/train-1",
        }
    )
    assert (here.user, here.job, here.role, here.index, here.count) == ("me", "train-1", "ps_server", 0, 3)
    assert here.peers["ps_server"] == (PeerTask("10.0.0.1", {"http": (2001,)}),)
    assert [peer.host for peer in here.peers["worker"]] == ["10.0.0.2", "10.0.0.3"]


@pytest.mark.parametrize("variable", ["PAI_INTERACTIVE", "SSH_TTY"])
def test_container_to_work_in_is_interactive(variable):
    assert where({**TWO_ROLES, variable: "1"}).place == INTERACTIVE


def test_paddlecloud_trainer_knows_its_number_and_the_parameter_servers():
    here = where(
        {
            "PADDLE_JOB_NAME": "recommend",
            "PADDLE_CLOUD_USERNAME": "me",
            "TRAINERS": "3",
            "PSERVERS": "2",
            "PADDLE_INIT_TRAINER_ID": "2",
            "PADDLE_INIT_PSERVERS": "10.1.0.1,10.1.0.2",
            "PADDLE_INIT_PORT": "7164",
            "TRAINER_PACKAGE": "/pfs/dc/home/me/jobs/recommend",
        }
    )
    assert (here.place, here.user, here.job, here.role) == (BATCH, "me", "recommend", "trainer")
    assert (here.index, here.count, here.output) == (2, 5, "/pfs/dc/home/me/jobs/recommend/output")
    assert here.peers["pserver"][1] == PeerTask("10.1.0.2", {"main": (7164,)})


SLURM = {
    "SLURM_JOB_ID": "17",
    "SLURM_JOB_USER": "me",
    "SLURM_PROCID": "2",
    "SLURM_NTASKS": "4",
    "SLURM_JOB_NODELIST": "gpu[08-09],login",
    "SLURM_TASKS_PER_NODE": "2,1(x2)",
    "SLURM_RESTART_COUNT": "1",
}


def test_slurm_task_knows_the_hosts_of_all_tasks():
    here = where(SLURM)
    assert (here.place, here.user, here.job, here.index, here.attempt) == (BATCH, "me", "17", 2, 1)
    assert [peer.host for peer in here.peers["main"]] == ["gpu08", "gpu08", "gpu09", "login"]
    assert here.count == 4


SRUN = {
    "SLURMD_NODENAME": "node2",
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_USER": "me",
    "SLURM_JOB_NODELIST": "node[1-2]",
    "SLURM_NTASKS": "5",
    "SLURM_PROCID": "1",
    "SLURM_LOCALID": "0",
    "SLURM_STEP_NODELIST": "node[1-2]",
    "SLURM_STEP_NUM_TASKS": "5",
    "SLURM_STEP_TASKS_PER_NODE": "4,1",
    "SLURM_TASKS_PER_NODE": "4,1",
}
"""Some of what ``srun -N2 -n5`` of Slurm 22.05 sets."""


@pytest.mark.parametrize(
    ("distribution", "nodes"),
    [
        ({}, "11112"),
        ({"SLURM_DISTRIBUTION": "block"}, "11112"),
        ({"SLURM_DISTRIBUTION": "cyclic"}, "12111"),
        ({"SLURM_DISTRIBUTION": "cyclic:block"}, "12111"),
        ({"SLURM_DISTRIBUTION": "plane", "SLURM_DIST_PLANESIZE": "2"}, "11211"),
    ],
)
def test_slurm_distributes_tasks_over_nodes_in_different_ways(distribution, nodes):
    """The nodes are those on which Slurm started the tasks."""
    here = where({**SRUN, **distribution})
    assert [peer.host for peer in here.peers["main"]] == [f"node{node}" for node in nodes]
    assert (here.place, here.index, here.count) == (BATCH, 1, 5)


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("", []),
        ("a", ["a"]),
        ("a,b1", ["a", "b1"]),
        ("r[1-2]n[03,10-11]", ["r1n03", "r1n10", "r1n11", "r2n03", "r2n10", "r2n11"]),
    ],
)
def test_lists_of_nodes_are_expanded(text, nodes):
    assert runtime._expand_nodes(text) == nodes


def test_slurm_array_and_shells():
    assert where({**SLURM, "SLURM_ARRAY_JOB_ID": "16", "SLURM_ARRAY_TASK_ID": "3"}).job == "16_3"
    assert where({**SLURM, "SLURM_PTY_PORT": "40001"}).place == INTERACTIVE
    shell = {name: value for name, value in SLURM.items() if name != "SLURM_PROCID"}
    assert where(shell).place == INTERACTIVE


def use(monkeypatch, variables):
    """Let this process run in such a job; what the runtime then sets is undone."""
    gone = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK", "TF_CONFIG")
    for name in gone:
        monkeypatch.setenv(name, "")  # so that it is restored afterwards
        monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def test_chief_is_the_first_worker(monkeypatch):
    assert runtime.is_chief() and not runtime.in_job()
    use(monkeypatch, TWO_ROLES)
    assert runtime.in_job() and not runtime.is_chief()
    monkeypatch.setenv("PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX", "0")
    assert runtime.is_chief()
    monkeypatch.setenv("PAI_CURRENT_TASK_ROLE_NAME", "psserver")
    assert not runtime.is_chief()


def test_ranks_are_those_of_the_workers(monkeypatch):
    """The port is the first of the asked ones, as all tasks have those."""
    use(monkeypatch, {name: value for name, value in TWO_ROLES.items() if "psserver_0_http" not in name})
    monkeypatch.setenv("PAI_PORT_LIST_psserver_0_grpc", "3001")
    found = runtime.init_distributed()
    assert (found.rank, found.world_size, found.master_addr, found.master_port) == (1, 2, "10.0.0.2", 3002)
    values = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK")
    assert [runtime.os.environ[name] for name in values] == ["1", "2", "10.0.0.2", "3002", "0"]
    assert json.loads(runtime.os.environ["TF_CONFIG"]) == {
        "cluster": {"ps": ["10.0.0.1:3001"], "worker": ["10.0.0.2:3002", "10.0.0.3:3004"]},
        "task": {"type": "worker", "index": 1},
    }
    assert runtime.init_distributed() == found  # what is set, by us or by torchrun, is kept


def test_parameter_server_has_no_rank_but_a_place_in_tf_config(monkeypatch):
    use(monkeypatch, {**TWO_ROLES, "PAI_CURRENT_TASK_ROLE_NAME": "psserver"})
    monkeypatch.setenv("PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX", "0")
    assert runtime.init_distributed(port="http").rank == -1
    assert "RANK" not in runtime.os.environ
    assert json.loads(runtime.os.environ["TF_CONFIG"])["task"] == {"type": "ps", "index": 0}


def test_slurm_tasks_of_one_host_have_different_ports_in_tf_config(monkeypatch):
    use(monkeypatch, {**SLURM, "SLURM_LOCALID": "0"})
    for name in ("PAI_JOB_NAME", "PAI_FRAMEWORK_NAME", "PADDLE_JOB_NAME"):
        monkeypatch.delenv(name, raising=False)
    found = runtime.init_distributed()
    assert (found.rank, found.world_size, found.master_addr) == (2, 4, "gpu08")
    workers = json.loads(runtime.os.environ["TF_CONFIG"])["cluster"]["worker"]
    assert workers[0] == f"gpu08:{found.master_port}" and len(set(workers)) == 4


def test_laptop_trains_alone(monkeypatch):
    use(monkeypatch, {})
    found = runtime.init_distributed()
    assert (found.rank, found.world_size, found.master_addr) == (0, 1, "127.0.0.1") and found.master_port
    assert "TF_CONFIG" not in runtime.os.environ


def test_missing_port_and_unknown_host_are_errors(monkeypatch):
    use(monkeypatch, TWO_ROLES)
    with pytest.raises(RuntimeError, match="the job has no port 'rpc'; it has: grpc, http"):
        runtime.init_distributed(port="rpc")
    monkeypatch.setenv("PAI_HOST_IP_worker_0", "")
    with pytest.raises(RuntimeError, match="the host of worker-0 is unknown here"):
        runtime.init_distributed()


def test_runtime_needs_nothing_but_the_standard_library(tmp_path):
    """Isolated from this package and from all others, in a folder with nothing but the file."""
    program = Program(tmp_path, "import runtime; print(runtime.where().job, runtime.in_job())")
    assert program.run() == (0, "train-1 True\n", "")


def test_runtime_is_python_3_8(tmp_path):
    ast.parse(RUNTIME.read_text(), feature_version=(3, 8))
    found = shutil.which("python3.8")
    if found and subprocess.run([found, "-c", "pass"], capture_output=True).returncode == 0:
        program = Program(tmp_path, "import runtime; runtime.log_metric('a', 1); print(runtime.where().job)")
        assert program.run(python=found) == (0, "train-1\n", "")


# The folder that travels


def travelled(tmp_path, text, *flags, **variables):
    """Run a program with the travelling folder on its path."""
    from openpai_tasks.storage.job_files.sources import runtime_files

    for source in runtime_files():
        target = tmp_path / source.name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source.path, target)
    path = {"PYTHONPATH": str(tmp_path / ".pai-runtime"), **variables}
    command = [sys.executable, *flags, "-c", text]
    done = subprocess.run(command, cwd=tmp_path, env=path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_travelling_folder_offers_the_runtime_alone(tmp_path):
    text = "from openpai_tasks import runtime; print(runtime.__file__)"
    assert travelled(tmp_path, text, "-S") == str(tmp_path / ".pai-runtime/openpai_tasks/runtime.py")


def test_installed_package_comes_before_the_travelling_one(tmp_path):
    """An installed package too old to have a runtime gets the one that travels."""
    package = tmp_path / "site" / "openpai_tasks"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("__version__ = '9'\nfrom openpai_tasks.inner import VALUE\n")
    (package / "inner.py").write_text("VALUE = 7\n")
    both = f"{tmp_path}/.pai-runtime:{tmp_path}/site"
    text = "import openpai_tasks as o; from openpai_tasks import runtime; print(o.VALUE, runtime.__file__)"
    assert (
        travelled(tmp_path, text, "-S", PYTHONPATH=both)
        == f"7 {tmp_path}/.pai-runtime/openpai_tasks/runtime.py"
    )
    (package / "runtime.py").write_text("")
    assert travelled(tmp_path, text, "-S", PYTHONPATH=both) == f"7 {package}/runtime.py"
