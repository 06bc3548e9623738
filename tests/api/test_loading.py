"""The API is loaded on first use."""

from pathlib import Path

import openpai_tasks
from tests.test_startup import loaded


def test_importing_the_package_loads_nothing_of_the_api(shell):
    modules = loaded(shell, "import openpai_tasks")
    assert {name for name in modules if name.startswith("openpai_tasks")} == {"openpai_tasks"}


def test_a_job_loads_neither_tasks_nor_the_server(shell):
    modules = loaded(shell, "from openpai_tasks import ClusterList, Job, OpenPAIClient, submit")
    assert "openpai_tasks.api.job" in modules
    rooms = ("openpai_tasks.tasks", "openpai_tasks.server", "openpai_tasks.magics", "openpai_tasks.render")
    assert not [name for name in modules if name.startswith(rooms)]
    assert not {"asyncio", "fabric", "invoke", "paramiko", "requests", "rich"} & modules


def test_public_names_are_listed():
    assert {"Cluster", "ClusterList", "Job", "OpenPAIClient", "submit"} <= set(dir(openpai_tasks))
    names = {}
    exec("from openpai_tasks import *", names)
    assert set(names) - {"__builtins__"} == set(openpai_tasks.__all__)


def test_type_checkers_find_the_stubs():
    assert (Path(openpai_tasks.__file__).parent / "py.typed").exists()
