"""Cells that use the cluster are not run, however a notebook is sent."""

import json
import time

import pytest

from openpai_tasks.errors import ConfigError
from openpai_tasks.sdk.notebooks import running
from openpai_tasks.sdk.notebooks.cluster_cells import code_for_job, uses_cluster
from openpai_tasks.sdk.notebooks.notebook_file import read_notebook
from tests.notebook_files import text, write

OURS = {
    "load": "%load_ext openpai_tasks",
    "line": "x = 1\n%pai job.list",
    "assigned": "jobs = %pai job.list",
    "several": "a, b = %pai job.list",
    "attribute": "x.y = %pai job.list",
    "item": "found['all'] = %pai job.list",
    "indented": "if True:\n    %pai job.list",
    "continued": "%pai job.sub 'true' \\\n  --gpu 1",
    "automatic": "pai job.list",
    "behind others": "!ls 'a\n%matplotlib inline\n?print\njobs = %pai job.list {x[0]}",
    "cell": "%%pai_sub --gpu 1\nprint(1)",
    "timed": "%%time\nsubmit_this_notebook()",
    "call": "job = submit_this_notebook(gpu=1)",
    "call in a function": "def go():\n    return openpai_tasks.submit_this_notebook()",
    "import": "from openpai_tasks import submit_this_notebook",
    "as IPython says it": "get_ipython().run_line_magic('pai', 'job.list')",
    "cell as IPython says it": "get_ipython().run_cell_magic('pai_sub', '--gpu 1', 'print(1)')",
    "load as IPython says it": "get_ipython().run_line_magic('load_ext', 'openpai_tasks')",
    "manager": "get_ipython().extension_manager.load_extension('openpai_tasks')",
    "line timed": "%time %pai job.list",
    "line timed often": "%timeit -n 1 -r1 rows = %pai job.list",
    "line profiled": "%prun -s cumulative -l 5 submit_this_notebook()",
    "timed as IPython says it": "get_ipython().run_line_magic('time', '%pai job.list')",
    "cell timed as IPython says it": "get_ipython().run_cell_magic('time', '', 'x = 1\\n%pai job.list')",
    "with its sign": "get_ipython().magic('%pai job.list')",
    "shell": "!pai job.list",
    "shell assigned": "if True:\n    rows = !pai job.list -o json",
    "shell as lines": "!!pai job.list",
    "broken": "submit_this_notebook()\nx = = 1",
}
OTHERS = {
    "other extension": "%load_ext autoreload",
    "other magic": "%paint",
    "printed": "print('%pai')",
    "remainder": "x = 5 %pais",
    "comment": "train()  # then submit_this_notebook(gpu=4)",
    "string": "print('call submit_this_notebook(gpu=4)')",
    "long string": "help = '''\n%pai job.list\nsubmit_this_notebook()\n'''\ntrain()",
    "remainder in brackets": "x = (a\n%pai\n)",
    "name": "pai = 3\npai",
    "command": "!echo submit_this_notebook()",
    "another command": "!paint\n!echo pai",
    "path of a command": "!pai.sh",
    "other line timed": "%time print('%pai job.list')",
    "file": "%%writefile x.py\nsubmit_this_notebook()",
    "shell": "%%bash\n%pai job.list",
    "other magic by name": "get_ipython().run_line_magic('time', 'pai()')",
    "nothing": "",
}


@pytest.mark.parametrize("source", OURS.values(), ids=OURS)
def test_cells_with_our_magics_and_calls_use_the_cluster(source):
    assert uses_cluster(source)


@pytest.mark.parametrize("source", OTHERS.values(), ids=OTHERS)
def test_other_cells_do_not_use_the_cluster(source):
    assert not uses_cluster(source)


BOTH = "from openpai_tasks import submit_this_notebook, runtime"
KEPT = "from openpai_tasks import runtime"
PARTS = {
    BOTH: KEPT,
    "from openpai_tasks import (\n    submit_this_notebook,\n  runtime as r); x = 1": f"{KEPT} as r; x = 1",
    f"%matplotlib inline\n{BOTH}\nx = 1": f"%matplotlib inline\n{KEPT}\nx = 1",
    f"%%time\n{BOTH}": f"%%time\n{KEPT}",
    f"é = 1; {BOTH}": f"é = 1; {KEPT}",
    f"{BOTH}\nx = 1\njob = submit_this_notebook(gpu=1)\nprint(job)": KEPT,
    f"import os\n{KEPT}\n%pai job.list": KEPT,
    "if True:\n    from openpai_tasks import submit_this_notebook": "if True:\n    pass",
    "from openpai_tasks import submit_this_notebook, Cluster\nsubmit_this_notebook()": "",
    "from openpai_tasks import submit_this_notebook": "",
    "train()": "train()",
}


@pytest.mark.parametrize("source, kept", PARTS.items(), ids=range(len(PARTS)))
def test_only_the_submission_is_dropped_next_to_the_runtime(source, kept):
    assert code_for_job(source) == kept


def sent(path):
    """The cells as they are sent."""
    (copy, _) = running.job_files(read_notebook(path.name, path.parent))
    return json.loads(copy.content)["cells"]


def test_cluster_cells_become_raw_and_are_reported(tmp_path):
    path = write(
        tmp_path / "a.ipynb", "%load_ext openpai_tasks", text("# title"), "print(1)", "%pai job.list"
    )
    assert [cell["cell_type"] for cell in sent(path)] == ["raw", "markdown", "code", "raw"]
    assert "outputs" not in sent(path)[0]
    messages = running.remarks(read_notebook("a.ipynb", tmp_path), running.RunOptions())
    which = "cell 1 (%load_ext openpai_tasks), cell 4 (%pai job.list)"
    how = "(numbered among all cells, text included)"
    assert messages == [f"2 cells that use the cluster are not run {how}: {which}"]


def test_a_notebook_with_cluster_cells_only_is_refused(tmp_path):
    write(tmp_path / "a.ipynb", "%load_ext openpai_tasks", text("# title"))
    with pytest.raises(ConfigError, match="nothing to run: every code cell of"):
        running.remarks(read_notebook("a.ipynb", tmp_path), running.RunOptions())


def test_notebook_of_format_3_is_sent_unchanged(tmp_path):
    content = {"nbformat": 3, "nbformat_minor": 0, "metadata": {}, "worksheets": [{"cells": []}]}
    (tmp_path / "old.ipynb").write_text(json.dumps(content))
    (copy, _) = running.job_files(read_notebook("old.ipynb", tmp_path))
    assert json.loads(copy.content) == content


def test_cell_with_thousands_of_magics_is_read_at_once():
    begun = time.thread_time()
    assert uses_cluster("x = 1\n%time y\n" * 2000 + "%pai job.list\n")
    assert not uses_cluster(" " * 50_000 + "=\n" + "a" * 50_000)
    assert time.thread_time() - begun < 10  # of CPU time; it took minutes
