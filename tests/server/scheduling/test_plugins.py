"""Runtime plugins and prerequisites, run by real processes."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from openpai_tasks.protocol import validate
from openpai_tasks.server.scheduling import plugins
from tests.needs import require
from tests.server.workshop import Workshop, document, role, until, workshop

__all__ = ["workshop"]  # the fixture
Make = Callable[..., Workshop]
PLUGINS = "com.microsoft.pai.runtimeplugin"


def extras(*items: dict[str, Any]) -> dict[str, Any]:
    return {PLUGINS: list(items)}


def cmd(**parameters: Any) -> dict[str, Any]:
    return {"plugin": "cmd", "parameters": parameters}


def test_plugin_commands_run_before_and_after_those_of_the_job(workshop: Make) -> None:
    here = workshop()
    plugin = extras(
        cmd(preCommands=["echo a1", "echo a2"], postCommands=["echo a3"]),
        cmd(preCommands=["echo b1"], postCommands=["echo b2"]),
    )
    job = here.run("around", "echo main; exit 0", extras=plugin)
    assert job.state == "SUCCEEDED"
    assert here.output(job.key).split() == ["a1", "a2", "b1", "main", "b2", "a3"]


def test_callbacks_run_at_the_event_they_name(workshop: Make) -> None:
    here = workshop()
    callbacks = [
        {"event": "taskSucceeds", "commands": ["echo after"]},
        {"event": "taskStarts", "commands": ["echo before"]},
    ]
    job = here.run("events", "echo main", extras=extras(cmd(callbacks=callbacks)))
    assert here.output(job.key).split() == ["before", "main", "after"]


def test_nothing_more_runs_after_a_failure(workshop: Make) -> None:
    here = workshop()
    job = here.run("failing", "echo main; exit 7", extras=extras(cmd(postCommands=["echo after"])))
    assert (job.state, here.tasks(job.key)[0].user_exit_code) == ("FAILED", 7)
    assert here.output(job.key) == "main\n"


def test_failed_plugin_ends_the_task_unless_its_failure_is_ignored(workshop: Make) -> None:
    here = workshop()
    failing = cmd(preCommands=["exit 9"])
    job = here.run("must", "echo main", extras=extras(failing))
    assert (job.state, here.tasks(job.key)[0].user_exit_code, here.output(job.key)) == ("FAILED", 9, "")
    job = here.run("may", "echo main", extras=extras({**failing, "failurePolicy": "ignore"}))
    assert (job.state, here.output(job.key)) == ("SUCCEEDED", "main\n")


def test_plugin_applies_only_to_the_roles_it_names(workshop: Make) -> None:
    here = workshop(cpus=4)
    plugin = {**cmd(preCommands=["echo plugin"]), "taskroles": ["b"]}
    completion = {"minSucceededInstances": -1}
    roles = {name: role("echo main", completion=completion) for name in ("a", "b")}
    job = here.run("some", roles, extras=extras(plugin))
    assert [here.output(job.key, number=number).split() for number in range(2)] == [
        ["main"],
        ["plugin", "main"],
    ]


def test_plugin_parameters_can_use_parameters_and_secrets(workshop: Make) -> None:
    here = workshop()
    plugin = extras(cmd(preCommands=["echo <% $parameters.word %> <% $secrets.key %>"]))
    job = here.run("names", "true", extras=plugin, parameters={"word": "open"}, secrets={"key": "sesame"})
    assert here.output(job.key) == "open sesame\n"


def test_stop_reaches_commands_wrapped_by_plugins(workshop: Make) -> None:
    here = workshop()
    command = "trap 'echo bye; exit 5' TERM; echo up; while :; do sleep 0.01; done"
    key = here.submit("stop", command, extras=extras(cmd(preCommands=["true"], postCommands=["echo after"])))
    until(lambda: here.tasks(key) and "stdout" in here.engine.logs(here.tasks(key)[0]))
    until(lambda: here.output(key) == "up\n")
    here.state.set_execution(key, "STOP")
    assert here.wait(key).state == "STOPPED"
    assert here.output(key) == "up\nbye\n"
    assert here.tasks(key)[0].user_exit_code == 5


def test_stop_during_a_plugin_that_may_fail_keeps_the_commands_from_starting(workshop: Make) -> None:
    here = workshop()
    waiting = {**cmd(preCommands=["echo waiting", "sleep 600"]), "failurePolicy": "ignore"}
    key = here.submit("early", "echo main; sleep 600", extras=extras(waiting))
    until(lambda: here.tasks(key) and "stdout" in here.engine.logs(here.tasks(key)[0]))
    until(lambda: here.output(key) == "waiting\n")
    here.state.set_execution(key, "STOP")
    assert here.wait(key).state == "STOPPED"
    assert here.output(key) == "waiting\n"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    require("git")
    folder = tmp_path / "repository"
    git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b.c"]
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    (folder / "greeting").write_text("hello from git\n")
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "first"], check=True)
    return folder


def test_repository_is_cloned_into_the_folder_of_the_plugin(workshop: Make, repository: Path) -> None:
    here = workshop()
    plain = {"plugin": "git", "parameters": {"repo_uri": str(repository)}}
    job = here.run("root", 'cat "${PAI_MOUNT_ROOT-}/usr/local/pai/code/greeting"', extras=extras(plain))
    assert here.output(job.key) == "hello from git\n"
    shallow = {"repo_uri": f"file://{repository}", "clone_dir": "my code", "options": ["--depth 1", "-q"]}
    job = here.run("named", "cat 'my code/greeting'", extras=extras({"plugin": "git", "parameters": shallow}))
    assert here.output(job.key) == "hello from git\n"


def test_missing_repository_fails_the_task(workshop: Make, repository: Path) -> None:
    here = workshop()
    plugin = {"plugin": "git", "parameters": {"repo_uri": f"{repository}-none"}}
    job = here.run("none", "echo main", extras=extras(plugin))
    assert (job.state, here.output(job.key)) == ("FAILED", "")


def test_a_prerequisite_can_be_a_plugin(workshop: Make) -> None:
    here = workshop()
    image = {"type": "dockerimage", "name": "image", "uri": "some/image"}
    before = {
        "type": "script",
        "name": "before",
        "plugin": f"{PLUGINS}.cmd",
        "callbacks": [{"event": "taskStarts", "commands": ["echo before"]}],
    }
    one = role("echo main", prerequisites=["before"])
    job = here.run("prerequisite", {"main": one}, prerequisites=[image, before])
    assert here.output(job.key).split() == ["before", "main"]


def test_unsupported_plugins_are_skipped_and_reported(workshop: Make) -> None:
    here = workshop()
    board = {"plugin": "tensorboard", "parameters": {"port": 6006}}
    odd = {"plugin": "odd", "failurePolicy": "ignore"}
    job = here.run("skipped", "echo main", extras=extras(board, odd, {"plugin": "teamwise_storage"}))
    assert job.state == "SUCCEEDED"
    note = here.reasons(job.key)["PluginNotUsed"]
    assert "tensorboard" in note and "odd" in note and "teamwise" not in note


@pytest.mark.parametrize(
    ("plugin", "words"),
    [
        ({"plugin": "odd"}, "no runtime plugin named 'odd'"),
        ({"parameters": {}}, "needs the name"),
        ({"plugin": "git"}, "repo_uri"),
        (cmd(callbacks=[], preCommands=["x"]), "not both"),
        ({"plugin": "cmd", "parameters": "x"}, "plugin cmd: its parameters must be a mapping"),
        ({"plugin": "ssh", "parameters": ["x"]}, "plugin ssh: its parameters must be a mapping"),
        ({"plugin": "git", "parameters": {"repo_uri": "x", "options": 5}}, "its options must be a list"),
        ({"plugin": "git", "parameters": {"repo_uri": "x", "options": ["'"]}}, "No closing quotation"),
        ({"plugin": "odd", "taskroles": [{}, "main"]}, "no runtime plugin named 'odd'"),
    ],
)
def test_plugin_that_cannot_run_fails_the_job_at_once(
    workshop: Make, plugin: dict[str, Any], words: str
) -> None:
    """Malformed ones blocked all jobs: the scheduler failed in each turn. Found by ``inv fuzz``."""
    here = workshop()
    job = here.run("refused", "echo main", extras=extras(plugin), jobRetryCount=3)
    assert (job.state, job.exit_code, job.attempt) == ("FAILED", -200, 0)
    assert words in here.reasons(job.key)["CannotRun"]


def test_plugins_that_are_no_list_fail_the_job_at_once(workshop: Make) -> None:
    here = workshop()
    assert here.run("refused", "echo main", extras={PLUGINS: 5}).state == "FAILED"
    assert here.run("next", "echo main").state == "SUCCEEDED"


def test_commands_are_unchanged_without_plugins() -> None:
    found = validate(document("plain", {"main": role("echo main")}))
    assert plugins.plan(found, "main").scripts("echo main") == {"command": "echo main"}
