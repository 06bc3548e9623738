"""The code passes the linter (with its security rules), the formatter and the type checker."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.needs import needs

ROOT = Path(__file__).parent.parent
MYPY = "mypy --cache-dir=/dev/null" if os.environ.get("CI") else "mypy"  # CI would only write the cache


@pytest.mark.parametrize(
    "command",
    [
        "ruff check",
        "ruff format --check",
        pytest.param(MYPY, marks=needs("adlfs", "mkdocs")),  # whose types it reads
    ],
)
def test_code_passes_lint_format_and_type_checks(command):
    done = subprocess.run(
        [sys.executable, "-m", *command.split()], cwd=ROOT, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stdout + done.stderr
