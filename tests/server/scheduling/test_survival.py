"""The server, or a runner, is killed at any point: nothing is lost, and nothing runs twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from openpai_tasks.protocol import validate
from openpai_tasks.protocol.states import FINAL
from openpai_tasks.server.scheduling.progress import Progress
from openpai_tasks.server.state.database import Database
from openpai_tasks.server.state.state import SCHEMA, State, now
from tests.forkserver import start_code
from tests.server.workshop import Workshop, document, role, text, until, workshop

__all__ = ["workshop"]  # the fixture
Make = Callable[..., Workshop]


@contextmanager
def server(folder: Path, cpus: int = 4) -> Iterator[subprocess.Popen[str]]:
    """Run a cluster core in a separate process, and kill it without warning at the end."""
    code = f"from tests.server.core_process import run; run({str(folder)!r}, {cpus})"
    process = start_code(code, os.environ, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_until_up(process: subprocess.Popen[str]) -> None:
    assert process.stdout and process.stdout.readline() == "up\n"


def open_state(folder: Path) -> State:
    return State(Database(folder / "cluster.db", SCHEMA), folder / "jobs")


def submit(state: State, name: str, command: str) -> str:
    text = document(name, {"main": role(command)})
    return state.submit("alice", validate(text), text).key


def state_of(state: State, key: str) -> str:
    job = state.job(key)
    assert job
    return job.state


def test_jobs_continue_without_the_server_and_keep_their_exit_codes(tmp_path: Path) -> None:
    state = open_state(tmp_path)
    gate = tmp_path / "gate"
    waiting = f"until test -e {gate}; do sleep 0.01; done; "
    short = submit(state, "short", waiting + "echo done; exit 6")
    long = submit(state, "long", f"echo $$; until test -e {gate}.2; do sleep 0.01; done; exit 0")
    with server(tmp_path) as process:
        wait_until_up(process)
        until(lambda: state_of(state, short) == state_of(state, long) == "RUNNING")
        folder = state.tasks(short, 0)[0].folder
        until(lambda: (folder / "started").exists())
    gate.touch()
    until(lambda: (folder / "exit").exists())  # it has ended while no server runs
    ended = now()
    assert state_of(state, short) == "RUNNING"
    with server(tmp_path) as process:
        until(lambda: state_of(state, short) == "FAILED")
        job, attempt, (task,) = state.job(short), state.attempt(short, 0), state.tasks(short, 0)
        assert task.user_exit_code == 6
        assert job and attempt and task.launched and task.completed
        assert job.completed == attempt.completed == task.completed
        assert task.launched <= task.completed <= ended
        assert state_of(state, long) == "RUNNING"
        Path(f"{gate}.2").touch()
        until(lambda: state_of(state, long) == "SUCCEEDED")
    assert (state.tasks(long, 0)[0].folder / "logs/stdout").read_text().count("\n") == 1


@pytest.mark.timeout(300)  # each of the servers loads all its modules
def test_server_killed_repeatedly_runs_every_job_exactly_once(tmp_path: Path) -> None:
    state = open_state(tmp_path)
    ran = tmp_path / "ran"
    chance = random.Random(7)
    count = 40
    waiting, rounds = list(range(count)), 0
    while waiting or state.active():
        rounds += 1
        for number in waiting[:8]:  # not all at once: a server that is killed late would run them all
            pause = chance.random() / 10
            submit(state, f"job{number}", f"echo {number} >> {ran}; sleep {pause:.3f}; exit {number % 5}")
        del waiting[:8]
        before = text(ran), len(state.active())
        with server(tmp_path) as process:
            wait_until_up(process)
            if rounds % 2:  # so that a busy machine makes progress, too
                until(lambda before=before: before != (text(ran), len(state.active())))
            time.sleep(chance.random() / 5 * max(1, rounds / 3))
    assert Counter(ran.read_text().split()) == {str(number): 1 for number in range(count)}
    for number in range(count):
        task = state.tasks(f"alice~job{number}", 0)[0]
        assert (task.state in FINAL, task.user_exit_code) == (True, number % 5)


def test_stop_is_completed_by_the_next_server(tmp_path: Path) -> None:
    state = open_state(tmp_path)
    key = submit(state, "stop", "echo $$ > pid; exec sleep 600")
    with server(tmp_path) as process:
        wait_until_up(process)
        until(lambda: state.tasks(key, 0) and (state.tasks(key, 0)[0].folder / "work/pid").exists())
    pid = int(until((state.tasks(key, 0)[0].folder / "work/pid").read_text))
    state.set_execution(key, "STOP")
    os.kill(pid, 0)
    with server(tmp_path):
        until(lambda: state_of(state, key) == "STOPPED")
    until(lambda: not _is_running(pid))


def test_recorded_tasks_that_never_started_are_started_by_the_next_server(
    tmp_path: Path, workshop: Make
) -> None:
    state = open_state(tmp_path)
    key = submit(state, "first", "echo ran")
    progress, job = Progress(state), state.job(key)
    assert job
    tasks = progress.new_tasks(job, state.document(key).roles)
    progress.begin(job, tasks)  # and here the server is killed
    here = workshop(cpus=1)
    assert here.wait(key).state == "SUCCEEDED"
    assert here.output(key) == "ran\n"


def test_killed_runner_fails_the_task_with_a_reason_and_leaves_no_process(workshop: Make) -> None:
    here = workshop()
    key = here.submit("orphan", "setsid sleep 601 & echo $! > pid; wait")
    folder = until(lambda: here.tasks(key))[0].folder
    pid = int(until(lambda: text(folder / "work/pid")))
    os.kill(int((folder / "started").read_text().split()[0]), signal.SIGKILL)
    job = here.wait(key)
    assert (job.state, job.exit_code) == ("FAILED", 256)
    assert "lost its runner" in here.tasks(key)[0].diagnostics
    until(lambda: not _is_running(pid))


def test_jobs_that_ran_before_a_reboot_fail_with_the_reason(workshop: Make) -> None:
    here = workshop()
    key = here.submit("before", "exec sleep 600")
    folder = until(lambda: here.tasks(key))[0].folder
    until(lambda: (folder / "started").exists() and (folder / "started").read_text())
    runner = int((folder / "started").read_text().split()[0])
    waiting = here.submit("waiting", {"main": role("true", cpu=2)})
    here.close()
    os.kill(runner, signal.SIGKILL)
    (folder / "started").write_text(f"{runner} 0 another-boot\n")
    went_off = now()
    until(lambda: now() > went_off)
    here.open()
    job, (task,) = here.wait(key), here.tasks(key)
    assert job.state == "FAILED" and "the machine was restarted" in task.diagnostics
    assert task.completed == job.completed and task.launched <= task.completed <= went_off  # type: ignore[operator]
    assert here.wait(waiting).state == "SUCCEEDED"


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        return ") Z" not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
