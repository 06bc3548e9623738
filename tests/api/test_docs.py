"""The examples of the page about the executor, and of docstrings, run and give what is written there."""

import doctest
import re
import subprocess
import sys
from pathlib import Path

import pytest

from openpai_tasks.api.futures import executor, remote
from tests.notices import without_resources

PAGE = Path(__file__).parent.parent.parent / "docs" / "executor.md"


def test_examples_print_what_their_comments_say(cluster):
    text = PAGE.read_text()
    blocks = re.findall(r"<!-- run -->\n```python\n(.*?)```", text, re.S)
    assert len(blocks) == text.count("```python")
    (cluster.project / "examples.py").write_text("\n".join(blocks))
    done = subprocess.run(
        [sys.executable, "examples.py"],
        cwd=cluster.project,
        env=cluster.environment,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, without_resources(done.stderr)) == (0, "")
    promised = [line for block in blocks for line in re.findall(r"print\(.*\)  # (.*)", block)]
    assert done.stdout.splitlines() == [*promised[0].split(", "), *promised[1:]]


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("module, count", [(executor, 3), (remote, 3)], ids=["executor", "remote"])
def test_examples_of_docstrings_run(module, count):
    assert doctest.testmod(module) == (0, count)
