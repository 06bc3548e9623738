"""An embedded cluster that was killed is started again as it was, or not at all."""

from __future__ import annotations

import inspect
import json
import os
from pathlib import Path
from typing import Any

import pytest

from openpai_tasks import __version__, exits
from openpai_tasks.errors import Unreachable
from openpai_tasks.sdk.clusters import embedded
from openpai_tasks.sdk.clusters.start_options import LocalOptions, start_request
from openpai_tasks.server.state.state import now
from openpai_tasks.settings.config import VARIABLES, Settings
from openpai_tasks.tasks import cluster as tasks
from tests import processes
from tests.conftest import BIN, Shell
from tests.ports import free_port
from tests.server.workshop import until

FLAGS = {"engine": lambda folder: "docker", "port": lambda folder: str(free_port())}
SETTINGS = {
    "local.body-limit": lambda folder: "50",
    "local.enforce": lambda folder: "true",
    "local.engine": lambda folder: "podman",  # the flag counts more
    "local.keep": lambda folder: "30d",
    "local.kubernetes-context": lambda folder: "lab",
    "local.kubernetes-gang": lambda folder: "volcano",
    "local.kubernetes-gpu-resource": lambda folder: "amd.com/gpu",
    "local.kubernetes-gpu-type-label": lambda folder: "gpu",
    "local.kubernetes-kubeconfig": lambda folder: "/lab/config",
    "local.kubernetes-namespace": lambda folder: "lab",
    "local.kubernetes-node-selector": lambda folder: "pool=gpu",
    "local.kubernetes-priority-class": lambda folder: "low",
    "local.kubernetes-priority-classes": lambda folder: "low=batch",
    "local.kubernetes-pull-secrets": lambda folder: "registry",
    "local.kubernetes-service-account": lambda folder: "lab",
    "local.kubernetes-storages": lambda folder: "home=pvc:home",
    "local.kubernetes-tolerations": lambda folder: "gpu:NoSchedule",
    "local.profile": lambda folder: "1.8",
    "local.slurm-high-qos": lambda folder: "urgent",
    "local.slurm-images": lambda folder: "auto",
    "local.slurm-options": lambda folder: "--account=lab",
    "local.ssh": lambda folder: "off",
    "storage.mounts": lambda folder: f"local/scratch={folder}",
}
"""What cannot be the default, for each flag of `cluster.start` and each setting that it reads."""


def facts(shell: Shell) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((shell.home / "local/server.json").read_text())
    return found


def kill(shell: Shell) -> dict[str, Any]:
    """Kill the server, and return its facts."""
    found = facts(shell)
    processes.kill(found["pid"])
    return found


def record(shell: Shell) -> str:
    return (shell.home / "local/start.json").read_text()


@pytest.fixture
def docker(shell: Shell, tmp_path: Path) -> Path:
    """A program that answers like docker without containers, in a PATH with little else."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "docker"
    program.write_text("#!/bin/sh\nexit 0\n")
    program.chmod(0o755)
    shell.environment["PATH"] = f"{folder}{os.pathsep}{BIN}"
    return program


def test_every_option_outlives_a_killed_server(shell: Shell, docker: Path, tmp_path: Path) -> None:
    assert set(FLAGS) == set(inspect.signature(tasks.start.body).parameters) - {
        "c",
        "fresh",
        "option",
        "output",
    }
    assert set(SETTINGS) == {name for name in VARIABLES if name.startswith("local.")} | {"storage.mounts"}
    flags = [word for name, value in FLAGS.items() for word in (f"--{name}", value(tmp_path))]
    variables = {
        f"INVOKE_OPENPAI_{name.upper().replace('-', '_').replace('.', '_')}": value(tmp_path)
        for name, value in SETTINGS.items()
    }
    shell.ok("cluster.start", *flags, **variables)
    options = json.loads(record(shell))["options"]
    built_in = {**LocalOptions().values(), **{name: one.default for name, one in VARIABLES.items()}}
    assert not [name for name, value in options.items() if value in (built_in[name], [])]
    before = kill(shell)
    ran = shell.ok("job.list")
    assert "jobs run in containers of docker\nkept from its last start: local.engine=docker, " in ran.err
    after = facts(shell)
    assert after.pop("pid") != before.pop("pid") and after.pop("started") > before.pop("started")
    assert after == before
    assert "last start" not in shell.ok("job.list").err


def test_a_setting_that_was_changed_since_counts_more_than_the_last_start(shell: Shell, docker: Path) -> None:
    shell.ok("config.set", "-g", "local.profile=1.8")
    shell.ok("cluster.start", "--engine", "docker")
    shell.ok("config.set", "-g", "local.engine=process", "local.profile=0.18")
    assert "local.engine is still docker; it changes to process after" in shell.ok("job.list").err
    kill(shell)
    ran = shell.ok("job.list")
    assert (facts(shell)["engine"], facts(shell)["profile"]) == ("process", "0.18")
    assert "last start" not in ran.err
    refused = shell.inv("cluster.start", "--engine", "docker")
    assert refused.code == 120 and "is running with another engine, process" in refused.err
    shell.ok("cluster.stop")
    shell.ok("cluster.start", "--engine", "docker")
    shell.ok("cluster.stop")
    shell.ok("cluster.start", "--fresh")
    assert facts(shell)["engine"] == "process"
    assert "already running" in shell.ok("cluster.start", "--fresh").err
    refused = shell.inv("cluster.start", "--fresh", INVOKE_OPENPAI_LOCAL_ENFORCE="true")
    assert refused.code == 120 and "local.enforce is still gpu; it changes to true" in refused.err


def test_a_job_that_ended_without_a_server_has_its_own_duration(shell: Shell, tmp_path: Path) -> None:
    go = tmp_path / "go"
    shell.ok("job.sub", f"until [ -e {go} ]; do sleep 0.1; done", "-j", "short")
    shell.ok("job.sub", "true", "-j", "next", "--after", "short")
    until(lambda: list(shell.home.glob("local/jobs/*~short/**/started")))
    kill(shell)
    go.touch()
    until(lambda: list(shell.home.glob("local/jobs/*~short/**/exit")))
    ended = now()
    until(lambda: now() > ended)
    shell.ok("job.wait", "next")
    job = shell.ok("job.status", "short", "-o", "json").json()
    assert job["launched"] <= job["completed"] == job["tasks"][0]["completed"] <= ended
    assert shell.ok("job.status", "next", "-o", "json").json()["launched"] > ended


def test_a_restart_keeps_running_jobs_and_applies_changed_settings(shell: Shell, tmp_path: Path) -> None:
    runs, go = tmp_path / "runs", tmp_path / "go"
    shell.ok("job.sub", f"echo run >>{runs}; until [ -e {go} ]; do sleep 0.1; done", "-j", "long")
    until(runs.exists)
    before = facts(shell)
    shell.ok("config.set", "-g", "local.keep=30d")
    assert "it changes to 30d after `inv cluster.restart`" in shell.ok("job.list").err
    shell.ok("cluster.restart")
    assert facts(shell)["pid"] != before["pid"] and facts(shell)["keep"] == "30d"
    refused = shell.inv("cluster.restart", INVOKE_OPENPAI_LOCAL_ENGINE="podman")
    assert refused.code and "the engine process has 1 unfinished job here" in refused.err
    go.touch()
    shell.ok("job.wait", "long")
    assert runs.read_text() == "run\n"


def test_a_restart_applies_the_default_of_a_setting_that_was_unset(shell: Shell) -> None:
    shell.ok("config.set", "local.enforce=true", "local.body-limit=200", OPENPAI_TRUST=str(shell.project))
    shell.ok("cluster.start", OPENPAI_TRUST=str(shell.project))
    assert json.loads(record(shell))["options"]["enforce"] == "true"
    shell.ok("config.unset", "local.enforce")
    ran = shell.ok("job.list", OPENPAI_TRUST=str(shell.project))
    assert "local.enforce is still true; it changes to gpu after `inv cluster.restart`" in ran.err
    ran = shell.ok("cluster.restart", OPENPAI_TRUST=str(shell.project))
    assert "kept from" not in ran.err
    options = json.loads(record(shell))["options"]
    assert (options["enforce"], options["body_limit"]) == ("gpu", 200)


def test_a_server_of_another_version_is_reported_and_of_another_minor_version_refused(shell: Shell) -> None:
    shell.ok("cluster.start")
    path = shell.home / "local/server.json"
    text, (major, minor, _) = path.read_text(), __version__.split(".")
    path.write_text(text.replace(__version__, f"{major}.{minor}.99"))
    ran = shell.ok("job.list")
    assert f"is still openpai-tasks {major}.{minor}.99, this is {__version__}; `inv cluster." in ran.err
    path.write_text(text.replace(__version__, f"{major}.99.0"))
    ran = shell.inv("job.list")
    assert ran.code and ran.err.count("\n") == 1 and "`inv cluster.restart` updates it" in ran.err
    shell.ok("cluster.restart")
    assert shell.ok("job.list").err == "" and facts(shell)["version"] == __version__


def test_an_engine_that_is_gone_is_not_replaced_by_another(shell: Shell, docker: Path) -> None:
    docker.write_text('#!/bin/sh\n[ "$1" != create ]\n')
    shell.ok("cluster.start", "--engine", "docker")
    shell.ok("job.sub", "touch ran", "-j", "waits", "--retries", "1000")  # for its container
    kill(shell)
    docker.unlink()
    refused = shell.inv("job.sub", "touch ran")
    assert refused.code == 121 and refused.err.count("\n") == 1
    assert "the engine docker cannot be used: there is no docker on this machine" in refused.err
    assert "`inv cluster.start --engine process` starts it with another" in refused.err
    refused = shell.inv("cluster.start", "--engine", "process")
    assert refused.code == 121 and "the engine docker has 1 unfinished job here" in refused.err
    assert "`inv cluster.stop` stops the jobs" in refused.err
    refused = shell.inv("cluster.stop")
    assert refused.code == 121 and "`inv cluster.stop --force` gives its jobs up" in refused.err
    assert "its jobs are given up" in shell.ok("cluster.stop", "--force").err
    shell.ok("cluster.start", "--engine", "process")
    assert shell.ok("job.status", "waits", "-o", "json").json()["state"] == "STOPPED"
    assert len(shell.ok("job.list", "-o", "json").json()) == 1


def test_jobs_that_run_are_not_left_to_another_engine(shell: Shell, docker: Path) -> None:
    shell.environment["PATH"] += f":{os.environ['PATH']}"
    shell.ok("job.sub", "sleep 300", "-j", "runs")
    shell.ok("cluster.stop", "--keep-jobs")
    before = record(shell)
    refused = shell.inv("cluster.start", "--engine", "docker", "--port", str(free_port()))
    assert refused.code == 121 and refused.err.count("\n") == 1
    assert "`inv cluster.start --engine process` continues" in refused.err
    assert record(shell) == before
    until(lambda: "RUNNING" in shell.ok("job.status", "runs").out)


def test_a_failed_start_leaves_everything_as_it_was(shell: Shell, docker: Path) -> None:
    docker.unlink()
    assert shell.inv("job.list", INVOKE_OPENPAI_LOCAL_ENGINE="docker").code == 121
    assert shell.inv("cluster.start", "--engine", "docker").code == 121
    assert not shell.home.exists()
    shell.ok("cluster.start")
    shell.ok("cluster.stop")
    folder = shell.home / "local"
    before = {path.name for path in folder.iterdir()}, record(shell), (folder / "port").read_text()
    refused = shell.inv("cluster.start", "--engine", "docker", "--port", str(free_port()))
    assert refused.code == 121 and f"(see {folder}/server.log)" in refused.err
    assert {path.name for path in folder.iterdir()} - {"cluster.db-wal", "cluster.db-shm"} == before[0]
    assert before[1:] == (record(shell), (folder / "port").read_text())
    shell.ok("job.list")
    assert facts(shell)["engine"] == "process"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--option", "kubeconfig"), "--option needs NAME=VALUE, got 'kubeconfig'"),
        (
            ("--engine", "kubernetes", "--option", "namspace=lab"),
            "--option: no engine has an option 'namspace', did you mean 'namespace'?",
        ),
        (
            ("--option", "kubernetes-namespace=lab"),
            "--option: the engine process has no option 'kubernetes-namespace'",
        ),
    ],
)
def test_an_option_that_the_engine_does_not_have_is_refused(shell, words, line):
    refused = shell.inv("cluster.start", *words)
    assert refused.code == exits.BAD_INPUT and refused.err == f"error: {line}\n"
    assert not (shell.home / "local").exists()


def test_an_option_of_another_engine_is_refused_while_the_server_runs(shell):
    shell.ok("cluster.start", "--engine", "process")
    refused = shell.inv("cluster.start", "--option", "kubernetes-namespace=lab")
    line = "--option: the engine process has no option 'kubernetes-namespace'"
    assert refused.code == exits.BAD_INPUT and refused.err == f"error: {line}\n"


def test_a_home_whose_path_is_too_long_for_the_database_is_reported(shell: Shell, tmp_path: Path) -> None:
    home = tmp_path.joinpath(*["d" * 100] * 5)
    ran = shell.inv("cluster.start", OPENPAI_HOME=str(home))
    length = len(f"{home}/local")
    reason = f"the path of its folder has {length} bytes, and SQLite can use 493 at most: set OPENPAI_HOME to"
    assert ran.code == 121 and reason in ran.err and ran.err.count("\n") == 1, ran
    longest = str(home)[: 493 - len("/local")]
    shell.ok("cluster.start", OPENPAI_HOME=longest)
    shell.ok("cluster.stop", OPENPAI_HOME=longest)


def test_a_command_whose_server_ends_meanwhile_says_how_to_start_it_again(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENPAI_HOME", str(shell.home))
    shell.ok("cluster.start")
    client = embedded.connect(start_request(Settings.load()), print)
    kill(shell)
    with pytest.raises(Unreachable, match=r"refused \(it has ended; `pai cluster.start` starts it again\)$"):
        client.count_jobs("RUNNING")
