"""Locks in the home folder."""

from __future__ import annotations

from pathlib import Path

from openpai_tasks.settings.home import lock_file, locked


def test_a_lock_whose_file_its_last_holder_removed_is_taken_again(tmp_path: Path) -> None:
    path, handles = tmp_path / "folder" / "start", []

    def wait(handle: int) -> None:
        handles.append(handle)
        if len(handles) == 1:
            lock_file(path).unlink()
            path.parent.rmdir()

    with locked(path, wait):
        assert lock_file(path).exists() and len(handles) == 2
