"""Features of the process engine only: runners, storage links, private files."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from openpai_tasks.errors import ConfigError
from openpai_tasks.protocol import StorageMount
from openpai_tasks.server.engines.base import TaskExit, TaskRunning
from openpai_tasks.server.engines.process import ProcessEngine, find_shortage, mount_point, write_file
from openpai_tasks.server.storages import Mount, Storage, user_mounts
from openpai_tasks.settings import home
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


def test_part_of_a_script_is_not_left_on_a_full_disk(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    kept = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
        with pytest.raises(OSError, match="File too large"):
            write_file(tmp_path / "command", "true\n" * 100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, kept)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("place", ["engine.prepare", "home.make_private", "engine._send"])
def test_task_starts_once_there_is_space(
    bench: EngineBench, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    def fail(_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def fail_to_make(folder: Path) -> None:
        try:
            fail(folder)
        except OSError as err:
            raise ConfigError(f"cannot create the folder {folder}") from err

    owner, name = place.split(".")
    monkeypatch.setattr(
        bench.engine if owner == "engine" else home, name, fail_to_make if owner == "home" else fail
    )
    bench.start("uid", "exit 2")
    assert bench.status("uid") == TaskRunning()
    (note,) = bench.engine.notes(task(bench.folder))
    assert note.message.startswith("cannot start yet: No space left on device")
    monkeypatch.undo()
    assert until(lambda: bench.end("uid")).user_code == 2
    assert bench.engine.notes(task(bench.folder)) == ()


def test_forker_survives_variables_that_it_cannot_read(bench: EngineBench) -> None:
    (bench.folder / "environment").mkdir()
    bench.start("first", "true")
    assert "Is a directory" in until(lambda: bench.end("first")).reason
    (bench.folder / "environment").rmdir()
    bench.start("second", "exit 2")
    assert until(lambda: bench.end("second")).user_code == 2


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


def test_task_whose_runner_waits_for_space_waits_as_long(
    bench: EngineBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openpai_tasks.server.engines.process.BEGIN_SECONDS", 0.0)
    monkeypatch.setattr(bench.engine, "_send", lambda request: 0)
    bench.start("uid", "exit 2")
    with monkeypatch.context() as full:
        full.setattr("openpai_tasks.server.engines.process.find_shortage", lambda folder: "No space left")
        for _ in range(10):
            assert bench.status("uid") == TaskRunning()
        (note,) = bench.engine.notes(task(bench.folder))
        assert note.message == "cannot start yet: No space left"
    monkeypatch.undo()
    assert until(lambda: bench.end("uid")).user_code == 2
    assert bench.engine.notes(task(bench.folder)) == ()


def test_a_folder_in_which_nothing_can_be_written_is_found(tmp_path: Path) -> None:
    assert find_shortage(tmp_path) == "" == find_shortage(tmp_path / "gone")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
        assert find_shortage(tmp_path) == "Too many open files"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert not list(tmp_path.iterdir())


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
    assert (bench.folder / "uid/mounts").stat().st_mode & 0o777 == 0o700


def test_an_empty_list_of_storages_means_the_default_ones_and_no_list_means_none() -> None:
    known = {"home": Storage("home", Path("/data")), "lab": Storage("lab", Path("/lab"), share=True)}
    own = Mount("/mnt/home", "folder", "/data/alice", True, "home")
    assert list(user_mounts((), known, "alice")) == [own, Mount("/mnt/lab", "folder", "/lab", name="lab")]
    for wanted, user in [(None, "alice"), ((), ".."), ((), "a/b"), ((), "")]:
        assert list(user_mounts(wanted, known, user)) == []


@pytest.mark.parametrize("path", ["../../x", "/../x", "//x", "x", "/x/."])
def test_a_mount_path_cannot_leave_the_tasks_folder(path: str) -> None:
    assert mount_point(Path("/task"), path) == Path("/task/mounts/x")


def test_path_with_a_null_byte_is_no_mount_point():
    """It blocked all jobs: the scheduler failed in each turn. Found by ``inv fuzz``."""
    with pytest.raises(ConfigError, match="cannot mount"):
        mount_point(Path("/task"), "/a\0")


def test_task_files_are_private_and_the_script_is_not_in_the_repr(bench: EngineBench) -> None:
    started = bench.launch("uid", "echo secret")
    bench.engine.start(started)
    until(lambda: bench.end("uid"))
    private = {path: path.stat().st_mode & 0o077 for path in (bench.folder / "uid").rglob("*")}
    assert set(private.values()) == {0}
    assert "secret" not in repr(started)
