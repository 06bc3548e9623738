"""The API is loaded on first use."""

import ast
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


def test_type_checkers_see_every_public_name_and_no_other():
    """A visible ``__getattr__`` would let them accept a misspelt name."""
    path = Path(openpai_tasks.__file__)
    tree = ast.parse(path.read_text())
    blocks = {ast.unparse(node.test): node.body for node in tree.body if isinstance(node, ast.If)}
    seen = {name.asname for node in blocks["TYPE_CHECKING"] for name in node.names}
    assert seen == set(openpai_tasks._MODULES)
    assert [node.name for node in blocks["not TYPE_CHECKING"]] == ["__getattr__"]
    assert "__getattr__" not in {getattr(node, "name", "") for node in tree.body}
    assert (path.parent / "py.typed").exists()


def test_public_names_are_listed():
    assert {"Cluster", "ClusterList", "Job", "OpenPAIClient", "submit"} <= set(dir(openpai_tasks))
    names = {}
    exec("from openpai_tasks import *", names)
    assert set(names) - {"__builtins__"} == set(openpai_tasks._MODULES)
