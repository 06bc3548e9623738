"""Suggested commands begin with the program that runs, and can be pasted into a shell."""

import pytest

from openpai_tasks.tasks import namespace
from openpai_tasks.text import hints


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


def test_hints_name_the_cluster_that_the_user_named():
    hints.use_cluster("my lab")
    assert hints.command("job.logs", "train") == "pai job.logs train -a 'my lab'"
    assert hints.command("notebook.pull", "-a", "other") == "pai notebook.pull -a other"
    assert hints.command("job.templates") == "pai job.templates"
    assert hints.command("cluster.list") == "pai cluster.list"
    hints.use_program(["pai"])
    assert hints.command("job.logs", "train") == "pai job.logs train"


def test_tasks_that_take_no_cluster_are_known():
    tasks = namespace()
    without = {
        name
        for name in tasks.task_names
        if name.split(".")[0] in hints.ON_A_CLUSTER
        and not any("cluster-alias" in argument.names for argument in tasks[name].get_arguments())
    }
    assert without == hints.WITHOUT_CLUSTER
