"""Features of the process engine only: runners, storage links, private files."""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from openpai_tasks.protocol import StorageMount
from openpai_tasks.server.engines.base import TaskExit, TaskRunning
from openpai_tasks.server.engines.process import ProcessEngine, mount_point
from openpai_tasks.server.storages import Mount, Storage, user_mounts
from tests.server.engines.contract import EngineBench, task
from tests.server.workshop import machine, until


def make(folder: Path) -> ProcessEngine:
    return ProcessEngine(folder, machine(), grace=0.3)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[EngineBench]:
    made = EngineBench(tmp_path, make)
    yield made
    made.engine.close()


def test_stop_while_a_runner_starts_kills_no_other_process(
    bench: EngineBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    hit: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: hit.append(pid))
    (bench.folder / "uid").mkdir()
    with open(bench.folder / "uid/started", "w") as started:
        fcntl.flock(started, fcntl.LOCK_EX)
        bench.engine.stop(task(bench.folder))
        assert bench.status("uid") == TaskRunning()
    assert hit == []


def test_killed_forker_is_replaced(bench: EngineBench) -> None:
    bench.start("first", "sleep 0.3; exit 1")
    until(lambda: (bench.folder / "first/started").exists())
    assert bench.engine._forker
    os.kill(bench.engine._forker.pid, signal.SIGKILL)
    bench.start("second", "exit 2")
    assert until(lambda: bench.end("second")).user_code == 2
    assert until(lambda: bench.end("first")).user_code == 1


def test_runner_that_does_not_start_is_requested_again(
    bench: EngineBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench.engine, "_send", lambda request: 0)  # as if sent to a process that is gone
    bench.start("uid", "exit 2")
    monkeypatch.undo()
    assert until(lambda: bench.end("uid")).user_code == 2


def test_runner_that_never_starts_fails_the_task(bench: EngineBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openpai_tasks.server.engines.process.BEGIN_SECONDS", 0.01)
    monkeypatch.setattr(bench.engine, "_send", lambda request: 0)
    bench.start("uid", "true")
    end = until(lambda: bench.end("uid"))
    assert end == TaskExit(None, "could not be started: its runner did not begin", 256)


def test_failed_runner_reports_the_reason(bench: EngineBench) -> None:
    started = bench.launch("uid", "true")
    bench.engine.prepare(started)
    (started.folder / "logs").touch()  # not a folder
    bench.engine._request({started.uid: started.folder})
    end = until(lambda: bench.end("uid"))
    assert end.platform_code == 256 and "logs/all" in end.reason


def test_storages_are_links_to_the_folder_of_the_user(bench: EngineBench) -> None:
    wanted = (
        StorageMount("home", "/mnt/home"),
        StorageMount("home", "/data/../x"),
        StorageMount("no", "/mnt/no"),
    )
    known = {"home": Storage("home", bench.folder / "storage")}
    bench.start("uid", "echo hi > ../mounts/mnt/home/file", mounts=tuple(user_mounts(wanted, known, "alice")))
    assert until(lambda: bench.end("uid")).user_code == 0
    assert (bench.folder / "storage/alice/file").read_text() == "hi\n"
    assert (bench.folder / "uid/mounts/data/x/file").read_text() == "hi\n"
    assert not (bench.folder / "uid/mounts/mnt/no").exists()


def test_an_empty_list_of_storages_means_the_default_ones_and_no_list_means_none() -> None:
    known = {"home": Storage("home", Path("/data")), "lab": Storage("lab", Path("/lab"), share=True)}
    own = Mount("/mnt/home", "folder", "/data/alice", True, "home")
    assert list(user_mounts((), known, "alice")) == [own, Mount("/mnt/lab", "folder", "/lab", name="lab")]
    for wanted, user in [(None, "alice"), ((), ".."), ((), "a/b"), ((), "")]:
        assert list(user_mounts(wanted, known, user)) == []


@pytest.mark.parametrize("path", ["../../x", "/../x", "//x", "x", "/x/."])
def test_a_mount_path_cannot_leave_the_tasks_folder(path: str) -> None:
    assert mount_point(Path("/task"), path) == Path("/task/mounts/x")


def test_task_files_are_private_and_the_script_is_not_in_the_repr(bench: EngineBench) -> None:
    started = bench.launch("uid", "echo secret")
    bench.engine.start(started)
    until(lambda: bench.end("uid"))
    private = {path: path.stat().st_mode & 0o077 for path in (bench.folder / "uid").rglob("*")}
    assert set(private.values()) == {0}
    assert "secret" not in repr(started)
