"""The examples in docstrings of the API work."""

import doctest
import importlib
import pkgutil

import pytest

from openpai_tasks import api

MODULES = [f"{api.__name__}.{found.name}" for found in pkgutil.iter_modules(api.__path__)]
WITH_EXAMPLES = {"Job", "submit", "Cluster", "OpenPAIClient", "ClusterList", "RemoteStorage"}


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_work(project, name):
    result = doctest.testmod(importlib.import_module(name))
    assert not result.failed


def test_every_public_class_has_an_example():
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = [test for name in MODULES for test in finder.find(importlib.import_module(name)) if test.examples]
    assert {test.name.rpartition(".")[2] for test in found} >= WITH_EXAMPLES
