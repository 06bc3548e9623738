"""GPUs of this machine that others use, and locks that all servers respect."""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from openpai_tasks.server.engines import gpus
from openpai_tasks.server.engines.base import GpuShortage
from openpai_tasks.server.engines.gpus import GpuPool, GpuWatch, gpu_users
from openpai_tasks.server.engines.runner import gpu_locks
from tests.server.engines.test_runner import prepare, result, start
from tests.server.workshop import machine, text, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has abstract names of sockets")
HERE = machine(gpus=3)
UUIDS = [gpu.uuid for gpu in HERE.gpus]
Start = Callable[[Path, str], subprocess.Popen[bytes]]


@pytest.fixture(autouse=True)
def no_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Find only a nvidia-smi that a test writes; wait for its answer, which counts until the end."""
    monkeypatch.setattr(gpus, "PROGRAM", str(tmp_path / "nvidia-smi"))
    monkeypatch.setattr(gpus, "SHOW_SECONDS", 60.0)
    monkeypatch.setattr(gpus, "FRESH_SECONDS", 1000.0)


@pytest.fixture
def pool() -> Iterator[GpuPool]:
    made = GpuPool(HERE.gpus, lambda: None)
    yield made
    made.close()


@pytest.fixture
def other() -> Iterator[GpuPool]:
    made = GpuPool(HERE.gpus, lambda: None)
    yield made
    made.close()


def nvidia_smi(folder: Path, script: str) -> None:
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def own_name() -> str:
    return gpus._user(os.getuid())


# What nvidia-smi says


def test_process_on_a_gpu_is_shown_with_its_user_and_program() -> None:
    name = Path("/proc/self/comm").read_text().strip()
    found = gpu_users(f"GPU-a, {os.getpid()}\nGPU-b, 1\n", "GPU-a, 30000, Disabled\n")
    assert found["GPU-a"] == f"{own_name()} ({name}, pid {os.getpid()})"
    assert found["GPU-b"].endswith("pid 1)")


@pytest.mark.root
def test_process_of_another_user_is_shown_with_its_name() -> None:
    with subprocess.Popen(["sleep", "1000"], user="nobody") as process:
        try:
            until(lambda: gpu_users(f"GPU-a, {process.pid}\n", "")["GPU-a"].startswith("nobody (sleep, pid "))
        finally:
            process.kill()


def test_process_that_has_ended_does_not_count() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    assert gpu_users(f"GPU-a, {process.pid}\n", "GPU-a, 5, Disabled\n") == {}


def test_memory_without_a_process_counts_unless_it_is_little_or_of_a_screen() -> None:
    memory = "GPU-a, 600, Disabled\nGPU-b, 1500, Disabled\nGPU-c, 1500, Enabled\nGPU-d, [N/A], [N/A]\n"
    assert gpu_users("No running processes found\n", memory) == {
        "GPU-b": "a process that is not visible here"
    }


def test_many_processes_of_a_gpu_are_counted() -> None:
    found = gpu_users(f"GPU-a, {os.getpid()}\n" * 5, "")["GPU-a"]
    assert found.count("pid") == 3 and found.endswith(" and 2 more")


# When it is asked


def test_nvidia_smi_is_asked_once_for_many_looks_and_not_in_the_thread_that_looks(tmp_path: Path) -> None:
    gate, calls = tmp_path / "gate", tmp_path / "calls"
    nvidia_smi(tmp_path, f'echo "$1" >>{calls}; until test -e {gate}; do sleep 0.02; done; cat {gate}')
    told: list[bool] = []
    watch = GpuWatch(set, lambda: told.append(True))
    assert [watch.look(0), watch.look(0)] == [None, None]
    (tmp_path / "listing").write_text(f"{UUIDS[0]}, {os.getpid()}\n")
    (tmp_path / "listing").rename(gate)
    until(lambda: told)
    assert [list(watch.look(0) or {}), list(watch.look(0) or {})] == [[UUIDS[0]]] * 2
    assert len(calls.read_text().splitlines()) == 2


def test_jobs_do_not_wait_for_a_nvidia_smi_that_hangs(
    tmp_path: Path, pool: GpuPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = tmp_path / "gate"
    nvidia_smi(tmp_path, f"until test -e {gate}; do sleep 0.02; done")
    with pytest.raises(GpuShortage, match=r"^$"):
        pool.take({"a": 1})
    monkeypatch.setattr(gpus, "HUNG_SECONDS", 0.0)
    assert pool.take({"a": 1}) == {"a": (0,)}
    gate.touch()


def test_processes_on_gpus_of_our_own_tasks_do_not_count(tmp_path: Path, pool: GpuPool) -> None:
    nvidia_smi(
        tmp_path, f'case "$1" in *apps*) echo "{UUIDS[0]}, {os.getpid()}"; echo "{UUIDS[1]}, 1";; esac'
    )
    pool.hold({"ours": (0,)})
    assert list(pool.taken()) == [1]
    assert pool.take({"next": 1}) == {"next": (2,)}
    pool.release("ours")
    assert list(pool.taken()) == [1]  # nvidia-smi still had the process of our task
    assert pool.take({"last": 1}) == {"last": (0,)}


# Locks


def test_gpu_of_another_server_is_given_to_no_task(pool: GpuPool, other: GpuPool) -> None:
    assert pool.take({"a": 2}) == {"a": (0, 1)}
    assert pool.taken() == {}
    assert list(other.taken()) == [0, 1]
    assert other.taken()[0] == f"{own_name()} (a job of another server, pid {os.getpid()})"
    with pytest.raises(GpuShortage) as raised:
        other.take({"b": 2})
    why = f"GPU 0 is used by {other.taken()[0]}, GPU 1 is used by {other.taken()[1]}"
    assert str(raised.value) == f"needs 2 GPUs; 1 is free: {why}"
    assert other.take({"b": 1}) == {"b": (2,)}
    with pytest.raises(
        GpuShortage, match=r"needs 1 GPU; none is free: .*, GPU 2 is used by a job of this cluster"
    ):
        other.take({"c": 1})
    pool.release("a")
    assert other.take({"c": 2}) == {"c": (0, 1)}


@pytest.mark.root
def test_lock_of_another_user_counts_and_shows_their_name(pool: GpuPool) -> None:
    name = gpu_locks._name(UUIDS[0], gpu_locks.RUNNING)
    code = (
        "import os, socket; os.setuid({}); s = socket.socket(1); s.bind({!r}); s.listen(); print(); input()"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    command = [sys.executable, "-uc", code.format(pwd.getpwnam("nobody").pw_uid, name)]
    with subprocess.Popen(command, **pipes) as process:
        assert process.stdout and process.stdout.readline() == b"\n"
        assert pool.taken() == {0: f"nobody (a job of another server, pid {process.pid})"}
        assert pool.take({"a": 1}) == {"a": (1,)}
        process.communicate(b"\n")
    assert pool.taken() == {}


def test_gpu_stays_locked_while_its_lock_goes_from_the_server_to_the_runner(
    pool: GpuPool, other: GpuPool
) -> None:
    pool.take({"a": 1})
    assert pool.uuids_to_lock("a", (0,)) == [UUIDS[0]]
    lock = gpu_locks.take(UUIDS[0], gpu_locks.RUNNING)
    assert lock and gpu_locks.take(UUIDS[0], gpu_locks.RUNNING) is None
    assert list(other.taken()) == [0]
    pool.release_locks("a")
    assert list(other.taken()) == [0] and other.take({"b": 1}) == {"b": (1,)}
    lock.close()
    assert list(other.taken()) == []


def test_tasks_that_share_a_gpu_lock_it_once(pool: GpuPool) -> None:
    """Two tasks that want two GPUs each, on a machine with three, which run with what there is."""
    assert pool.take({"a": 2, "b": 2}) == {"a": (0, 1), "b": (0, 2)}
    assert [pool.uuids_to_lock("a", (0, 1)), pool.uuids_to_lock("b", (0, 2))] == [UUIDS[:2], UUIDS[2:]]


def test_claims_of_a_job_that_was_not_recorded_are_dropped(pool: GpuPool, other: GpuPool) -> None:
    pool.take({"a": 3})
    pool.hold({"a": ()})
    assert other.taken() == {}
    assert pool.take({"a": 3}) == {"a": (0, 1, 2)}


def test_gpu_of_a_task_that_the_server_no_longer_has_is_given_to_nobody(pool: GpuPool) -> None:
    pool.hold({"before": (7, 8, 9)})
    assert pool.take({"a": 2, "b": 1}) == {"a": (0, 1), "b": (2,)}


def test_job_for_more_gpus_than_there_are_waits_until_nobody_else_uses_one(
    pool: GpuPool, other: GpuPool
) -> None:
    other.take({"b": 1})
    with pytest.raises(GpuShortage, match="needs 3 GPUs; 2 are free: GPU 0 is used by "):
        pool.take({"a": 9})
    other.release("b")
    assert pool.take({"a": 9}) == {"a": (0, 1, 2)}


@pytest.fixture
def start_task() -> Iterator[Start]:
    """Start runners of tasks that have the first GPU; those that are left are killed after the test."""
    made: list[subprocess.Popen[bytes]] = []

    def start_runner(folder: Path, command: str) -> subprocess.Popen[bytes]:
        (prepare(folder, command) / gpu_locks.FILE).write_text(f"{UUIDS[0]}\0")
        made.append(start(folder))
        return made[-1]

    yield start_runner
    for process in made:
        process.kill()
        process.wait()


def test_runner_has_the_lock_until_its_task_ends_and_shows_who_it_is(
    tmp_path: Path, start_task: Start
) -> None:
    gate = tmp_path / "gate"
    runner = start_task(tmp_path, f"until test -e {gate}; do sleep 0.05; done")
    until(lambda: gpu_locks.holder(UUIDS[0]))
    for _ in range(200):  # more than the queue of a socket has room for, if nobody accepts them
        until(lambda: gpu_locks.holder(UUIDS[0]) == (runner.pid, os.getuid()))
    gate.touch()
    assert runner.wait(60) == 0 and result(tmp_path)["code"] == "0"
    assert gpu_locks.holder(UUIDS[0]) is None


def test_lock_of_a_killed_runner_is_free(tmp_path: Path, start_task: Start) -> None:
    runner = start_task(tmp_path, "while kill -0 $PPID; do sleep 0.1; done")
    until(lambda: gpu_locks.holder(UUIDS[0]))
    runner.kill()
    runner.wait()
    until(lambda: gpu_locks.holder(UUIDS[0]) is None)


def test_runner_waits_for_a_gpu_that_another_task_has_and_can_be_stopped_meanwhile(
    tmp_path: Path, start_task: Start
) -> None:
    folders = [tmp_path / name for name in ("first", "second", "stopped")]
    for folder in folders:
        folder.mkdir()
    gate, begun = tmp_path / "gate", tmp_path / "begun"
    first = start_task(folders[0], f"echo first >>{begun}; until test -e {gate}; do sleep 0.05; done")
    until(lambda: text(begun))
    second, stopped = [start_task(folder, f"echo {folder.name} >>{begun}") for folder in folders[1:]]
    until(lambda: all(text(folder / "started") for folder in folders))
    stopped.send_signal(signal.SIGTERM)
    assert stopped.wait(60) == 0
    assert {"code": "-15", "stopped": "1"}.items() <= result(folders[2]).items()
    assert begun.read_text() == "first\n"
    gate.touch()
    assert [first.wait(60), second.wait(60)] == [0, 0]
    assert begun.read_text() == "first\nsecond\n" and result(folders[1])["code"] == "0"
