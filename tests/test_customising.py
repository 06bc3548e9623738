"""Run the examples of docs/customising.md and compare their output with the page."""

import re
from pathlib import Path

import pytest

TEXT = (Path(__file__).parent.parent / "docs" / "customising.md").read_text()
EXAMPLES = re.findall(r"```python\n(# tasks\.py\n.*?)```\s+```console\n(.*?)```", TEXT, re.S)


def dialogue(console):
    """Yield each command with the output that the page shows for it."""
    for part in re.split(r"^\$ ", console, flags=re.M)[1:]:
        command, _, output = part.partition("\n")
        yield command, output


def test_every_example_is_found():
    assert len(EXAMPLES) == TEXT.count("```python") == TEXT.count("```console")


@pytest.mark.parametrize("tasks, console", EXAMPLES)
def test_example_prints_what_the_page_shows(shell, tasks, console):
    (shell.project / "tasks.py").write_text(tasks)
    for command, expected in dialogue(console):
        ran = shell.run("sh", "-c", command)
        assert re.sub(r" +$", "", ran.out + ran.err, flags=re.M) == expected
