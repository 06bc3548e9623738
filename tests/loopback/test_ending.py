"""A command that starts or ends a server that is just ending by itself."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from openpai_tasks.loopback import lock, process, service
from openpai_tasks.portal import starting
from openpai_tasks.portal.app import Activity
from openpai_tasks.sdk.clusters import embedded
from openpai_tasks.sdk.clusters.start_options import LocalOptions
from openpai_tasks.settings.home import make_private, write_private

HOLD = """
import pathlib, sys
from openpai_tasks.loopback import service
service.hold_lock(pathlib.Path(sys.argv[1]))
print(flush=True)
input()
"""
SERVE = """
import os, pathlib, signal, sys
from openpai_tasks.loopback import service
folder = pathlib.Path(sys.argv[1])
async def app(scope, receive, send):
    os.kill(os.getpid(), signal.SIGTERM)
    found = str((folder / service.STATUS).exists()).encode()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": found})
service.hold_lock(folder)
service.serve(app, service.bind(folder, 0), folder, {})
"""


class Started(Exception):
    pass


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENPAI_HOME", str(tmp_path / "home"))


@pytest.mark.parametrize(
    ("module", "folder", "start"),
    [
        (embedded, embedded.folder, lambda folder: embedded._start(LocalOptions())),
        (
            starting,
            lambda: starting.portal_folder(Path("/project")),
            lambda folder: starting._start(folder, folder, 0, None),
        ),
    ],
)
def test_a_new_server_waits_for_the_end_of_the_last_one(
    monkeypatch: pytest.MonkeyPatch, module: Any, folder: Callable[[], Path], start: Callable[[Path], Any]
) -> None:
    held = [service.hold_lock(folder())]

    def pause(seconds: float) -> None:
        if held:
            os.close(held.pop())

    def popen(*words: Any, **options: Any) -> None:
        assert not lock.is_held(folder())
        raise Started

    clock = SimpleNamespace(sleep=pause, monotonic=time.monotonic, time=time.time)
    monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(subprocess, "Popen", popen)
    with pytest.raises(Started):
        start(folder())


def test_a_server_that_ends_by_itself_while_it_is_stopped_is_no_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    project = Path("/project")
    argv = [sys.executable, "-c", HOLD, str(starting.portal_folder(project))]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdout and running.stdout.readline()

        def end_first(pid: int) -> None:
            running.communicate(b"\n")

        monkeypatch.setattr(process, "_open", end_first)
        assert starting.stop_portal(project)


def test_a_server_that_is_asked_to_end_is_not_found_any_more(tmp_path: Path) -> None:
    folder = make_private(tmp_path / "server")
    with subprocess.Popen([sys.executable, "-c", SERVE, str(folder)]) as running:
        while not (facts := lock.read_status(folder)):
            assert running.poll() is None
            time.sleep(0.02)
        with urllib.request.urlopen(facts["uri"], timeout=60) as answer:
            assert answer.read() == b"False"
        assert running.wait(60) == 0


def test_a_portal_with_a_new_link_does_not_end(tmp_path: Path) -> None:
    folder, activity = make_private(tmp_path / "portal"), Activity()
    write_private(folder / lock.STATUS, "{}")
    link = starting.link_file(folder, "token")
    write_private(link, "")
    day = 86_400.0
    assert not starting.withdraw_if_idle(folder, lambda: day, 3600)
    os.utime(link, (time.time() - day,) * 2)
    assert not starting.withdraw_if_idle(folder, activity.idle_seconds, 3600)
    assert (folder / lock.STATUS).exists()
    assert starting.withdraw_if_idle(folder, lambda: day, 3600)
    assert not (folder / lock.STATUS).exists()
