"""Collect the tests of a file when a worker of pytest-xdist begins to run it.

Otherwise each worker collects all files first: 10,000 tests and their modules, most of which others run.
"""

from __future__ import annotations

import compileall
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

LONG_FIRST = (  # files and folders
    "hdfs",
    "test_contract.py",
    "test_benchmarks.py",
    "test_lint.py",
    "test_running.py",
    "test_odd_input.py",
    "test_old_sdk.py",
    "test_screen.py",
    "test_tutorials.py",
    "storage",
    "e2e",
    "test_forkserver.py",
    "test_layers.py",
    "test_packaging.py",
    "test_docs.py",
    "test_job_storage.py",
    "portal",
    "server",
    "sdk",
    "tasks",
)


class LaterModule(pytest.Module):
    """A module of tests that is imported when it is collected for the second time."""

    _tests: TestsOfFile | None = None

    def collect(self) -> Any:
        if self._tests:
            return super().collect()
        self._tests = TestsOfFile.from_parent(self, name="tests")
        return [self._tests]


class TestsOfFile(pytest.Item):
    """The tests of a file until they are collected."""

    __test__ = False

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.add_marker(pytest.mark.timeout(0))  # each test has its own limit

    def runtest(self) -> None:
        raise NotImplementedError  # pytest_runtest_protocol runs the tests instead

    def run(self, nextitem: pytest.Item | None) -> None:
        session = self.session
        with _without_garbage_collection():
            tests = list(session.genitems(self.parent))
            self.config.hook.pytest_collection_modifyitems(session=session, config=self.config, items=tests)
        if not tests:  # the previous file has left standing what it shares with this one
            session._setupstate.teardown_exact(nextitem)
        index = session.items.index(self)
        for number, test in enumerate(tests, 1):
            session.items[index] = test  # pytest-xdist compares the reports with it
            following = tests[number] if number < len(tests) else nextitem
            self.config.hook.pytest_runtest_protocol(item=test, nextitem=following)
            if session.shouldfail or session.shouldstop:
                break
        session.items[index] = self


def pytest_pycollect_makemodule(module_path: Path, parent: Any) -> pytest.Module | None:
    if not hasattr(parent.config, "workerinput") or _chooses_tests(parent.config):
        return None
    return LaterModule.from_parent(parent, path=module_path)


def _chooses_tests(config: pytest.Config) -> bool:
    """Return whether single tests are chosen, for which their names must be known first."""
    options = config.option
    by_name = any("::" in argument for argument in config.args)
    failed_only = getattr(options, "lf", False)  # not there with -p no:cacheprovider
    return by_name or bool(options.keyword or options.markexpr or options.deselect or failed_only)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    if not isinstance(item, TestsOfFile):
        return None
    item.run(nextitem)
    return True


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class ByFile(LoadFileScheduling):
        """Assigns a worker the file after the one that it runs, and no more."""

        def _reschedule(self, node: Any) -> None:
            if not self.workqueue or self._pending_of(self.assigned_work[node]) < 2:
                super()._reschedule(node)

    return ByFile(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start the slowest tests first, so that no worker is left alone with them at the end."""

    def rank(item: pytest.Item) -> int:
        parts = item.nodeid.partition("::")[0].split("/")
        return min((LONG_FIRST.index(part) for part in parts if part in LONG_FIRST), default=len(LONG_FIRST))

    items.sort(key=rank)


def pytest_configure(config: pytest.Config) -> None:
    """Write the package's bytecode before the workers and their fork servers all compile it at once."""
    if getattr(config.option, "numprocesses", None) and not sys.dont_write_bytecode:
        compileall.compile_dir(Path(__file__).parent.parent / "openpai_tasks", quiet=2)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Any:
    with _without_garbage_collection():
        return (yield)


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Keep the garbage collector away from tests and modules: many objects, which all stay."""
    gc.disable()
    try:
        yield
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()
