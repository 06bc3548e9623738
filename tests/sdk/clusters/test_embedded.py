"""Start the embedded cluster while another server of its folder starts or ends."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from openpai_tasks.loopback.lock import ALREADY_RUNNING, LOCK
from openpai_tasks.sdk.clusters import embedded
from openpai_tasks.sdk.clusters.start_options import LocalOptions, StartRequest
from openpai_tasks.server.variables import for_server


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of an embedded cluster that has run before."""
    monkeypatch.setenv("OPENPAI_HOME", str(tmp_path))
    (tmp_path / "local").mkdir(mode=0o700)
    yield tmp_path / "local"
    embedded.stop_embedded(keep_jobs=True, say=print)


def start() -> bool:
    return embedded.start_embedded(StartRequest(LocalOptions()), say=print)


def test_a_server_that_is_ending_is_followed_by_another(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_until = embedded._wait_until
    with open(folder / LOCK, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)

        def wait(done: Callable[[], bool], seconds: float, what: str) -> None:
            assert lock.closed or not done()
            lock.close()
            wait_until(done, seconds, what)

        monkeypatch.setattr(embedded, "_wait_until", wait)
        assert start()
    assert embedded.running()


def test_a_server_that_another_command_has_started_a_moment_ago_is_used(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other server had the lock first, and has not answered yet."""
    program, mark = folder / "python", folder / "first"
    program.write_text(
        f'#!/bin/sh\nif mkdir {mark}; then exit {ALREADY_RUNNING}; fi\nexec {sys.executable} "$@"\n'
    )
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    assert start()
    assert mark.exists() and embedded.running()


def test_a_server_that_has_just_ended_is_stopped(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another command has stopped it, and was killed before it ended."""
    monkeypatch.setattr("openpai_tasks.loopback.lock.is_held", lambda folder: True)
    (folder / LOCK).write_text("1\n")
    embedded._stop_server()


def test_a_server_and_its_jobs_get_the_whole_path_of_the_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have other working folders; a job uses the same clusters as the commands of its user."""

    class Started(Exception):
        pass

    def popen(argv: list[str], env: dict[str, str], **options: object) -> None:
        assert for_server(env, "process")["OPENPAI_HOME"] == str(tmp_path / "here")
        raise Started

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENPAI_HOME", "here")
    embedded.folder().mkdir(mode=0o700, parents=True)
    monkeypatch.setattr(subprocess, "Popen", popen)
    with pytest.raises(Started):
        embedded._start(LocalOptions())
