"""A laptop whose cluster is a machine with ssh and nothing else."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from openpai_tasks import __version__
from openpai_tasks.settings.home import socket_folder
from tests.e2e.laptop import Laptop, laptop_with
from tests.forkserver import BIN
from tests.ports import free_port
from tests.processes import kill
from tests.server.workshop import until

SMALL = ("--cpu", "1", "--mem", "100", "-a", "box")
PROCESS = ("--engine", "process")
PATH = f"{BIN}:/usr/local/bin:/usr/bin:/bin"


@pytest.fixture(scope="module")
def laptop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laptop]:
    with laptop_with(tmp_path_factory.mktemp("laptop"), f"export PATH={PATH}\n") as found:
        try:
            added = found.shell.ok("cluster.add", "box", "--type", "ssh", "--ssh", "login", *PROCESS)
            assert "jobs on box run as processes, without their image" in added.err
            yield found
        finally:
            found.shell.inv("cluster.delete", "box", "--stop")


def facts(laptop: Laptop) -> Path:
    return laptop.remote / ".openpai/local/server.json"


def test_a_job_with_sources_runs_there_and_its_output_comes_back(laptop: Laptop) -> None:
    shell = laptop.shell
    (shell.project / "train.py").write_text(
        "import os\n"
        "print('in', os.getcwd())\n"
        "open(os.environ['PAI_OUTPUT_DIR'] + '/model', 'w').write('weights')\n"
    )
    ran = shell.ok("job.sub", "python3 train.py", "-j", "first", "--sources", "train.py", "--follow", *SMALL)
    assert ran.out.startswith(f"in {laptop.remote}/.openpai/local/jobs/")
    shell.ok("job.outputs", "first", "--to", "out", "-a", "box")
    assert (shell.project / "out/model").read_text() == "weights"


def test_the_environment_of_the_laptop_stays_there(laptop: Laptop) -> None:
    variables = {"VIRTUAL_ENV": "/laptop/venv", "MINE": "laptop"}
    ran = laptop.shell.ok(
        "job.sub", "echo venv=${VIRTUAL_ENV:-} mine=${MINE:-}", "-j", "env", "--follow", *SMALL, **variables
    )
    assert ran.out == "venv= mine=\n"


def test_containers_and_their_ports_are_reached_through_the_connection(laptop: Laptop) -> None:
    shell, port = laptop.shell, free_port()
    serve = f"echo hello >page; exec python3 -m http.server {port} --bind 127.0.0.1"
    shell.ok("job.sub", serve, "-j", "open", "--ssh", "--ports", f"web={port}", *SMALL)
    until(lambda: "RUNNING" in shell.ok("job.status", "open", "-a", "box").out)
    seen = ("container.run", "open", "-a", "box", "--", "cat page")
    assert until(lambda: shell.inv(*seen).out) == "hello\n"  # it is not there as soon as the job runs
    laptop.check_forward("open", "box")
    shell.ok("job.stop", "open", "-a", "box")


def test_a_lost_connection_is_restored_where_the_path_of_the_server_cannot_be_looked_up_here(
    laptop: Laptop,
) -> None:
    laptop.kill_tunnel()
    (link,) = socket_folder(laptop.shell.home / "ssh" / "login").glob("*.target")
    link.unlink()
    link.symlink_to("/" + "x" * 300)  # as /root/.openpai for an ordinary user
    laptop.shell.ok("job.list", "-a", "box")


def test_a_restarted_server_takes_over_its_running_jobs(laptop: Laptop) -> None:
    shell, go = laptop.shell, laptop.folder / "go"
    waiting = f"echo begun; until [ -e {go} ]; do sleep 0.1; done; echo ended"
    shell.ok("job.sub", waiting, "-j", "long", *SMALL)
    until(lambda: shell.ok("job.logs", "long", "-a", "box").out == "begun\n")
    before = laptop.server()
    assert shell.ok("cluster.restart", "box", "-o", "json").json()["connected"]
    assert laptop.server() != before
    go.touch()
    assert shell.ok("job.logs", "long", "--follow", "-a", "box").out == "begun\nended\n"
    assert shell.ok("job.status", "long", "-a", "box", "-o", "json").json()["retries"] == 0


def test_a_server_of_another_version_is_refused_with_the_command_that_updates_it(laptop: Laptop) -> None:
    shell, before = laptop.shell, facts(laptop).read_text()
    shell.ok("job.list", "-a", "box")
    facts(laptop).write_text(before.replace(__version__, "0.1.0"))
    laptop.kill_tunnel()
    try:
        ran = shell.pai("job.list", "-a", "box")
    finally:
        facts(laptop).write_text(before)
    assert ran.code and ran.err.count("\n") == 1
    assert f"the server there is openpai-tasks 0.1.0, this is {__version__}" in ran.err
    assert "`pai cluster.restart box --install` updates it, and its jobs continue" in ran.err
    shell.ok("job.list", "-a", "box")


def test_an_engine_other_than_that_of_the_running_server_is_refused(laptop: Laptop) -> None:
    ran = laptop.shell.pai("cluster.add", "bad", "--ssh", "other", "--engine", "docker")
    assert ran.code and "the embedded cluster is running with another engine, process" in ran.err, ran
    ran = laptop.shell.pai("cluster.add", "bad", "--ssh", "other", "--engine", "dokcer")
    assert ran.code and "no engine named 'dokcer'" in ran.err, ran
    assert "bad" not in laptop.shell.ok("cluster.list").out


def test_a_login_node_runs_no_jobs_as_processes_unless_asked_to(laptop: Laptop) -> None:
    profile, programs = laptop.remote / ".bash_profile", laptop.folder / "slurm"
    programs.mkdir()
    (programs / "sbatch").write_text("#!/bin/sh\n")
    (programs / "sbatch").chmod(0o755)
    before = profile.read_text()
    profile.write_text(f"export PATH={PATH}:{programs} OPENPAI_HOME={laptop.remote}/fresh\n")
    try:
        ran = laptop.shell.pai("cluster.add", "hpc", "--ssh", "other")
        assert ran.code and "the engine slurm cannot be used" in ran.err, ran
        assert "; add `--engine process` to run jobs on that machine itself" in ran.err
        added = laptop.shell.ok("cluster.add", "hpc", "--ssh", "other", *PROCESS)
        assert "jobs on hpc run as processes" in added.err
        laptop.shell.ok("cluster.delete", "hpc", "--stop")
    finally:
        profile.write_text(before)


def test_jobs_of_a_machine_that_was_rebooted_say_so_and_do_not_run_again(laptop: Laptop) -> None:
    shell, runs = laptop.shell, laptop.folder / "runs"
    shell.ok("job.sub", f"echo run >>{runs}; sleep 600", "-j", "lost", *SMALL)
    until(lambda: runs.exists())
    [task] = (laptop.remote / ".openpai/local/jobs").glob("*lost*/**/started")
    kill(laptop.server())
    laptop.kill_tunnel()
    kill_tree(int(task.read_text().split()[0]))
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    task.write_text(task.read_text().replace(boot, "another"))
    waited = shell.inv("job.wait", "lost", "-a", "box")
    assert waited.code and "was running when the machine was restarted" in waited.err
    assert runs.read_text() == "run\n"


def kill_tree(pid: int) -> None:
    """Kill a runner and its task, as a power cut does."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    os.kill(pid, signal.SIGKILL)
    for child in children:
        os.killpg(int(child), signal.SIGKILL)


def test_the_record_of_the_cluster_names_its_type_and_engine(laptop: Laptop) -> None:
    [row] = [one for one in laptop.shell.ok("cluster.list", "-o", "json").json() if one["alias"] == "box"]
    assert row["type"] == "ssh" and row["uri"] == "ssh://login"
    assert "engine: process" in (laptop.shell.home / "clusters.yaml").read_text()
    assert json.loads(facts(laptop).read_text())["engine"] == "process"
