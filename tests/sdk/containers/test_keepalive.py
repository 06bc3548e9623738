"""The script that keeps a container alive, run by the shells that images may have."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from openpai_tasks.errors import ConfigError
from openpai_tasks.sdk import amounts
from openpai_tasks.sdk.containers import keepalive
from openpai_tasks.text import durations
from tests.needs import require

SHELLS = (("bash", "-eu", "-o", "pipefail"), ("dash", "-eu"), ("busybox", "sh", "-eu"))
SMI = """\
#!/bin/sh
echo "$@" >>"$PAI_WORK_DIR/asked"
cat "$PAI_WORK_DIR/use"
"""
CLOCK = """\
date() { cat "$PAI_WORK_DIR/now"; }
sleep() { command sleep 0.05; }
"""
NOTES_LOOKS = """\
sleep() {
  # pai_since is set only in the process that watches the use
  [ -n "${pai_since-}" ] || cat "$PAI_WORK_DIR/now" >>"$PAI_WORK_DIR/looks"
  command sleep 0.05
}
"""
NOTING_CLOCK = CLOCK + NOTES_LOOKS
EXTENDS_AFTER_LOOK = """\
cat() {
  command cat "$@"
  case $1 in */deadline) [ -e "$PAI_WORK_DIR/extended" ] || {
    echo 1008 >"$1"; echo 1007 >"$PAI_WORK_DIR/now"; : >"$PAI_WORK_DIR/extended"; } ;;
  esac
}
"""


class Task:
    """A task that only keeps its container alive, and its folder."""

    def __init__(self, folder: Path, shell: tuple[str, ...]) -> None:
        self.folder, self.shell = folder, shell
        self.state = folder / ".pai-container"
        self.environment = {
            **os.environ,
            "PAI_MOUNT_ROOT": str(folder),
            "PAI_WORK_DIR": str(folder),
            "PAI_JOB_NAME": "ann~stay",
            "PATH": f"{folder}/bin:{os.environ['PATH']}",
        }
        self.process: subprocess.Popen[str] | None = None
        self.has_clock = False

    def start(self, seconds: int, idle: int = 0, stop: int = 0, **more: str) -> subprocess.Popen[str]:
        self.process = subprocess.Popen(
            [
                *self.shell,
                "-c",
                NOTING_CLOCK * self.has_clock + keepalive.command(seconds, idle, stop, idle > 0),
            ],
            env={**self.environment, **more},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            start_new_session=True,
        )
        until(lambda: (self.state / "deadline").exists())
        return self.process

    def kill(self) -> str:
        """Kill it and everything it started; return its stderr."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)
        return self.process.communicate(timeout=60)[1]

    def ask(self, command: str) -> subprocess.CompletedProcess[str]:
        argv = [*self.shell, "-c", CLOCK * self.has_clock + command]
        return subprocess.run(argv, env=self.environment, capture_output=True, text=True, timeout=60)

    def stay(self) -> keepalive.ContainerStay:
        found = keepalive.parse_stay(self.ask(keepalive.state_command()).stdout)
        assert found is not None
        return found

    def set_time(self, now: int) -> None:
        """Show this time from now on, instead of the machine's, which depends on its speed."""
        (self.folder / "now.new").write_text(f"{now}\n")
        (self.folder / "now.new").replace(self.folder / "now")
        self.has_clock = True

    def stays_at(self, now: int) -> bool:
        """Set the time; return whether the container is there after it has looked at it."""
        self.set_time(now)
        looks, process = self.folder / "looks", self.process
        assert process is not None
        looks.touch()
        until(lambda: looks.read_text().split().count(str(now)) > 1 or process.poll() is not None)
        return process.poll() is None

    def use(self, text: str) -> None:
        """Install a fake nvidia-smi that prints the text."""
        (self.folder / "use").write_text(text)
        program = self.folder / "bin" / "nvidia-smi"
        program.parent.mkdir(exist_ok=True)
        program.write_text(SMI)
        program.chmod(0o755)


def until(condition: object, seconds: float = 60) -> None:
    limit = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < limit
        time.sleep(0.02)


@pytest.fixture(params=SHELLS, ids=lambda shell: shell[0])
def shell(request: pytest.FixtureRequest) -> tuple[str, ...]:
    require(request.param[0])
    found: tuple[str, ...] = request.param
    return found


@pytest.fixture
def task(tmp_path: Path, shell: tuple[str, ...]) -> Iterator[Task]:
    made = Task(tmp_path, shell)
    yield made
    if made.process and made.process.poll() is None:
        made.kill()


def test_container_stays_for_the_given_time_and_then_exits_with_0(task: Task) -> None:
    begun = time.monotonic()
    process = task.start(4)
    assert task.stay().left <= 4
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert 2.9 < time.monotonic() - begun < 50
    assert out.splitlines() == [
        "this container runs for 4 s; keep it longer with `pai container.extend stay`",
        "the time limit is reached, stopping this container",
    ]


def test_container_can_be_extended_but_not_shortened(task: Task) -> None:
    task.set_time(1000)
    process = task.start(3)
    assert task.ask(keepalive.extend_command(8)).returncode == 0
    assert task.stay().left == 8
    task.ask(keepalive.extend_command(1))
    assert task.stay().left == 8
    assert task.stays_at(1007) and not task.stays_at(1008)
    assert process.returncode == 0


def test_a_deadline_that_is_extended_while_it_is_looked_at_counts(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "NOTING_CLOCK", NOTING_CLOCK + EXTENDS_AFTER_LOOK)
    task.set_time(1000)
    task.start(3)
    until((task.folder / "extended").exists)
    assert task.stays_at(1007) and not task.stays_at(1008)


def test_deadline_file_in_the_workspace_extends_it_and_invalid_text_is_harmless(task: Task) -> None:
    output = task.folder / "jobs" / "stay" / "output"
    output.mkdir(parents=True)
    deadline = output.parent / "deadline"
    deadline.write_text("99999999999999999999 $(touch harm)\n")
    task.set_time(1000)
    task.start(6, PAI_OUTPUT_DIR=str(output))
    deadline.write_text("1060\n")
    until(lambda: task.stay().left == 60)
    assert task.stays_at(1059) and not task.stays_at(1060)
    assert not (task.folder / "harm").exists()


def test_invalid_deadline_file_is_ignored(task: Task) -> None:
    task.set_time(1000)
    process = task.start(1)
    deadline = task.state / "deadline"
    deadline.write_text("soon\n")
    until(lambda: deadline.read_text() == "1001\n")
    assert not task.stays_at(1001) and process.returncode == 0


def test_an_invalid_deadline_is_neither_reported_nor_blocking(task: Task) -> None:
    task.state.mkdir()
    (task.state / "deadline").write_text("865753228800\n")  # a running container would correct it
    assert keepalive.parse_stay(task.ask(keepalive.state_command()).stdout) is None
    task.ask(keepalive.extend_command(600))
    assert 500 < task.stay().left <= 600


def test_reported_deadline_is_the_effective_one(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keepalive, "DEADLINE_SECONDS", 1)
    task.start(600)
    deadline = task.state / "deadline"
    before = deadline.read_text()
    deadline.write_text(f"{int(time.time()) + 9}\n")  # earlier than the effective deadline
    until(lambda: deadline.read_text() == before)


NOTING_GETCONF = """\
#!/bin/sh
[ -e "$PAI_WORK_DIR/first" ] || ls "$PAI_WORK_DIR/.pai-container" >"$PAI_WORK_DIR/first"
echo 100
"""


def test_whoever_finds_the_deadline_finds_the_idle_limit(task: Task) -> None:
    """It is written only after the CPU time was read, which takes a while on a busy machine."""
    program = task.folder / "bin" / "getconf"
    program.parent.mkdir()
    program.write_text(NOTING_GETCONF)
    program.chmod(0o755)
    task.start(600, stop=60)
    assert (task.folder / "first").read_text() == ""
    assert task.stay().idle_limit == 60


def test_longest_allowed_extension_is_accepted(task: Task) -> None:
    longest = durations.seconds(f"{durations.LONGEST_DAYS}d")
    with pytest.raises(ConfigError, match="--timeout must be at most 3650d"):
        amounts.read("timeout", durations.seconds, f"{longest + 1}")
    task.set_time(1000)
    task.start(3)
    task.ask(keepalive.extend_command(longest))
    assert task.stays_at(1004) and task.stay().left == longest - 4


def test_initial_duration_is_read_from_the_command() -> None:
    assert keepalive.initial_seconds(f"export A=1\n{keepalive.command(5400, 9, 9, True)}") == 5400
    assert keepalive.initial_seconds("sleep 60") == 0
    assert [keepalive.parse_deadline(text) for text in (b"123\n", b"9" * 12, b"12 \n", b"")] == [123, 0, 0, 0]


def test_idle_gpus_are_reported_until_they_work(task: Task) -> None:
    task.use("0\n3\n[N/A]\n")
    task.set_time(1000)
    task.start(200, idle=1, CUDA_VISIBLE_DEVICES="0,3")
    until((task.folder / "asked").exists)
    task.set_time(1001)
    until(lambda: task.stay().idle is not None)
    assert (task.folder / "asked").read_text().startswith("-i 0,3 --query-gpu=utilization.gpu")
    task.use("0\n97\n")
    until(lambda: task.stay().idle is None)
    err = task.kill()
    assert "warning: the GPUs of this container have been idle for" in err
    assert "free them with `pai container.stop stay`" in err


def test_gpus_without_utilization_data_are_not_reported_as_idle(task: Task) -> None:
    task.use("[N/A]\n")
    task.set_time(1000)
    process = task.start(3, idle=1)
    asked = task.folder / "asked"
    task.set_time(1002)
    until(lambda: asked.exists() and len(asked.read_text().splitlines()) > 2)
    task.set_time(1003)
    assert process.communicate(timeout=60)[1] == ""
    assert process.returncode == 0


def test_other_containers_report_no_state(tmp_path: Path, shell: tuple[str, ...]) -> None:
    asked = Task(tmp_path, shell).ask(keepalive.state_command())
    assert (asked.returncode, keepalive.parse_stay(asked.stdout)) == (keepalive.NO_STATE, None)
    assert Task(tmp_path, shell).ask(keepalive.extend_command(9)).returncode == keepalive.NO_STATE
    assert list(tmp_path.iterdir()) == []


def test_keep_alive_command_is_recognized_by_its_first_line() -> None:
    assert keepalive.is_keep_alive(keepalive.command(9, 0))
    assert keepalive.is_keep_alive(f"(\ntrap keep EXIT\n{keepalive.command(9, 9)}\n)")
    assert not keepalive.is_keep_alive(f"echo '{keepalive.MARK}'")


def test_gpus_are_watched_only_with_an_idle_limit() -> None:
    assert "nvidia-smi" not in keepalive.command(9, 0)
    assert f"-ge {1800} " in keepalive.command(9, 1800, has_gpus=True)


def test_an_idle_container_stops_and_says_so(task: Task) -> None:
    task.use("0\n")
    task.set_time(1000)
    process = task.start(9000, idle=9000, stop=60)
    until(lambda: task.stay().idle_limit == 60)
    until(lambda: (task.state / "quiet").exists())
    task.set_time(1030)
    task.ask(keepalive.extend_command(9001))
    assert task.stays_at(1059)
    until(lambda: (task.state / "deadline").read_text() == "10031\n")
    assert task.stays_at(1060)  # the extension counts as use, at 1030 or when it is noticed
    out, err = end_by_idling(task, 1100)
    assert (process.returncode, err) == (0, "")
    assert "it stops earlier after 60 s without a login and without CPU or GPU use\n" in out
    assert out.endswith("idle for 60 s, stopping this container\n")
    assert keepalive.find_end(out.splitlines()) == (
        "it stopped itself after 1m 00s without a login and without work"
    )


def end_by_idling(task: Task, now: int) -> tuple[str, str]:
    """Let time pass until the container has ended; return its output."""
    process = task.process
    assert process is not None
    clock = itertools.count(now, 70)
    until(lambda: task.set_time(next(clock)) or time.sleep(0.2) or process.poll() is not None)
    return process.communicate(timeout=60)


@pytest.mark.parametrize("use", ["login", "cpu", "gpu", "unknown-gpu"])
def test_a_container_in_use_does_not_stop(tmp_path: Path, use: str) -> None:
    task, quiet = Task(tmp_path, SHELLS[0]), tmp_path / ".pai-container" / "quiet"
    task.use({"gpu": "9\n", "unknown-gpu": "[N/A]\n"}.get(use, "0\n"))
    task.set_time(1000)
    with socket.create_server(("127.0.0.1", 0)) as server, contextlib.ExitStack() as stack:
        port = server.getsockname()[1]
        process = task.start(9000, idle=9000, stop=60, PAI_CONTAINER_SSH_PORT=str(port))
        if use == "login":
            stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        elif use == "cpu":
            spin = ["sh", "-c", "while :; do :; done"]
            busy = subprocess.Popen(spin, env=task.environment, start_new_session=True)
            stack.callback(busy.wait, 60)
            stack.callback(busy.kill)
        until(quiet.exists)
        for now in (1030, 1060, 1090):
            assert task.stays_at(now)
            until(lambda now=now: use == "login" or quiet.read_text() == f"{now} {now}\n")
        stack.close()
        task.use("0\n")
        end_by_idling(task, 1100)
        assert process.returncode == 0
