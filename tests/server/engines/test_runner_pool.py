"""Runners that run one task after the other: they are used again, and nothing of a task reaches the next."""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from openpai_tasks.server.engines import traces
from openpai_tasks.server.engines.process import ProcessEngine
from openpai_tasks.server.engines.runner.serving import MOST_IDLE
from tests.server.engines.contract import EngineBench, task
from tests.server.engines.test_runner import is_running
from tests.server.workshop import machine, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells whether processes are left")


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[EngineBench]:
    made = EngineBench(tmp_path, lambda folder: ProcessEngine(folder, machine=machine(), grace=0.3))
    yield made
    made.engine.close()


def runner_of(bench: EngineBench, uid: str) -> int:
    return int(until(lambda: traces.started(bench.folder / uid)[0]))


def start_again(
    bench: EngineBench, command: str, first: str = "true", **more: dict[str, str]
) -> tuple[str, str]:
    """Start tasks until one has the runner of an earlier one; return the names of both."""
    runners: dict[int, str] = {}
    for number in itertools.count():
        before, uid = f"before-{number}", f"again-{number}"
        bench.run(before, first, **more)
        runners[runner_of(bench, before)] = before
        bench.start(uid, command)
        if runner_of(bench, uid) in runners:
            return runners[runner_of(bench, uid)], uid
        (bench.folder / uid / "work/go").touch()
        until(lambda uid=uid: bench.end(uid))  # type: ignore[misc]
    raise AssertionError


WAITING = "echo ready; until test -e go; do sleep 0.01; done; exit 3"


def finish(bench: EngineBench, uid: str) -> int | None:
    bench.work(uid, "go").touch()
    return until(lambda: bench.end(uid)).user_code


def test_a_runner_is_used_again_without_the_variables_of_its_last_task(bench: EngineBench) -> None:
    variables = {"PATH": os.environ["PATH"], "EARLIER": "secret"}
    _, uid = start_again(bench, f'echo "${{EARLIER-none}} $PWD"; {WAITING}', environment=variables)
    assert finish(bench, uid) == 3
    assert bench.log(uid).splitlines()[0] == f"none {(bench.folder / uid / 'work').resolve()}"


def test_a_late_stop_of_the_last_task_does_not_end_the_next(bench: EngineBench) -> None:
    before, uid = start_again(bench, WAITING)
    bench.begun(uid)
    (bench.folder / before / "stop").touch()  # as a server does that finds the task alive just before its end
    os.kill(runner_of(bench, uid), signal.SIGTERM)
    assert finish(bench, uid) == 3


def test_a_task_of_a_used_runner_can_be_stopped(bench: EngineBench) -> None:
    before, uid = start_again(bench, WAITING)
    bench.begun(uid)
    (bench.folder / before / "stop").touch()
    bench.engine.stop(task(bench.folder, uid))
    assert until(lambda: bench.end(uid)).stopped


def test_sigterm_from_elsewhere_ends_the_task_of_a_used_runner(bench: EngineBench) -> None:
    _, uid = start_again(bench, WAITING)
    bench.begun(uid)
    os.kill(runner_of(bench, uid), signal.SIGTERM)
    assert until(lambda: bench.end(uid)).stopped


def test_processes_that_a_task_leaves_behind_do_not_outlive_it_in_a_used_runner(bench: EngineBench) -> None:
    _, uid = start_again(bench, f"setsid sleep 600 & echo $! > pid; {WAITING}", "setsid sleep 600 &")
    bench.begun(uid)
    assert finish(bench, uid) == 3
    assert not is_running(int(bench.work(uid, "pid").read_text()))


def test_a_killed_idle_runner_is_replaced(bench: EngineBench) -> None:
    bench.run("first", "true")
    os.kill(runner_of(bench, "first"), signal.SIGKILL)
    until(lambda: not is_running(runner_of(bench, "first")))
    assert bench.run("second", "exit 2").user_code == 2


def test_few_idle_runners_stay_and_end_with_the_engine(bench: EngineBench) -> None:
    names = [f"task-{number}" for number in range(MOST_IDLE + 4)]
    for name in names:
        bench.start(name, WAITING)
    runners = {runner_of(bench, name) for name in names}
    for name in names:
        bench.begun(name)
        assert finish(bench, name) == 3
    until(lambda: sum(map(is_running, runners)) <= MOST_IDLE)
    bench.engine.close()
    until(lambda: not any(map(is_running, runners)))
