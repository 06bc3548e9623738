from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from openpai_tasks.protocol import StorageMount
from openpai_tasks.server.engines import Exit, Launch
from openpai_tasks.server.engines.process import ProcessEngine, mount_point
from openpai_tasks.server.state.records import Task
from tests.server.workshop import machine, until


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[ProcessEngine]:
    made = ProcessEngine(tmp_path, machine(), {"home": tmp_path / "storage"}, grace=0.3)
    yield made
    made.close()


def own(uid: str) -> str:
    """As no other process that runs tests has it: all that carries the uid of a lost task is killed."""
    return f"{uid}-{os.getpid()}"


def launch(folder: Path, command: str, uid: str = "uid", **more: object) -> Launch:
    values = {"user": "alice", "image": "some/image", "storages": None, **more}
    values |= {
        "scripts": {"command": command},
        "environment": {"PATH": os.environ["PATH"], "FC_POD_UID": own(uid)},
    }
    return Launch(uid=own(uid), folder=folder / uid, **values)  # type: ignore[arg-type]


def task(folder: Path, uid: str = "uid") -> Task:
    times = {"created": 0, "launched": 0, "completed": None}
    ends = {"exit_code": None, "user_exit_code": None, "diagnostics": ""}
    states = {"state": "RUNNING", "sub_state": "AttemptRunning"}
    places = {"job": "alice~job", "job_attempt": 0, "role": "main", "index": 0, "attempt": 0}
    where = {"uid": own(uid), "ip": "", "ports": {}, "gpus": (), "folder": folder / uid}
    return Task(**where, **times, **ends, **states, **places)  # type: ignore[arg-type]


def test_a_task_is_started_once_however_often_it_is_asked_for(engine: ProcessEngine, tmp_path: Path) -> None:
    for _ in range(3):
        engine.start(launch(tmp_path, f"echo ran >> {tmp_path / 'count'}; exit 3"))
    end = until(lambda: engine.poll(task(tmp_path)))
    engine.start(launch(tmp_path, f"echo ran >> {tmp_path / 'count'}"))
    assert (end.user_code, end.platform_code, end.stopped) == (3, None, False)
    assert engine.poll(task(tmp_path)) == end
    assert (tmp_path / "count").read_text() == "ran\n"


def test_another_engine_takes_up_what_the_first_began(engine: ProcessEngine, tmp_path: Path) -> None:
    engine.start(launch(tmp_path, f"until test -e {tmp_path / 'gate'}; do sleep 0.01; done; exit 4"))
    until(lambda: (tmp_path / "uid/started").exists())
    engine.close()
    second = ProcessEngine(tmp_path, machine())
    assert second.poll(task(tmp_path)) is None
    (tmp_path / "gate").touch()
    assert until(lambda: second.poll(task(tmp_path))).user_code == 4


def test_a_task_stopped_before_it_began_never_runs(engine: ProcessEngine, tmp_path: Path) -> None:
    engine.stop(task(tmp_path))
    engine.start(launch(tmp_path, f"touch {tmp_path / 'ran'}"))
    end = engine.poll(task(tmp_path))
    assert end and end.stopped and end.user_code is None
    assert not (tmp_path / "ran").exists()


def test_stopping_what_is_over_does_nothing(engine: ProcessEngine, tmp_path: Path) -> None:
    engine.start(launch(tmp_path, "true"))
    end = until(lambda: engine.poll(task(tmp_path)))
    engine.stop(task(tmp_path))
    assert engine.poll(task(tmp_path)) == end


def test_a_stop_while_the_runner_writes_its_number_hits_nobody_else(
    engine: ProcessEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hit: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: hit.append(pid))
    (tmp_path / "uid").mkdir()
    (tmp_path / "uid/started").touch()
    with open(tmp_path / "uid/lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        engine.stop(task(tmp_path))
        assert engine.poll(task(tmp_path)) is None
    assert hit == []


def test_when_the_process_that_forks_runners_is_killed_another_takes_its_place(
    engine: ProcessEngine, tmp_path: Path
) -> None:
    engine.start(launch(tmp_path, "sleep 0.3; exit 1", "first"))
    until(lambda: (tmp_path / "first/started").exists())
    assert engine._forker
    os.kill(engine._forker.pid, signal.SIGKILL)
    engine.start(launch(tmp_path, "exit 2", "second"))
    assert until(lambda: engine.poll(task(tmp_path, "second"))).user_code == 2
    assert until(lambda: engine.poll(task(tmp_path, "first"))).user_code == 1


def test_a_runner_that_does_not_begin_is_asked_for_again(
    engine: ProcessEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "_send", lambda request: 0)  # asked of a process that is not there
    engine.start(launch(tmp_path, "exit 2"))
    monkeypatch.undo()
    assert until(lambda: engine.poll(task(tmp_path))).user_code == 2


def test_a_runner_that_never_begins_is_a_failure_in_the_end(
    engine: ProcessEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openpai_tasks.server.engines.process.PATIENCE", 0.01)
    monkeypatch.setattr(engine, "_send", lambda request: 0)
    engine.start(launch(tmp_path, "true"))
    end = until(lambda: engine.poll(task(tmp_path)))
    assert end == Exit(None, "could not be started: its runner did not begin", 256)


def test_a_folder_that_cannot_be_made_is_a_failure_with_a_reason(
    engine: ProcessEngine, tmp_path: Path
) -> None:
    (tmp_path / "uid").write_text("in the way")
    engine.start(launch(tmp_path, "true"))
    end = engine.poll(task(tmp_path))
    assert end and end.platform_code == 256 and "could not be started" in end.reason


def test_a_runner_that_fails_itself_says_why(engine: ProcessEngine, tmp_path: Path) -> None:
    started = launch(tmp_path, "true")
    engine._prepare(started)
    (started.folder / "logs").rmdir()
    engine._ask({started.uid: started.folder})
    end = until(lambda: engine.poll(task(tmp_path)))
    assert end.platform_code == 256 and "logs/all" in end.reason


def test_storages_are_links_to_the_users_own_part(engine: ProcessEngine, tmp_path: Path) -> None:
    mounts = (
        StorageMount("home", "/mnt/home"),
        StorageMount("home", "/data/../x"),
        StorageMount("no", "/mnt/no"),
    )
    engine.start(launch(tmp_path, "echo hi > ../mounts/mnt/home/file", storages=mounts))
    assert until(lambda: engine.poll(task(tmp_path))).user_code == 0
    assert (tmp_path / "storage/alice/file").read_text() == "hi\n"
    assert (tmp_path / "uid/mounts/data/x/file").read_text() == "hi\n"
    assert not (tmp_path / "uid/mounts/mnt/no").exists()


def test_an_empty_list_of_storages_means_the_default_ones(engine: ProcessEngine, tmp_path: Path) -> None:
    engine.start(launch(tmp_path, "true", storages=()))
    until(lambda: engine.poll(task(tmp_path)))
    assert (tmp_path / "uid/mounts/mnt/home").resolve() == (tmp_path / "storage/alice").resolve()


@pytest.mark.parametrize("path", ["../../x", "/../x", "//x", "x", "/x/."])
def test_a_mount_path_cannot_leave_the_tasks_folder(path: str) -> None:
    assert mount_point(Path("/task"), path) == Path("/task/mounts/x")


def test_what_may_hold_secrets_is_private_and_not_in_the_repr(engine: ProcessEngine, tmp_path: Path) -> None:
    started = launch(tmp_path, "echo secret")
    engine.start(started)
    until(lambda: engine.poll(task(tmp_path)))
    private = {path: path.stat().st_mode & 0o077 for path in (tmp_path / "uid").rglob("*")}
    assert set(private.values()) == {0}
    assert "secret" not in repr(started)
