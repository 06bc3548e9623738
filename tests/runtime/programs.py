"""Programs that use the runtime as a job does: as one file, without this package."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import openpai_tasks

RUNTIME = Path(openpai_tasks.__file__).parent / "runtime.py"

JOB = {
    "PAI_JOB_NAME": "me~train-1",
    "PAI_USER_NAME": "me",
    "PAI_TASK_ROLE_LIST": "main",
    "PAI_CURRENT_TASK_ROLE_NAME": "main",
    "PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX": "0",
    "FC_FRAMEWORK_ATTEMPT_ID": "0",
    "PAI_TASKS_NUM": "1",
}


class Program:
    """A program in a folder with a copy of the runtime, run by an isolated Python outside of the package."""

    def __init__(self, folder: Path, text: str, **variables: str) -> None:
        self.work, self.output = folder / "work", folder / "jobs" / "train-1" / "output"
        self.work.mkdir(exist_ok=True)
        self.output.mkdir(parents=True, exist_ok=True)
        shutil.copy(RUNTIME, self.work)
        path = f"import sys; sys.path.insert(0, {str(self.work)!r})\n"
        (self.work / "program.py").write_text(path + text)
        self.variables = {
            "PATH": os.environ["PATH"],
            **JOB,
            "PAI_OUTPUT_DIR": str(self.output),
            **variables,
        }

    def start(self, *words: str, python: str = sys.executable, **variables: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [python, "-I", "program.py", *words],
            cwd=self.work,
            env={**self.variables, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str, **options: Any) -> tuple[int, str, str]:
        """Run it to its end; return its exit code, stdout and stderr."""
        process = self.start(*words, **options)
        out, err = process.communicate(timeout=100)
        return process.returncode, out, err
