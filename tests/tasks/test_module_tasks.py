"""A collection's module is loaded when one of its tasks is named."""

import copy
import sys
from pathlib import Path

import pytest

from openpai_tasks.tasks import COLLECTIONS, namespace
from tests.terminals import on_terminal
from tests.test_startup import loaded

RUN = "from openpai_tasks.tasks.program import PaiProgram as P; P().run(['pai', *{words!r}], exit=False)"


def task_modules(shell, *words):
    modules = loaded(shell, RUN.format(words=words))
    return {name for name in COLLECTIONS if f"openpai_tasks.tasks.{name}" in modules}


def test_naming_a_task_loads_its_collection_alone(shell):
    assert task_modules(shell, "--help", "config.set") == {"config"}


def test_listing_loads_every_collection(shell):
    assert task_modules(shell, "--list") == set(COLLECTIONS)


def test_the_front_page_loads_no_task(shell):
    assert not task_modules(shell)


def test_an_unknown_attribute_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nonsense"):
        _ = namespace().collections["job"].nonsense


def test_a_collection_is_described_by_its_module():
    assert namespace().collections["job"].__doc__ == "Submit, watch and stop jobs."


@pytest.mark.parametrize("twin", [copy.copy, copy.deepcopy])
def test_copies_have_the_same_tasks(twin):
    tasks = namespace().collections["job"]
    assert twin(tasks).task_names == tasks.task_names
    assert twin(tasks).default == "list" and twin(tasks).__doc__ == "Submit, watch and stop jobs."


@pytest.mark.parametrize("columns", [10, 40, 80])
def test_lists_fit_terminals_of_any_width(shell, columns):
    program = [str(Path(sys.executable).parent / "inv"), "--list", "job"]
    code, out = on_terminal(program, columns, cwd=shell.project, OPENPAI_HOME=str(shell.home))
    assert code == 0 and ".sub" in out and "Traceback" not in out
    assert columns < 40 or max(map(len, out.splitlines())) <= columns
