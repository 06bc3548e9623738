"""Locks in the home folder, and folders for its sockets."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from openpai_tasks.errors import ConfigError
from openpai_tasks.settings import home
from openpai_tasks.settings.home import lock_file, locked, remove_socket_folder, socket_folder


def test_a_lock_whose_file_its_last_holder_removed_is_taken_again(tmp_path: Path) -> None:
    path, handles = tmp_path / "folder" / "start", []

    def wait(handle: int) -> None:
        handles.append(handle)
        if len(handles) == 1:
            lock_file(path).unlink()
            path.parent.rmdir()

    with locked(path, wait):
        assert lock_file(path).exists() and len(handles) == 2


def test_a_folder_for_sockets_in_tmp_is_removed_again_but_not_the_private_one_around_it(
    tmp_path: Path,
) -> None:
    folder = tmp_path / ("long" * 20)
    short = socket_folder(folder)
    (short / "server.sock").touch()
    remove_socket_folder(folder)
    assert short.is_dir() and not folder.exists()
    (short / "server.sock").unlink()
    remove_socket_folder(folder)
    assert not short.exists() and short.parent.stat().st_mode & 0o777 == 0o700


@pytest.fixture
def other_user(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder in /tmp of another user, whom this process seems to be."""
    uid = 1 << 30 | os.getpid()
    monkeypatch.setattr("os.geteuid", lambda: uid)
    path = Path("/tmp", f"openpai-{uid}")
    yield path
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


@pytest.mark.parametrize("kind", ["folder", "link", "file"])
def test_a_path_that_a_neighbour_has_created_first_is_refused(
    other_user: Path, tmp_path: Path, kind: str
) -> None:
    if kind == "link":
        other_user.symlink_to(tmp_path)
    else:
        other_user.touch() if kind == "file" else other_user.mkdir(mode=0o700)
    with pytest.raises(ConfigError, match="other users: set OPENPAI_HOME to a shorter path"):
        socket_folder(tmp_path / ("long" * 20))
    assert kind == "file" or not list(other_user.iterdir())


def test_folders_for_sockets_of_deleted_homes_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("gone", "here", "used", "young")
    owners = {name: tmp_path / f"{'long' * 20}-{name}" for name in (*names, "last")}
    owners["here"].mkdir()
    with TemporaryDirectory(dir="/tmp") as parent, socket.socket(socket.AF_UNIX) as control:
        monkeypatch.setattr(home, "_short_folder", lambda folder: Path(parent, folder.name[80:]))
        made = {name: socket_folder(owners[name]) for name in names}
        control.bind(str(made["used"] / "control"))
        control.listen()
        for name in names[:3]:
            os.utime(made[name], (0, 0))
        socket_folder(owners["last"])
        assert [name for name in names if not made[name].exists()] == ["gone"]
