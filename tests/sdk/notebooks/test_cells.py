"""Notebooks that deviate from their format are repaired or refused before anything is sent."""

import json
import os
import subprocess
import sys

import nbformat
import pytest

from openpai_tasks.errors import PathError
from openpai_tasks.sdk.notebooks.notebook_file import read_notebook
from openpai_tasks.sdk.payloads import notebook_runner as runner
from tests.notebook_files import cell, notebook, text


@pytest.fixture
def sent(tmp_path):
    """Return the notebook as it is sent, and check that it is valid."""

    def sent(content):
        (tmp_path / "n.ipynb").write_text(json.dumps(content))
        found = json.loads(read_notebook("n.ipynb", tmp_path).as_sent())
        nbformat.validate(found, relax_add_props=True)
        return found

    return sent


def heading(source, level):
    return {"cell_type": "heading", "metadata": {}, "source": source, "level": level}


def test_heading_becomes_markdown(sent):
    cells = sent(notebook(heading(["Two\n", "lines"], 2), heading("odd", "x"), "1"))["cells"]
    assert [(one["cell_type"], one["source"]) for one in cells[:2]] == [
        ("markdown", "## Two lines"),
        ("markdown", "# odd"),
    ]


TAGS = {"parameters": ["parameters"], "a, parameters": ["a", "parameters"], "": []}


@pytest.mark.parametrize("tags", TAGS, ids=repr)
def test_text_tags_become_a_list(sent, tags):
    [found] = sent(notebook(cell("1", metadata={"tags": tags})))["cells"]
    assert found["metadata"]["tags"] == TAGS[tags]


@pytest.mark.parametrize("tags", [1, None, {}, ["a", 1]], ids=repr)
def test_other_tags_are_refused(sent, tags):
    with pytest.raises(PathError, match="its cell 1 has tags that are not a list"):
        sent(notebook(cell("1", metadata={"tags": tags})))


def test_cells_without_a_valid_unique_id_get_a_stable_one(sent):
    lost = cell("3")
    del lost["id"]
    content = notebook(cell("1", id="same"), cell("2", id="same"), lost, cell("4", id="no good"), text("t"))
    found = sent(content)
    names = [one["id"] for one in found["cells"]]
    assert len(set(names)) == 5 and names[0] == "same" and names[4] == content["cells"][4]["id"]
    assert sent(content) == found


def test_cells_of_older_formats_get_no_id(sent):
    found = sent({**notebook("1"), "nbformat_minor": 4})
    assert "id" not in found["cells"][0] and found["nbformat_minor"] == 4


SPECS = {
    "no display": ({"kernelspec": {"name": "ir"}}, {"kernelspec": {"name": "ir", "display_name": "ir"}}),
    "no name": ({"kernelspec": {"display_name": "R"}, "language_info": {}}, {}),
    "no mapping": ({"kernelspec": "ir", "language_info": None, "title": "t"}, {"title": "t"}),
}


@pytest.mark.parametrize("name", SPECS)
def test_kernel_and_language_metadata_are_made_valid(sent, name):
    given, wanted = SPECS[name]
    assert sent(notebook("1", metadata=given))["metadata"] == wanted


def test_normalised_notebook_runs_and_converts_without_errors(sent, tmp_path):
    lost = cell("x = 1", metadata={"tags": "parameters"})
    del lost["id"]
    content = sent(notebook(heading("Title", 1), lost, cell("print(x)", id="?"), metadata={}))
    (tmp_path / "sent.ipynb").write_text(json.dumps(content))
    done = subprocess.run(
        [sys.executable, runner.__file__, "sent.ipynb", "--parameters", '{"x": 2}'],
        cwd=tmp_path,
        env={**os.environ, "PAI_OUTPUT_DIR": str(tmp_path / "out")},
        capture_output=True,
        text=True,
    )
    # A kernel that ends may still report that its own streams are closed.
    assert done.returncode == 0 and "nbconvert" not in done.stderr and "Warning" not in done.stderr, done
    assert done.stdout.splitlines()[-1] == "notebook: wrote sent.ipynb, sent.html"
    assert ">Title<a" in (tmp_path / "out" / "sent.html").read_text()
