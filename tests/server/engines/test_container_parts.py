"""The parts of containers, without an engine; where one is needed, a script stands in for it."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from openpai_tasks.errors import ConfigError
from openpai_tasks.protocol import validate
from openpai_tasks.server.engines import container_files, container_program, container_supervisor
from openpai_tasks.server.engines.base import ContainerSpec, Launch, RegistryLogin
from openpai_tasks.server.engines.container_program import DOCKER, PODMAN, ContainerProgram, ProgramDialect
from openpai_tasks.server.engines.containers import ContainerNotes
from tests.conftest import Shell
from tests.processes import is_running
from tests.server.workshop import role


@pytest.mark.parametrize(
    ("image", "full"),
    [
        ("python", "docker.io/library/python"),
        ("python:3", "docker.io/library/python:3"),
        ("own/image:1", "docker.io/own/image:1"),
        ("docker.io/python", "docker.io/library/python"),
        ("localhost/own", "localhost/own"),
        ("localhost:5000/own", "localhost:5000/own"),
        ("example.com/a/b@sha256:00", "example.com/a/b@sha256:00"),
    ],
)
def test_image_names_are_completed_like_in_docker(image: str, full: str) -> None:
    assert container_files.full_image_name(image) == full


@pytest.mark.parametrize(
    ("registry", "key"),
    [
        ("", "https://index.docker.io/v1/"),
        ("docker.io", "https://index.docker.io/v1/"),
        ("https://index.docker.io/v1/", "https://index.docker.io/v1/"),
        ("https://Own.example.com:5000/v2/", "own.example.com:5000"),
        ("own.azurecr.io", "own.azurecr.io"),
    ],
)
def test_credentials_are_stored_under_the_name_of_the_registry(registry: str, key: str) -> None:
    made = json.loads(container_files.registry_config(RegistryLogin("me", "pass:word", registry)))
    assert {key: base64.b64decode(one["auth"]).decode() for key, one in made["auths"].items()} == {
        key: "me:pass:word"
    }


@pytest.mark.skipif(sys.platform != "linux", reason="podman runs only there")
def test_a_container_is_removed_with_a_monitor_that_podman_does_not_know() -> None:
    program = ContainerProgram(PODMAN)
    program.path = "true"
    script = "sleep 600 & echo $!; wait"
    monitors = [
        subprocess.Popen(
            ["/usr/bin/conmon", "-c", script, "sh", "-n", name, "--exit-dir", "/nowhere"],
            executable="/bin/sh",
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("pai-a", "pai-ab")
    ]
    children = [int(one.stdout.readline()) for one in monitors if one.stdout]
    try:
        program.remove("pai-a")
        monitors[0].wait(60)
        assert monitors[1].poll() is None
        while is_running(children[0]):
            time.sleep(0.01)
        assert is_running(children[1])
    finally:
        for one, child in zip(monitors, children, strict=True):
            one.kill()
            one.wait()
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)


def test_credentials_of_a_document_have_their_secrets_filled_in() -> None:
    auth = {"username": "me", "password": "<% $secrets.word %>", "registryuri": "example.com"}
    image = {"type": "dockerimage", "name": "image", "uri": "example.com/x", "auth": auth}
    head = {"protocolVersion": 2, "name": "job", "type": "job", "prerequisites": [image]}
    text = json.dumps({**head, "taskRoles": {"main": role("true")}, "secrets": {"word": "a&b"}})
    assert container_files.registry_login(validate(text), "main") == RegistryLogin("me", "a&b", "example.com")


def options(dialect: ProgramDialect, **container: object) -> list[str]:
    made = ContainerSpec(**container)  # type: ignore[arg-type]
    launch = Launch("uid", "me", Path("/f"), {}, {}, "image", container=made)
    return container_program.create_options(
        dialect, launch, 4, [container_program.BindMount("/t", Path('/a,"b:c'))], {}
    )


def test_gpu_options_match_each_container_program() -> None:
    assert '--gpus "device=0,2"' in " ".join(options(DOCKER, gpus=(0, 2)))
    assert "--device nvidia.com/gpu=0 --device nvidia.com/gpu=2" in " ".join(options(PODMAN, gpus=(0, 2)))
    assert "NVIDIA_VISIBLE_DEVICES=void" in options(DOCKER)


def test_limits_stay_between_the_minimum_of_the_engine_and_the_machine() -> None:
    words = options(DOCKER, cpu=64, memory_mb=1)
    assert words[words.index("--cpus") + 1] == "4"
    assert words[words.index("--memory") + 1] == words[words.index("--memory-swap") + 1] == "6m"
    assert words[words.index("--shm-size") + 1] == "512m"
    assert 'type=bind,"source=/a,""b:c",target=/t' in words


@pytest.mark.parametrize(
    ("path", "target"), [("/mnt/data", "/mnt/data"), ("mnt/x", "/mnt/x"), ("/a/../b//c/", "/b/c")]
)
def test_storages_are_mounted_where_the_document_says(path: str, target: str) -> None:
    assert container_program.storage_target(path) == target


@pytest.mark.parametrize("path", ["/", "/..", "//", "/proc", "/usr/local/pai/runtime", "/a\nb"])
def test_storages_are_not_mounted_over_system_folders(path: str) -> None:
    with pytest.raises(ConfigError, match="cannot mount"):
        container_program.storage_target(path)


def test_variables_survive_the_shell() -> None:
    values = {"A": "two\nlines", "B": "it's $HOME `x` \\", "no-name": "x"}
    script = container_files.exports(values) + 'printf "%s|%s" "$A" "$B"'
    done = subprocess.run(["/bin/sh", "-eu", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "two\nlines|it's $HOME `x` \\"


# An engine that cannot be used


def pretend(folder: Path, name: str, script: str) -> None:
    program = folder / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


@pytest.mark.parametrize(
    ("printed", "message"),
    [
        (
            "Got permission denied while trying to connect to the Docker daemon socket at unix:///s: Get",
            "you may not use the docker daemon at unix:///s: join its group",
        ),
        (
            "Cannot connect to the Docker daemon at unix:///s. Is the docker daemon running?",
            "the docker daemon is not running at unix:///s: start it",
        ),
        ("odd\ntrouble", "docker: trouble"),
    ],
)
def test_unusable_engine_is_reported_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: str, message: str
) -> None:
    pretend(tmp_path, "docker", f"echo '{printed}' >&2; exit 1")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("DOCKER_HOST", "unix:///s")
    with pytest.raises(ConfigError) as caught:
        ContainerProgram(DOCKER).containers("/home")
    assert str(caught.value) == message


def test_the_cluster_does_not_start_without_its_engine(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/inv").symlink_to(Path(sys.executable).parent / "inv")
    nothing = {"PATH": str(tmp_path / "bin"), "INVOKE_OPENPAI_LOCAL_ENGINE": "docker"}
    ran = shell.inv("cluster.start", **nothing)
    assert ran.code != 0
    assert len(ran.err.strip().splitlines()) == 1
    assert (
        "the engine docker cannot be used: there is no docker on this machine; `inv cluster.start" in ran.err
    )
    pretend(tmp_path / "bin", "docker", "echo 'Cannot connect to the Docker daemon' >&2; exit 1")
    ran = shell.inv("cluster.start", **nothing)
    assert ran.code != 0 and "the docker daemon is not running at its socket" in ran.err
    assert not shell.home.exists()


# A supervisor whose program does not answer


def supervise(folder: Path, script: str, patience: float = 0.2) -> tuple[int, dict[str, object]]:
    pretend(folder, "docker", script)
    for name in ("runtime", "registry", "logs"):
        (folder / name).mkdir()
    (folder / "registry/config.json").write_text("secret")
    (folder / "logs/stderr").touch()
    (folder / "notes").touch()
    plan = container_supervisor.ContainerPlan(
        program=str(folder / "docker"),
        name="name",
        image="image",
        wanted="image",
        options=[],
        command=["entry"],
        removal=["rm"],
        memory_mb=1,
        grace=0.2,
        call_limit=3 if "create) exec sleep" in script else 60,  # the machine may stand still for a while
        pull_limit=3 if "pull) exec sleep" in script else 60,
        patience=patience,
    )
    (folder / "container.json").write_text(json.dumps(plan._asdict()))
    argv = [sys.executable, "-I", "-S", container_supervisor.__file__, str(folder)]
    done = subprocess.run(argv, timeout=100, capture_output=True)
    assert not (folder / "registry").exists() and not (folder / "runtime").exists()
    return done.returncode, json.loads((folder / "outcome").read_text())


def test_notes_of_any_size_do_not_stop_a_supervisor(tmp_path):
    script = "case $1 in start) truncate -s 1T notes; printf '\\nUsage memory.peak 5\\n' >>notes;; esac"
    assert supervise(tmp_path, script) == (0, {"code": 0, "peak": 5})


def test_a_container_is_created_once_when_the_connection_to_the_daemon_is_lost(tmp_path):
    """The first request is carried out, and its answer is lost."""
    lost = "[ -e made ] && { echo 'Error: the name is already in use' >&2; exit 1; }; touch made"
    script = f"case $1 in create) {lost}; echo 'error during connect: EOF' >&2; exit 1;; esac"
    assert supervise(tmp_path, script, patience=5) == (0, {"code": 0})


def test_a_container_is_created_once_when_the_request_is_killed(tmp_path):
    taken = "[ -e made ] && { echo 'Error: the name is already in use' >&2; exit 1; }; touch made"
    assert supervise(tmp_path, f"case $1 in create) {taken}; kill -9 $$;; esac") == (0, {"code": 0})


def test_an_image_is_pulled_again_when_the_program_was_killed(tmp_path):
    killed = "[ -e tried ] && touch image && exit; touch tried; echo 'layer 1: Pulling'; kill -9 $$"
    missing = "[ -e image ] || { echo 'No such image: image' >&2; exit 1; }"
    script = f"case $1 in create) {missing};; pull) {killed};; esac"
    assert supervise(tmp_path, script, patience=60) == (0, {"code": 0})


def test_an_image_is_pulled_again_when_the_daemon_was_restarted_meanwhile(tmp_path):
    lost = "[ -e tried ] && touch image && exit; touch tried; echo 'unexpected EOF' >&2; exit 1"
    missing = "[ -e image ] || { echo 'No such image: image' >&2; exit 1; }"
    script = f"case $1 in create) {missing};; pull) {lost};; esac"
    assert supervise(tmp_path, script, patience=5) == (0, {"code": 0})


ENDED = {
    "Status": "exited",
    "ExitCode": 0,
    "Running": False,
    "StartedAt": "2026",
    "Error": "",
    "OOMKilled": False,
}


def test_exit_code_is_the_containers_if_the_attached_program_was_killed(tmp_path):
    """`podman attach` returns 0 whatever the exit code is."""
    running, ended = json.dumps({**ENDED, "Running": True}), json.dumps({**ENDED, "ExitCode": 5})
    looks = f"if [ -e back ]; then echo '{ended}'; else echo '{running}'; fi"
    script = f"case $1 in start) kill -9 $$;; attach) touch back;; inspect) {looks};; esac"
    assert supervise(tmp_path, script) == (5, {"code": 5})


def test_a_command_that_failed_while_its_daemon_was_down_keeps_its_exit_code(tmp_path):
    for code, outcome in {5: (5, {"code": 5}), 137: (125, None)}.items():
        folder = tmp_path / str(code)
        folder.mkdir()
        state = json.dumps({**ENDED, "ExitCode": code})
        found = supervise(folder, f"case $1 in start) exit 1;; inspect) echo '{state}';; esac")
        assert found == outcome if outcome[1] else found[1]["platform"] == -1001


def test_a_command_that_ends_by_a_signal_while_its_daemon_is_down_keeps_its_exit_code(tmp_path):
    """Found by ``inv endure --engine docker --seed 55003``."""
    state = json.dumps({**ENDED, "ExitCode": 143})
    script = f"case $1 in start) echo 'Usage memory.peak 5' >>notes; exit 1;; inspect) echo '{state}';; esac"
    assert supervise(tmp_path, script) == (143, {"code": 143, "peak": 5})


def test_a_full_disk_delays_the_outcome_of_a_container_and_loses_only_notes(tmp_path):
    running, ended = json.dumps({**ENDED, "Running": True}), json.dumps({**ENDED, "ExitCode": 5})
    fill = "ln -sf /dev/full notes; ln -s /dev/full outcome.new"
    free = "(sleep 0.3; rm notes outcome.new; touch notes) >/dev/null 2>&1 &"
    looks = f"if [ -e back ]; then echo '{ended}'; else echo '{running}'; fi"
    script = f"case $1 in start) {fill}; exit 1;; attach) touch back;; inspect) {looks};; rm) {free} esac"
    assert supervise(tmp_path, script) == (5, {"code": 5})


def test_notes_that_cannot_be_read_for_a_while_are_not_reported_twice(tmp_path):
    notes, task = ContainerNotes(), cast(Any, SimpleNamespace(folder=tmp_path, uid="1"))
    (tmp_path / "notes").write_text("Normal Pulled it took a while\n")
    assert len(notes.read_new(task)) == 1
    for old, new in (("notes", "away"), ("away", "notes")):
        (tmp_path / old).rename(tmp_path / new)
        assert notes.read_new(task) == ()


NEVER_STARTED = {
    "Status": "created",
    "Running": False,
    "ExitCode": 125,
    "StartedAt": "0001-01-01T00:00:00Z",
    "Error": "could not select device driver",
    "OOMKilled": False,
}
CREATED = json.dumps({**NEVER_STARTED, "ExitCode": 0, "Error": ""})


@pytest.mark.parametrize(
    "problem", ["kill -9 $$", "echo 'Cannot connect to the Docker daemon' >>logs/stderr; exit 1"]
)
def test_a_container_that_was_not_asked_to_start_is_started_again(tmp_path, problem):
    script = (
        f"case $1 in start) [ -e tried ] && exit; touch tried; {problem};; inspect) echo '{CREATED}';; esac"
    )
    assert supervise(tmp_path, script, patience=60) == (0, {"code": 0})


def test_a_container_is_not_started_again_after_a_stop(tmp_path):
    script = f"case $1 in start) kill -TERM $PPID; kill -9 $$;; inspect) echo '{CREATED}';; esac"
    reason = "was stopped before its container started"
    assert supervise(tmp_path, script, patience=60) == (143, {"code": None, "reason": reason})


def test_the_command_of_a_container_that_is_started_twice_runs_once(tmp_path):
    base, work = container_program.BASE, container_program.WORK
    for folder in ("runtime", "work"):
        (tmp_path / folder).mkdir()
    (tmp_path / "runtime/environment").touch()
    (tmp_path / "runtime/command").write_text("echo ran")
    script = container_files.entry_script().replace(work, f"{tmp_path}/work").replace(base, str(tmp_path))
    argv = ["/bin/sh", "-c", script]
    first, second = (subprocess.run(argv, capture_output=True, text=True) for _ in range(2))
    assert (first.returncode, first.stdout) == (0, "ran\n")
    assert (second.returncode, second.stdout) == (255, "")
    assert "its container was started a second time" in second.stderr


@pytest.mark.parametrize(
    ("script", "platform", "reason"),
    [
        (
            "case $1 in create) echo 'No such image: image' >&2; exit 1;; pull) exec sleep 60;; esac",
            254,
            "its image image could not be pulled: no answer within 3 s",
        ),
        ("case $1 in create) exec sleep 60;; esac", -1201, "its container could not be created: no answer"),
        (
            "case $1 in start) exit 125;; inspect) echo 'Cannot connect' >&2; exit 1;; esac",
            -1001,
            "lost its daemon: Cannot connect",
        ),
        (
            "case $1 in start) exit 137;; inspect) echo 'Error: No such container: name' >&2; exit 1;; esac",
            -101,
            "its container was removed from outside",
        ),
        (
            f"case $1 in start) kill -9 $$;; inspect) echo '{CREATED}';; esac",
            -1204,
            "its container did not start: no reason given",
        ),
        (
            "case $1 in create) printf 'Error: \\033[31mbad\\tthing\\007\\r\\n' >&2; exit 1;; esac",
            -1201,
            "its container could not be created: bad thing",
        ),
        (
            f"case $1 in start) exit 125;; inspect) echo '{json.dumps(NEVER_STARTED)}';; esac",
            -1205,
            "its container did not start: could not select device driver",
        ),
        (
            'case $1 in start|attach) exit 125;; inspect) echo \'{"Running": true, "ExitCode": 0}\';; esac',
            -1001,
            "lost its container's monitor (conmon or containerd-shim)",
        ),
    ],
)
def test_supervisor_never_waits_forever(tmp_path: Path, script: str, platform: int, reason: str) -> None:
    code, outcome = supervise(tmp_path, script)
    assert (code, outcome["code"], outcome["platform"]) == (125, None, platform)
    assert str(outcome["reason"]).startswith(reason)
