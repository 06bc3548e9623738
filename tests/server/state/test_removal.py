"""Finished jobs beyond the limits are removed: rows, folders, and free pages of the database."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from openpai_tasks.files.removal import discard
from openpai_tasks.server.state.database import Database
from openpai_tasks.server.state.removal import JobRemoval
from openpai_tasks.server.state.state import REMOVED, SCHEMA, State, folder_name, now
from openpai_tasks.settings.keeping import KeepLimits
from tests.server.state.test_state import submit

DAY = 24 * 3600
KIB = 1024


@pytest.fixture
def state(tmp_path: Path) -> State:
    return State(Database(tmp_path / "cluster.db", SCHEMA), tmp_path / "jobs")


def finish(state: State, name: str, age: int = 0, size: int = 0, end: str = "SUCCEEDED") -> str:
    """Add a job that finished so many seconds ago and wrote so many bytes."""
    key = submit(state, name)
    values = [end, now() - 1000 * age, key]
    state.database.write("UPDATE jobs SET state = ?, completed = ?, pending = 0 WHERE key = ?", values)
    folder = state.folder / folder_name(key) / "logs"
    folder.mkdir(parents=True)
    (folder / "stdout").write_bytes(b"x" * size)
    return key


def removed(state: State, **limits: int) -> list[str]:
    removal = JobRemoval(state)
    return [job.key for job in removal.remove(removal.exceeding(KeepLimits(**limits)))]


def test_nothing_is_removed_without_limits(state: State) -> None:
    finish(state, "old", 4000 * DAY)
    assert removed(state) == []


def test_jobs_that_are_too_old_are_removed_with_their_folders(state: State) -> None:
    keys = [finish(state, name, age) for name, age in (("old", 91 * DAY), ("new", 89 * DAY))]
    assert removed(state, seconds=90 * DAY) == [keys[0]]
    assert state.job(keys[0]) is None and state.job(keys[1])
    assert not (state.folder / folder_name(keys[0])).exists()
    assert (state.folder / folder_name(keys[1])).exists()
    assert not list((state.folder / REMOVED).glob("*"))


def test_a_new_job_gets_no_files_of_one_whose_database_is_lost(state: State, tmp_path: Path) -> None:
    folder = state.folder / folder_name(finish(state, "train", size=1))
    anew = State(Database(tmp_path / "new.db", SCHEMA), state.folder)
    assert folder.exists() and submit(anew, "train")
    assert not folder.exists() and not list((state.folder / REMOVED).glob("*"))


def test_the_newest_jobs_are_kept(state: State) -> None:
    keys = [finish(state, f"job{age}", age) for age in (30, 20, 10)]
    assert removed(state, jobs=1) == keys[:2]


def test_the_size_counts_from_the_newest_job_on(state: State) -> None:
    keys = [finish(state, f"job{age}", age, 64 * KIB) for age in (30, 20, 10)]
    assert removed(state, size=150 * KIB) == keys[:1]


def test_the_newest_job_is_kept_however_large_it_is(state: State) -> None:
    keys = [finish(state, f"job{age}", age, 64 * KIB) for age in (20, 10)]
    assert removed(state, size=1) == keys[:1]


@pytest.mark.parametrize("number", [0, 1])
def test_unfinished_jobs_are_never_removed(state: State, number: int) -> None:
    submit(state, "waiting")
    key = finish(state, "done")
    assert removed(state, jobs=number) == [key][number:]
    assert state.job("alice~waiting")


def test_jobs_with_the_tag_keep_stay_and_do_not_count(state: State) -> None:
    keys = [finish(state, f"job{age}", age) for age in (30, 20, 10)]
    state.add_tag(keys[0], "keep")
    assert removed(state, jobs=1, seconds=1) == keys[1:]
    assert state.job(keys[0])


def test_a_job_that_was_started_again_meanwhile_is_kept(state: State) -> None:
    key = finish(state, "again", 100)
    removal = JobRemoval(state)
    found = removal.exceeding(KeepLimits(seconds=1))
    state.set_execution(key, "START")
    assert [job.key for job in found] == [key] and removal.remove(found) == []
    assert state.job(key)


def test_sizes_are_measured_once_and_again_after_another_attempt(state: State) -> None:
    key = finish(state, "big", size=64 * KIB)
    removal = JobRemoval(state)
    assert removal.exceeding(KeepLimits(jobs=0))[0].size == 64 * KIB
    folder = state.folder / folder_name(key) / "logs"
    (folder / "stdout").write_bytes(b"x" * 128 * KIB)
    assert removal.exceeding(KeepLimits(jobs=0))[0].size == 64 * KIB
    state.set_execution(key, "START")
    state.database.write("UPDATE jobs SET state = 'FAILED', completed = ? WHERE key = ?", [now(), key])
    assert removal.exceeding(KeepLimits(jobs=0))[0].size == 128 * KIB


def test_folders_that_a_killed_server_left_are_deleted(state: State) -> None:
    left = state.folder / REMOVED / "abc"
    left.mkdir(parents=True)
    removed(state)
    assert not left.exists()


def test_the_database_shrinks_after_many_jobs_were_removed(state: State, tmp_path: Path) -> None:
    for number in range(300):
        finish(state, f"job{number}", 100)
        state.add_event(f"alice~job{number}", "Normal", "Told", "x" * 8000)
    assert len(removed(state, jobs=10)) == 290
    pages, free = (
        state.database.row(f"PRAGMA {name}")[0]  # type: ignore[index]
        for name in ("page_count", "freelist_count")
    )
    assert free < 10 and pages < 200
    state.database.close()
    assert (tmp_path / "cluster.db").stat().st_size < 200 * 4096


def test_job_with_very_deep_folders_is_measured_and_removed(state: State) -> None:
    key = finish(state, "deep", 91 * DAY, size=8 * KIB)
    here = os.open(state.folder / folder_name(key), os.O_RDONLY)
    for _ in range(2000):  # more than Python's recursion limit
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    try:
        removal = JobRemoval(state)
        found = removal.exceeding(KeepLimits(seconds=90 * DAY))
        assert [(job.key, job.size >= 8 * KIB) for job in found] == [(key, True)]
        assert removal.remove(found) and not list((state.folder / REMOVED).glob("*"))
    finally:
        discard(state.folder)  # pytest cannot remove it
