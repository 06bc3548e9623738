"""Only regular files are opened."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from openpai_tasks.regular_files import is_regular, open_regular


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"text")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    os.mkfifo(tmp_path / "pipe")
    with open_regular(tmp_path / "file") as file:
        assert file.read() == b"text"
    for name in ("link", "pipe", "missing", "file/below", "."):
        with pytest.raises(FileNotFoundError):
            open_regular(tmp_path / name)
        assert not is_regular(tmp_path / name)
