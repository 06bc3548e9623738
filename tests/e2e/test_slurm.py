"""Commands of a user whose embedded cluster runs jobs on a real Slurm."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Shell, make_shell
from tests.processes import kill
from tests.server.engines.slurm_cluster import slurm_cluster
from tests.server.workshop import until

SMALL = ("--cpu", "1", "--mem", "100")


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    with slurm_cluster(tmp_path_factory.mktemp("slurm")) as cluster:
        shell = make_shell(tmp_path_factory.mktemp("user"))
        shell.environment["SLURM_CONF"] = cluster.environment["SLURM_CONF"]
        shell.environment["PATH"] += f":{cluster.environment['PATH']}"
        started = shell.ok("cluster.start", "--engine", "slurm", "-o", "json").json()
        assert started["engine"] == "slurm"
        yield shell
        shell.ok("cluster.stop")


def test_a_job_runs_on_a_node_with_its_sources(shell: Shell) -> None:
    (shell.project / "train.py").write_text("import os; print('on', os.environ['SLURMD_NODENAME'])")
    shell.ok("job.sub", "sleep 1", "-j", "first", *SMALL)
    ran = shell.ok(
        *("job.sub", "python3 train.py", "--sources", "train.py", "--follow", "--after", "first"), *SMALL
    )
    assert ran.out.strip() in ("on node1", "on node2") and "local.engine" not in ran.err


def test_partitions_are_shown_with_their_resources(shell: Shell) -> None:
    rows = shell.ok("cluster.resources", "-o", "json").json()
    assert rows[0]["gpu_types"] == "2 a100, 2 v100"
    shown = {row["virtual_cluster"]: (row["vcores_total"], row["gpus_total"]) for row in rows}
    assert shown == {"default": (8, 4), "main": (8, 4), "small": (4, 2), "small:short": (4, 2)}


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ("--gpu", "9"),
            "asks for 1 CPU, 1024 MB, 9 GPU, the largest node of default has 4 CPU, 20000 MB, 2 GPU",
        ),
        (("--max-time", "2d"), "its time limit is 48:00:00 h, default allows 24:00:00 h"),
        (
            ("--gpu", "1", "-u", "extras.hivedScheduler.taskRoles.main.skuType=h100"),
            "default has no GPUs of type 'h100' (there are: a100, v100)",
        ),
        (
            ("-u", "extras.slurm.options=--account=lab --wrap=id"),
            "extras.slurm.options: the option --wrap of sbatch cannot be set here",
        ),
    ],
)
def test_a_job_that_can_never_run_is_refused(shell: Shell, words: tuple[str, ...], line: str) -> None:
    refused = shell.inv("job.sub", "true", *words)
    assert refused.code != 0 and line in refused.err, refused


def test_a_waiting_job_is_explained_in_slurms_words(shell: Shell) -> None:
    shell.ok("job.sub", "sleep 300", "-j", "large", "--cpu", "4", "--mem", "100", "--instances", "2")
    shell.ok("job.sub", "true", "-j", "behind", "--cpu", "4", "--mem", "100")
    why = until(lambda: "(Resources)" in (text := shell.ok("job.why", "behind").out) and text)
    assert "waits until enough CPUs, memory or GPUs are free (Resources)" in why
    shell.ok("job.sub", "true", "-j", "last", "--after", "behind", *SMALL)
    assert "waits for behind (WAITING)" in shell.ok("job.why", "last").out
    for name in ("behind", "large"):
        shell.ok("job.stop", name)
    assert shell.inv("job.wait", "behind").code != 0
    assert "had to succeed first, and is STOPPED" in shell.ok("job.why", "last").out


def test_commands_and_files_reach_a_task_by_ssh(shell: Shell) -> None:
    shell.ok("job.sub", "echo up; sleep 300", "-j", "open", "--ssh", "--instances", "2", *SMALL)
    (shell.project / "note.txt").write_text("hello")
    until(lambda: "RUNNING" in shell.ok("job.status", "open").out)
    ran = shell.ok("container.run", "open", "--", "echo $SLURMD_NODENAME $PAI_TASK_INDEX")
    assert ran.out.split()[1] == "0" and ran.out.startswith("node")
    shell.ok("container.put", "open", "note.txt")
    assert shell.ok("container.run", "open", "--", "cat note.txt && echo more >>note.txt").out == "hello"
    shell.ok("container.get", "open", "note.txt")
    assert (shell.project / "note.txt").read_text() == "hellomore\n"
    assert shell.ok("container.top", "open", "-o", "json").json()[0]["container"] == "main-0"
    shell.ok("job.stop", "open")
    assert shell.inv("job.wait", "open").code != 0


def test_stopping_a_cluster_whose_server_was_killed_stops_its_jobs_in_slurm(shell: Shell) -> None:
    shell.ok("job.sub", "sleep 300", "-j", "left", *SMALL)
    until(lambda: "RUNNING" in shell.ok("job.status", "left").out)
    kill(shell.ok("cluster.status", "-o", "json").json()["pid"])
    shell.ok("cluster.stop")
    until(lambda: shell.run("squeue", "-h").out == "")  # the task has ended before its job in Slurm
    shell.ok("cluster.start")


def test_a_server_that_was_killed_is_started_again_with_slurm_or_not_at_all(
    shell: Shell, tmp_path: Path
) -> None:
    (tmp_path / "inv").symlink_to(Path(sys.executable).parent / "inv")
    kill(shell.ok("cluster.status", "-o", "json").json()["pid"])
    refused = shell.inv("job.sub", "touch $HOME/ran-here", *SMALL, PATH=str(tmp_path), HOME=str(tmp_path))
    assert refused.code == 121 and refused.err.count("\n") == 1
    assert "the engine slurm cannot be used: there is no sbatch on this machine" in refused.err
    assert "`inv cluster.start --engine process` starts it with another" in refused.err
    ran = shell.ok("job.sub", "echo on $SLURMD_NODENAME", "--follow", *SMALL)
    assert "jobs run as jobs of Slurm\nkept from its last start: local.engine=slurm; " in ran.err
    assert ran.out.strip() in ("on node1", "on node2") and not (tmp_path / "ran-here").exists()
    assert "LAUNCHER          slurm\n" in shell.ok("cluster.info").out


def test_points_of_a_sweep_have_their_own_results(shell: Shell) -> None:
    ran = shell.ok("job.sub", "echo point $x", "-j", "points", "--sweep", "x=1,2,3,4,5,6", *SMALL)
    assert ran.out.count("SUCCEEDED") == 6, ran
