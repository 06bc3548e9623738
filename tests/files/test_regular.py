"""Only regular files are opened."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from openpai_tasks.files.regular import LARGEST, is_regular, open_regular, read_limited


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


def test_larger_files_are_refused_and_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * LARGEST)
    (tmp_path / "link").symlink_to("file")
    assert len(read_limited(tmp_path / "link")) == LARGEST
    os.truncate(tmp_path / "file", LARGEST + 1)
    with pytest.raises(OSError, match="it is larger than 4 MB"):
        read_limited(tmp_path / "link")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="it is not a regular file"):
        read_limited(tmp_path / "pipe")
    with pytest.raises(FileNotFoundError):
        read_limited(tmp_path / "missing")
