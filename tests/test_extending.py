"""docs/extending.md agrees with the interfaces that it explains."""

import inspect
import re
from pathlib import Path

import pytest

from openpai_tasks.backends import kinds
from openpai_tasks.backends.base import Backend, Driver
from openpai_tasks.server.engines.base import Engine

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "extending.md").read_text()


def listed(column: str) -> list[str]:
    """Return the names in the first column of the table with this heading."""
    table = PAGE.split(f"| {column} |")[1].split("\n\n")[0]
    firsts = [line.split("|")[1] for line in table.splitlines()[2:]]
    return [name for cell in firsts for name in re.findall(r"`([\w./]+)`", cell)]


def members(interface: type) -> set[str]:
    known = {*vars(interface), *interface.__annotations__}
    names = {name for name in known if not name.startswith("_")}
    return names - {"cluster", "patience"}  # values, not operations


@pytest.mark.parametrize(
    ("column", "interface"),
    [
        ("function of `Driver`", Driver),
        ("operations of `Backend`", Backend),
        ("methods of `Engine`", Engine),
    ],
)
def test_table_lists_every_member_of_the_interface_once(column, interface):
    assert sorted(listed(column)) == sorted(members(interface))


def test_folder_of_the_example_is_complete():
    folder = Path(inspect.getfile(kinds)).parent / "paddlecloud"
    explained = {Path(name).name for name in listed("module of `backends/paddlecloud/`")}
    helpers = {"__init__.py"}
    assert explained == {path.name for path in folder.glob("*.py")} - helpers


def test_named_values_exist():
    # the page names all, and "the second kind"
    assert {*kinds.KINDS} == {"openpai", "paddlecloud", "ssh", "slurm"}
    for words in (
        "require(self",
        "ServerConnection",
        "LocalEngine",
        "TaskQueued",
        "TokenStore",
        "ClusterStorage",
        "TaskPlace",
        "EngineCapacity",
    ):
        name = re.match(r"\w+", words)[0]
        assert words in PAGE
        found = [
            path
            for path in (ROOT / "openpai_tasks").rglob("*.py")
            if re.search(rf"^(class|def) {name}\b", path.read_text(), re.M)
        ]
        assert found, name
