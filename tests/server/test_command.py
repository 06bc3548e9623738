"""The command that runs a server."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from openpai_tasks.server import command


def test_server_that_finds_no_space_ends_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "server.json"))

    monkeypatch.setattr(command, "run", run)
    assert command.main(["--home", str(tmp_path), "--engine", "process"]) == 125
    assert capsys.readouterr().err == f"error: No space left on device: {tmp_path}/server.json\n"
