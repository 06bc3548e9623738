"""The examples of docs/runtime.md run: its programs are written, and its commands are run in order."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parent.parent / "docs" / "runtime.md"
pytestmark = pytest.mark.timeout(300)  # many commands, one after the other
EXPECTED = (
    "loss 0.122",
    ".pai/checkpoints/state/",
    "model.json",
    "batch\n",
    "works in batch",
    "model/best.pt",
    "rank 1 of 2",
)
"""What the commands print, among other things."""


def blocks(text):
    """Return the name of each program with its text, and None with each block of commands, in order."""
    found = re.findall(r"<!-- (?:file: (\S+)|run) -->\n```(?:python|sh)\n(.*?)```", text, re.S)
    return [(name or None, content) for name, content in found]


def run_page(shell, **variables):
    """Run the page in the shell; return all that its commands printed."""
    printed = ""
    for name, content in blocks(PAGE.read_text()):
        if name:
            (shell.project / name).write_text(content)
            continue
        for line in content.splitlines():
            ran = shell.run("sh", "-c", line, **variables)
            assert ran.code == 0, (line, ran)
            printed += ran.out
    return printed


def test_every_program_of_the_page_is_run():
    text = PAGE.read_text()
    assert text.count("```python") == text.count("<!-- file: ") + 1  # the line that imports the runtime


def test_examples_run_in_order(cluster):
    printed = run_page(cluster)
    assert [text for text in EXPECTED if text not in printed] == []
