"""The folder with the event files of jobs."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from openpai_tasks.errors import ConfigError, PathError
from openpai_tasks.portal.sessions import SESSION_SECONDS, Session, Sessions
from openpai_tasks.sdk.tensorboard import EventFiles, TensorBoard
from openpai_tasks.storage.local.store import LocalStore
from openpai_tasks.storage.location import Location
from tests.server.workshop import until

FIRST, SECOND = "tensorboard/main-0-0/events.out.tfevents.1.host", "tensorboard/main-0-1/x.tfevents.2"


@pytest.fixture
def output(tmp_path: Path) -> Path:
    folder = tmp_path / "output"
    for name in (FIRST, SECOND, "model.bin"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"one")
    return folder


def event_files(output: Path, in_place: bool, job: object = None) -> EventFiles:
    place = Location(LocalStore(str(output)), "/", str(output))
    return EventFiles("train", job, place, output.parent / "runs", in_place)  # type: ignore[arg-type]


def found(runs: Path) -> dict[str, bytes]:
    return {str(path.relative_to(runs)): path.read_bytes() for path in runs.rglob("*") if path.is_file()}


@pytest.mark.parametrize("in_place", [True, False])
def test_runs_have_the_name_of_their_job_and_follow_their_files(output: Path, in_place: bool) -> None:
    files, runs = event_files(output, in_place), output.parent / "runs"
    assert files.is_empty
    files.update()
    first, second = "train/events.out.tfevents.1.host", "train/main-0-1/x.tfevents.2"
    assert found(runs) == {first: b"one", second: b"one"} and not files.is_empty
    assert (runs / first).is_symlink() == in_place
    with (output / FIRST).open("ab") as file:
        file.write(b", two")
    (output / SECOND).write_bytes(b"x")
    later = output / "extra/z.tfevents"
    later.parent.mkdir()
    later.write_bytes(b"z")
    files.update()
    assert found(runs) == {first: b"one, two", second: b"x", "train/extra/z.tfevents": b"z"}


def test_links_that_lead_out_of_the_output_are_not_followed(output: Path) -> None:
    (output.parent / "secret.tfevents").write_bytes(b"secret")
    (output / "link.tfevents").symlink_to(output.parent / "secret.tfevents")
    event_files(output, in_place=False).update()
    assert b"secret" not in found(output.parent / "runs").values()


@pytest.mark.parametrize("in_place", [True, False])
def test_a_run_that_has_the_name_of_an_event_file_is_refused(output: Path, in_place: bool) -> None:
    (output / "tfevents").mkdir()
    (output / "tfevents" / "a.tfevents").write_bytes(b"a")
    (output / "first").mkdir()
    (output / "first" / "tfevents").write_bytes(b"1")
    with pytest.raises(PathError, match="train has a run and an event file of the same name: tfevents/a"):
        event_files(output, in_place).update()


def test_without_tensorboard_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(ConfigError, match=r"pip install 'openpai-tasks\[tensorboard\]'"):
        TensorBoard(None, "train")  # type: ignore[arg-type]


def test_signing_out_ends_what_was_started_for_a_browser(tmp_path: Path) -> None:
    sessions, ended = Sessions(tmp_path), list[str]()

    def browser(board: str) -> Session:
        session = sessions.open(Session(lambda alias: None))  # type: ignore[arg-type, return-value]
        session.boards[board] = SimpleNamespace(close=lambda: ended.append(board))  # type: ignore[assignment]
        return session

    closed, expired = browser("one"), browser("two")
    with closed.starting:  # in another request
        sessions.close(closed)
        assert not ended
        closed.boards["late"] = SimpleNamespace(close=lambda: ended.append("late"))  # type: ignore[assignment]
    until(lambda: ended == ["late", "one"])
    expired.used -= SESSION_SECONDS + 1
    assert sessions.find("of another browser", "", "") is None
    until(lambda: ended == ["late", "one", "two"])
