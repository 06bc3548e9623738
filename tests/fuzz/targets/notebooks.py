"""Notebooks that others wrote: sent to a job, executed by one, pulled from one, and shown in the portal."""

from __future__ import annotations

import json
from typing import Any

from openpai_tasks.errors import PathError
from openpai_tasks.portal import notebook_page
from openpai_tasks.protocol import fields
from openpai_tasks.protocol.json_text import parse
from openpai_tasks.sdk.notebooks import origins, pull, results
from openpai_tasks.sdk.notebooks.cluster_cells import describe_cluster_cells, without_cluster_cells
from openpai_tasks.sdk.notebooks.notebook_file import read_notebook
from openpai_tasks.sdk.notebooks.running import MARK, read_run_mark
from openpai_tasks.sdk.payloads import notebook_runner
from tests.fuzz.scratch import empty_folder
from tests.fuzz.target import Target


def _notebook(data: bytes) -> object:
    """Prepare a notebook like ``notebook.run``."""
    folder = empty_folder("notebooks")
    (folder / "a.ipynb").write_bytes(data)
    found = read_notebook("a.ipynb", folder)
    sent = without_cluster_cells(found)
    describe_cluster_cells(found)
    if found.version == 4:
        notebook_runner.inject(sent.content, {"lr": 0.1})
    return sent.as_sent(), found.kernel, found.language, found.stem


def _cells(data: bytes) -> object:
    """Prepare a notebook with these cells, separated by form feeds."""
    cells = [
        {"cell_type": "code", "source": source, "metadata": {}, "outputs": [], "execution_count": None}
        for source in data.decode("utf-8", "surrogatepass" if data[:1] == b"\xed" else "replace").split("\f")
    ]
    notebook = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells}
    return _notebook(json.dumps(notebook).encode())


def _executed(data: bytes) -> object:
    """Read and show a notebook that a job has executed."""
    summary = results.read_summary(data)
    if summary:
        for has_colours in (False, True):
            results.plain_traceback(summary.traceback, has_colours)
    return notebook_page.render(data) if notebook_page.is_notebook(data) else summary


def _manifest(data: bytes) -> object:
    """Read the list of notebooks that a Jupyter server has saved, and the mark in a job's document."""
    try:
        found = fields.mapping(parse(data))
    except ValueError:  # as ``pull`` does
        return None
    mark = read_run_mark(found)
    return mark, [_target(change.name) for change in pull.parse_changes(found)]


def _target(name: str) -> Any:
    try:
        return origins.find_target(
            name, empty_folder("pulled"), origins.Origins(sent={".hidden/a.ipynb": ""})
        )
    except PathError as err:
        return str(err)


def _terminal(data: bytes) -> object:
    """Render output with carriage returns, colours and cursor movements, as the runner does in the job."""
    return notebook_runner.render_text(data.decode("utf-8", "replace"))


_OUTPUTS: list[dict[str, Any]] = [
    {"output_type": "stream", "name": "stdout", "text": ["50%\r100%\n"]},
    {"output_type": "display_data", "data": {"image/png": "aGVsbG8=", "text/plain": "a"}, "metadata": {}},
    {
        "output_type": "execute_result",
        "data": {"text/html": "<b>a</b>"},
        "metadata": {},
        "execution_count": 1,
    },
    {"output_type": "error", "ename": "KeyError", "evalue": "1", "traceback": ["\x1b[31mKeyError\x1b[0m: 1"]},
]
_CELLS: list[dict[str, Any]] = [
    {"cell_type": "markdown", "source": "# Title\n\n| a | b |\n|---|---|\n| 1 | `2` |", "metadata": {}},
    {"cell_type": "code", "source": ["%pai job.list\n", "a = 1"], "metadata": {"tags": ["parameters"]}},
    {"cell_type": "code", "source": "print(1)", "metadata": {}, "outputs": _OUTPUTS, "execution_count": 1},
]
_KERNEL = {"kernelspec": {"name": "python3", "display_name": "Python 3"}, "language_info": {"name": "python"}}
NOTEBOOK = json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": _KERNEL, "cells": _CELLS}).encode()
_STATE = {
    "state": "failed",
    "cell": 2,
    "of": 2,
    "index": 2,
    "reason": "KeyError",
    "files": ["a.ipynb", "a.html"],
}
EXECUTED = json.dumps(
    {"nbformat": 4, "nbformat_minor": 5, "metadata": {notebook_runner.STATE: _STATE}, "cells": _CELLS}
).encode()
MANIFEST = json.dumps(
    {
        "files": {
            "a.ipynb": {"versions": ["abc"], "base": "def"},
            ".hidden/b.ipynb": {"versions": ["x", "y"]},
        },
        "extras": {MARK: {"file": "a.ipynb", "formats": ["html"], "parameters": '{"lr": 0.1}'}},
    }
).encode()
OLD = b'{"nbformat": 3, "nbformat_minor": 0, "metadata": {}, "worksheets": [{"cells": []}]}'
CELLS = (
    b"from openpai_tasks import submit_this_notebook, runtime\n%time !pai job.list\nfiles = !ls\nhelp?\f"
    b"%%time\nimport numpy\nget_ipython().run_line_magic('pai', 'job.list')\f%%bash\nls\f"
    b"%load_ext openpai_tasks"
)

TARGETS = (
    Target("notebook", _notebook, (NOTEBOOK, OLD)),
    Target("notebook-cells", _cells, (CELLS,)),
    Target("executed-notebook", _executed, (EXECUTED, NOTEBOOK)),
    Target("notebook-manifest", _manifest, (MANIFEST,)),
    Target("terminal-output", _terminal, (b"10%\r\x1b[32m50%\x1b[0m\r100%\x1b[K\nab\x08c\x1b[2Kd\n",)),
)
