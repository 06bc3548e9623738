"""Cells that speak to the cluster stay here, whatever way a notebook is sent."""

import json

import pytest

from openpai_tasks.errors import ConfigError
from openpai_tasks.sdk import notebooks
from openpai_tasks.sdk.notebook_travelling import speaks_to_the_cluster
from tests.notebook_files import text, write


@pytest.mark.parametrize(
    "source",
    [
        "%load_ext openpai_tasks",
        "x = 1\n%pai job.list",
        "jobs = %pai job.list",
        "%%pai_sub --gpu 1\nprint(1)",
    ],
)
def test_our_magics_speak_to_the_cluster(source):
    assert speaks_to_the_cluster(source)
    assert speaks_to_the_cluster("job = submit_this_notebook(gpu=1)")


@pytest.mark.parametrize("source", ["%load_ext autoreload", "%paint", "print('%pai')", "x = 5 %pais"])
def test_other_cells_do_not(source):
    assert not speaks_to_the_cluster(source)


def sent(path, folder):
    """The cells as they go along."""
    (copy, _) = notebooks.files(notebooks.read(path.name, path.parent), folder)
    return json.loads(copy.path.read_text())["cells"]


def test_they_go_along_as_text_only_and_it_is_told(tmp_path):
    path = write(
        tmp_path / "a.ipynb", "%load_ext openpai_tasks", text("# title"), "print(1)", "%pai job.list"
    )
    assert [cell["cell_type"] for cell in sent(path, tmp_path)] == ["raw", "markdown", "code", "raw"]
    assert "outputs" not in sent(path, tmp_path)[0]
    said = notebooks.remarks(notebooks.read("a.ipynb", tmp_path), notebooks.Options())
    assert said == ["2 cells that speak to the cluster stay here"]


def test_a_notebook_that_only_speaks_to_the_cluster_is_refused(tmp_path):
    write(tmp_path / "a.ipynb", "%load_ext openpai_tasks", text("# title"))
    with pytest.raises(ConfigError, match="no other cells"):
        notebooks.remarks(notebooks.read("a.ipynb", tmp_path), notebooks.Options())


def test_a_notebook_of_format_3_goes_as_it_is(tmp_path):
    told = {"nbformat": 3, "nbformat_minor": 0, "metadata": {}, "worksheets": [{"cells": []}]}
    (tmp_path / "old.ipynb").write_text(json.dumps(told))
    (copy, _) = notebooks.files(notebooks.read("old.ipynb", tmp_path), tmp_path)
    assert json.loads(copy.path.read_text()) == told
