"""Suggested commands begin with the program that runs, and can be pasted into a shell."""

import pytest

from openpai_tasks import hints


def test_hints_use_pai_by_default():
    assert hints.command("job.list") == "pai job.list"


@pytest.mark.parametrize(
    ("names", "program"),
    [
        (["inv", "invoke"], "inv"),
        (["__main__.py", "invoke", "inv"], "invoke"),
        (["fab"], "fab"),
        (["pytest"], "pai"),
    ],
)
def test_hints_use_the_name_of_the_running_program(names, program):
    hints.use_program(names)
    assert hints.command("job.list") == f"{program} job.list"


def test_arguments_are_quoted_for_the_shell():
    assert hints.command("job.submit", "my job.yaml", "--follow") == "pai job.submit 'my job.yaml' --follow"
