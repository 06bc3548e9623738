"""A job that replaces its own files by something else harms only itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from openpai_tasks.server.engines import task_state
from tests.server.workshop import Workshop, until, workshop

__all__ = ["workshop"]  # the fixture
Make = Callable[..., Workshop]


@pytest.mark.parametrize("name", ["logs/all", "exit", "exit.new"])
def test_job_that_replaces_its_file_by_a_pipe_does_not_block_others(workshop: Make, name: str) -> None:
    here = workshop()
    find = f"find {here.folder} -name started -execdir sh -c 'rm -f {name}; mkfifo {name}' \\;"
    here.submit("hostile", f"{find}; touch {here.folder}/replaced; exit 1")
    until((here.folder / "replaced").exists)  # otherwise it may also find the files of the other job
    assert here.run("other", "echo fine").state == "SUCCEEDED"


@pytest.mark.parametrize("text", ["code", "code x\n", "code 1\n", "a b c\n", "\0"])
def test_damaged_exit_file_is_ignored(tmp_path: Path, text: str) -> None:
    (tmp_path / "exit").write_text(text)
    assert task_state.read_exit(tmp_path) is None
