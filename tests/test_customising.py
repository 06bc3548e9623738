"""The examples of docs/customising.md are run as they stand there."""

import re
from pathlib import Path

import pytest

TEXT = (Path(__file__).parent.parent / "docs" / "customising.md").read_text()
EXAMPLES = re.findall(r"```python\n(# tasks\.py\n.*?)```\s+```console\n(.*?)```", TEXT, re.S)


def dialogue(console):
    """Each command with what it is said to print."""
    for part in re.split(r"^\$ ", console, flags=re.M)[1:]:
        command, _, said = part.partition("\n")
        yield command, said


def test_every_example_is_found():
    assert len(EXAMPLES) == TEXT.count("```python") == TEXT.count("```console")


@pytest.mark.parametrize("tasks, console", EXAMPLES)
def test_the_example_does_what_the_page_says(shell, tasks, console):
    (shell.project / "tasks.py").write_text(tasks)
    for command, said in dialogue(console):
        ran = shell.run("sh", "-c", command)
        assert re.sub(r" +$", "", ran.out + ran.err, flags=re.M) == said
