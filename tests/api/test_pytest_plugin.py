"""The pytest plugin: an embedded cluster for the tests of a project."""

import os
import re
import sys

from tests.api.test_python_docs import examples, page
from tests.test_startup import loaded

PLUGIN = "openpai_tasks.api.pytest_plugin"
TESTS = """
import os
from pathlib import Path

from openpai_tasks import Job, submit


def test_a_job_of_the_project(pai_cluster):
    assert submit("echo 1").wait().state == "SUCCEEDED"
    submit("sleep 60", job_name="left-behind")


def test_its_unfinished_jobs_are_stopped(pai_cluster):
    assert Job("left-behind").wait(timeout=100).state == "STOPPED"
    assert [job.name for job in pai_cluster.jobs("left-*")] == ["left-behind"]
    assert Path(os.environ["OPENPAI_HOME"], "local", "cluster.db").exists()


def test_without_the_fixture_the_environment_is_the_users():
    assert os.environ["OPENPAI_HOME"] == "/nowhere"
"""


def test_a_project_tests_its_jobs_on_an_embedded_cluster(shell):
    """Neither the user's home nor the cluster that the project selects is used."""
    (shell.project / "pytest.ini").touch()  # pytest looks for settings in no folder above
    (shell.project / "test_jobs.py").write_text(TESTS)
    (shell.project / "test_example.py").write_text("\n".join(examples("python.md", is_test=True)))
    (shell.project / "train.py").write_text(
        re.search(r'"train.py".*?"""(.*?)"""', page("python.md"), re.S)[1]
    )
    (shell.project / "invoke.yaml").write_text("openpai:\n  cluster-alias: production\n")
    options = ["-q", "-p", PLUGIN, "-p", "no:cacheprovider", "--basetemp", str(shell.home.parent / "temp")]
    ran = shell.run(
        *(sys.executable, "-m", "pytest", *options, "test_jobs.py", "test_example.py"),
        PYTEST_DISABLE_PLUGIN_AUTOLOAD="1",
        OPENPAI_HOME="/nowhere",
    )
    assert ran.code == 0, ran
    assert "4 passed" in ran.out
    assert not any("server.json" in files for _, _, files in os.walk(shell.home.parent / "temp"))


def test_the_plugin_loads_nothing_before_it_is_used(shell):
    ours = loaded(shell, f"import pytest, {PLUGIN}") - loaded(shell, "import pytest")
    assert ours == {"lazy_loader", "openpai_tasks", "openpai_tasks.api", PLUGIN}
