"""Jobs with very many tasks: fast, complete, and as safe as small ones."""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from openpai_tasks.protocol import validate
from openpai_tasks.protocol.states import FINAL
from openpai_tasks.server.engines.runner.files import notify
from openpai_tasks.server.engines.wakeups import WakePipe
from openpai_tasks.server.state.database import Database
from openpai_tasks.server.state.state import SCHEMA, State
from tests.server.scheduling.test_survival import open_state, server, state_of, wait_until_up
from tests.server.workshop import Workshop, document, role, text, until, workshop

__all__ = ["workshop"]  # the fixture
Make = Callable[..., Workshop]
TASKS = 60


def test_server_killed_while_starting_many_tasks_runs_each_task_once(tmp_path: Path) -> None:
    state, count = open_state(tmp_path), tmp_path / "count"
    source = document("crowd", {"main": role(f"echo $PAI_TASK_INDEX >> {count}", instances=TASKS, cpu=0)})
    key = state.submit("alice", validate(source), source).key
    for least in (TASKS // 12, TASKS // 2):
        with server(tmp_path) as process:
            wait_until_up(process)
            until(lambda: len(text(count).split()) >= least, 100)  # noqa: B023
    with server(tmp_path):
        until(lambda: state_of(state, key) in FINAL, 100)
    assert state_of(state, key) == "SUCCEEDED"
    assert Counter(text(count).split()) == {str(index): 1 for index in range(TASKS)}


def test_each_of_many_tasks_gets_all_addresses_and_the_locale(
    workshop: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LC_ALL", raising=False)
    monkeypatch.setenv("LANG", "C.UTF-8")
    here = workshop()
    job = here.run("many", {"main": role("env -0", instances=TASKS // 2, cpu=0)})
    tasks = here.tasks(job.key)
    found = dict(entry.split("=", 1) for entry in here.output(job.key, number=21).split("\0") if entry)
    assert (found["PAI_TASK_INDEX"], found["LANG"]) == ("21", "C.UTF-8")
    assert not {"LC_ALL", "BASH_ENV"} & set(found)
    for task in tasks:
        ports = ",".join(map(str, task.ports["http"]))
        assert found[f"PAI_PORT_LIST_main_{task.index}_http"] == ports
        assert found[f"PAI_HOST_IP_main_{task.index}"] == "127.0.0.1"


def test_bell_reports_which_tasks_have_ended(tmp_path: Path) -> None:
    pipe = WakePipe(tmp_path / "bell")
    notify(str(tmp_path / "bell"), "/jobs/one")
    pipe.notify()
    notify(str(tmp_path / "bell"), "/jobs/two")
    assert pipe.wait(60) == {"/jobs/one", "/jobs/two"}
    assert pipe.wait(0) == set()
    pipe.close()


def test_end_of_a_task_is_noticed_without_the_bell(workshop: Make) -> None:
    here = workshop()
    bell = here.folder / "jobs" / ".bell"
    key = here.submit("silent", f"rm -f {bell}; sleep 0.2")
    assert here.wait(key).state == "SUCCEEDED"
    os.mkfifo(bell, 0o600)


def test_database_of_an_earlier_release_is_upgraded(tmp_path: Path) -> None:
    old = SCHEMA.replace("matched TEXT NOT NULL DEFAULT '', log_end TEXT NOT NULL DEFAULT '',", "")
    assert old != SCHEMA
    with sqlite3.connect(tmp_path / "cluster.db") as connection:
        connection.executescript(old)
    state = State(Database(tmp_path / "cluster.db", SCHEMA), tmp_path / "jobs")
    source = document("job", {"main": role("true")})
    key = state.submit("alice", validate(source), source).key
    assert state.attempts(key)[0].matched == ""
