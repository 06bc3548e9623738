"""The image tasks run exactly the expected engine commands, and no others."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from invoke import MockContext, Result
from invoke.exceptions import Exit

from openpai_tasks.tasks import container
from tests.conftest import PROJECT_TASKS
from tests.tasks.conftest import Project


@pytest.fixture
def engines(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A PATH on which only the engines named are found; they would fail if they were run."""
    project.write("tasks.py", PROJECT_TASKS)
    project.write("Dockerfile", "FROM python\n")

    def install(*names: str) -> None:
        folder = tmp_path / "bin"
        folder.mkdir()
        for name in names:
            (folder / name).write_text("#!/bin/sh\nexit 99\n")
            (folder / name).chmod(0o755)
        monkeypatch.setenv("PATH", str(folder))

    return install


@pytest.fixture
def no_input(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give commands that really run an empty standard input."""
    with open(os.devnull) as nothing:
        monkeypatch.setattr("sys.stdin", nothing)
        yield


def answering(**result: Any) -> MockContext:
    return MockContext(run=Result(**result))


def dry(project: Project, *words: str) -> str:
    """The commands that Invoke prints instead of running them, without colours."""
    shown = project.inv("--dry", *words)
    assert shown.code == 0, shown
    return re.sub(r"\x1b\[[0-9;]*m", "", shown.out)


def ran(c: MockContext) -> list[str]:
    return shlex.split(c.run.call_args.args[0])


def test_dry_shows_the_commands_and_runs_none(project: Project, engines: Any) -> None:
    engines("docker", "podman")
    build = dry(project, "container.build", "--tag", "lab/a:1")
    assert build == "docker build --tag lab/a:1 --file ./Dockerfile .\n"
    assert dry(project, "container.push", "lab/a:1") == "docker push lab/a:1\n"
    assert dry(project, "container.images").startswith("docker images --format ")
    look = "docker run --rm --network none --entrypoint sh lab/a:1 -c "
    assert dry(project, "container.check", "lab/a:1").startswith(look)
    assert "FROM lab/b\n" in dry(project, "container.dockerfile", "--base", "lab/b", "--yes")
    assert (project.folder / "Dockerfile").read_text() == "FROM python\n"


@pytest.mark.parametrize("words", [["build", "--tag", "a"], ["push", "a"], ["images"], ["check", "a"]])
def test_missing_engine_is_a_one_line_error(project: Project, engines: Any, words: list[str]) -> None:
    engines()
    result = project.inv(f"container.{words[0]}", *words[1:])
    assert (result.code, result.out) == (120, "")
    assert result.err == "error: docker or podman not found on this machine: install one\n"


def test_the_setting_chooses_the_engine(
    project: Project, engines: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    engines("docker", "podman")
    monkeypatch.setenv("INVOKE_OPENPAI_CONTAINER_ENGINE", "podman")
    assert dry(project, "container.push", "a") == "podman push a\n"
    monkeypatch.setenv("INVOKE_OPENPAI_CONTAINER_ENGINE", "lxc")
    assert "must be one of auto, docker, podman" in project.inv("container.push", "a").err


def test_special_characters_reach_the_engine_unchanged(project: Project, engines: Any) -> None:
    engines("docker")
    project.write("a b'c/Dockerfile", "FROM python\n")
    c = answering()
    container.build(c, folder="a b'c", tag="lab/a", build_arg=["X=$HOME; rm"])
    assert ran(c)[-3:] == ["--build-arg", "X=$HOME; rm", "a b'c"]


def test_failed_push_suggests_the_login_command_of_the_engine(project: Project, engines: Any) -> None:
    engines("docker")
    with pytest.raises(
        Exit, match=r"lab\.org/a was not pushed \(docker exited with 1\); .*`docker login lab\.org`"
    ):
        container.push(answering(exited=1), "lab.org/a")


def test_check_fails_only_if_something_required_is_missing(
    project: Project, engines: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    engines("docker")
    has = [f"pai-check {name} {name} 1.2" for name in ("sh", "bash", "tar", "sha256sum")]
    container.check(answering(stdout="\n".join(has)), "lab/a", ssh=False)
    assert "python3    no" in capsys.readouterr().out
    with pytest.raises(Exit, match="lab/a lacks curl, sshd") as err:
        container.check(answering(stdout="\n".join(has)), "lab/a", output="csv")
    assert err.value.code == 120
    assert "bash,true,1.2,true," in capsys.readouterr().out


def test_existing_dockerfile_is_overwritten_only_with_yes(project: Project, engines: Any) -> None:
    engines()
    result = project.inv("container.dockerfile", "--ssh", "--file", "new")
    assert (result.code, result.out) == (0, "")
    assert "FROM python:3\n" in (project.folder / "new").read_text()
    result = project.inv("container.dockerfile", "--base", "lab/b", "--pip", "torch>=2", "--file", "new")
    assert (result.code, result.err) == (
        123,
        "error: new exists; overwrite it with --yes or name another file with --file\n",
    )
    assert project.inv("container.dockerfile", "--pip", "torch>=2", "--file", "new", "--yes").code == 0
    assert "'torch>=2'" in (project.folder / "new").read_text()
    result = project.inv("container.dockerfile", "--apt", "x;y", "--file", "other")
    assert result.code == 120 and not (project.folder / "other").exists()


@pytest.mark.usefixtures("no_input")
@pytest.mark.parametrize("words", [["images"], ["build", "--tag", "a"], ["push", "a"], ["check", "a"]])
def test_failing_engine_is_a_one_line_error(project: Project, engines: Any, words: list[str]) -> None:
    engines("docker")  # it ends with 99
    result = project.inv(f"container.{words[0]}", *words[1:])
    assert (result.code, result.out) == (120, "")
    limit, error = result.err.splitlines()
    assert f" may take {'1m 00s' if words[0] == 'images' else '2h 00m'} " in limit
    assert error.startswith("error: ") and "99" in error
    assert words[0] == "push" or "check that it runs with `docker info`" in error


@pytest.mark.usefixtures("no_input")
@pytest.mark.parametrize("words", [["push", "lab/a"], ["images"]], ids=["push", "images"])
def test_hanging_engine_is_stopped_after_the_time_limit(
    project: Project, engines: Any, tmp_path: Path, words: list[str]
) -> None:
    engines("docker")
    (tmp_path / "bin" / "docker").write_text("#!/bin/sh\nexec /bin/sleep 60\n")
    result = project.inv("-T", "1", f"container.{words[0]}", *words[1:])
    assert result.code == 124, result
    assert result.err.splitlines() == [
        f"`docker {words[0]}` may take 1.0s (`inv -T SECONDS ...` changes the limit)",
        f"error: `docker {words[0]}` did not finish within 1.0s and was stopped",
    ]


def test_invalid_arguments_are_reported_before_missing_files(project: Project, engines: Any) -> None:
    engines("docker")
    (project.folder / "Dockerfile").unlink()
    assert dry(project, "container.build", "--tag", "a/b") == (
        "docker build --tag a/b --file ./Dockerfile .\n"
    )
    result = project.inv("container.build", "--tag", "A B")
    assert (result.code, result.out) == (120, "")
    assert result.err.startswith("error: --tag needs a name such as ")
    assert "`inv container.dockerfile`" in project.inv("container.build", "--tag", "a/b").err
