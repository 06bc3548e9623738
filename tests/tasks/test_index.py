"""Tasks are listed from an index, and load when they are used."""

import copy
import sys
from pathlib import Path

import pytest
from invoke.context import Context
from invoke.tasks import Task

from openpai_tasks.tasks import namespace
from openpai_tasks.tasks.framework import write_index
from openpai_tasks.tasks.framework.task import LazyTask
from tests.terminals import on_terminal


def test_index_matches_the_tasks():
    written = write_index.FILE.read_text(encoding="utf-8")
    hint = "run `python -m openpai_tasks.tasks.framework.write_index`"
    assert written == write_index.index(), hint


@pytest.fixture
def lazy():
    return namespace()["job.list"]


def test_a_lazy_task_becomes_the_task_on_first_use(lazy):
    assert isinstance(lazy, LazyTask) and lazy.name == "list" and lazy.is_default
    from openpai_tasks.tasks import job

    assert "limit" in lazy.help
    assert type(lazy) is type(job.list_) and lazy == job.list_ and hash(lazy) == hash(job.list_)
    assert lazy.__doc__ == job.list_.__doc__


def test_a_copy_of_a_lazy_task_works_too(lazy):
    twin = copy.copy(lazy)
    assert isinstance(twin, Task) and twin.body is lazy.body


def test_a_lazy_task_has_the_flags_of_the_task(lazy):
    assert "virtual-cluster" in {argument.names[0] for argument in lazy.get_arguments()}


def test_an_unknown_attribute_is_an_attribute_error(lazy):
    with pytest.raises(AttributeError, match="nonsense"):
        _ = lazy.nonsense


def test_a_lazy_task_can_be_called(monkeypatch):
    from openpai_tasks.tasks import job_schema

    called = []
    monkeypatch.setattr(job_schema.schema, "body", lambda *args: called.append(args))
    c = Context()
    namespace()["job.schema"](c)
    assert called == [(c,)]


@pytest.mark.parametrize("columns", [10, 40, 80])
def test_lists_fit_terminals_of_any_width(shell, columns):
    program = [str(Path(sys.executable).parent / "inv"), "--list", "job"]
    code, out = on_terminal(program, columns, cwd=shell.project, OPENPAI_HOME=str(shell.home))
    assert code == 0 and ".sub" in out and "Traceback" not in out
    assert columns < 40 or max(map(len, out.splitlines())) <= columns
