"""Command lines run in this process, in a separate project folder for each test."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from invoke import Program

from openpai_tasks.tasks.framework.invoke_patches import patch_invoke
from openpai_tasks.tasks.program import PaiProgram, TasksLoader
from tests.conftest import Ran

HELLO = """
from invoke import Collection
from openpai_tasks.tasks import Namespace, task
from openpai_tasks.tasks.framework.base import remainder
from openpai_tasks.tasks.framework.invoke_patches import patch_invoke

patch_invoke()
ns = Namespace()
"""


class Project:
    """A folder with a tasks.py, and the lines that are typed in it."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.capsys = folder, capsys

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def tasks(self, text: str) -> None:
        """Write a tasks.py with our empty namespace ``ns`` and the given text."""
        self.write("tasks.py", HELLO + text)

    def inv(self, *words: str) -> Ran:
        return self._run(Program(name="Invoke", binary="inv", version="0"), "inv", words)

    def pai(self, *words: str) -> Ran:
        program = PaiProgram(
            name="pai", binary="pai", binary_names=["pai"], version="0", loader_class=TasksLoader
        )
        return self._run(program, "pai", words)

    def _run(self, program: Program, name: str, words: tuple[str, ...]) -> Ran:
        self.program = program
        sys.modules.pop("tasks", None)
        path = list(sys.path)
        code: Any = 0
        try:
            program.run([name, *words])
        except SystemExit as err:
            code = err.code
        finally:
            sys.path[:] = path
        out, err = self.capsys.readouterr()
        return Ran(code or 0, out, err)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Project:
    """An empty project folder with a home beside it, without the developer's own settings."""
    for name in os.environ:
        if name.startswith(("INVOKE_", "OPENPAI_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setenv("OPENPAI_HOME", str(tmp_path / "home"))
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    patch_invoke()
    return Project(folder, capsys)
