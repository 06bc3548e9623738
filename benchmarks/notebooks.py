"""A notebook as a job of the embedded cluster, beside papermill and nbclient, which run it in place.

Each contender is a process, timed with its start, that writes the executed notebook. Ours is submitted,
scheduled and fetched like any job.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from benchmarks.side_by_side import OURS, Comparison, Turn
from benchmarks.startup import python

CELLS = 20

Execution = Callable[[Path, Path], list[str]]
"""The command line that executes the first notebook and writes the second one."""

# The sockets of the kernel are files in the working folder: another process may take a port before it does.
NBCONVERT = ("nbconvert", "--to", "notebook", "--execute", "--KernelManager.transport=ipc")
PEERS: Mapping[str, Execution] = {
    "papermill": lambda source, target: ["papermill", "--no-progress-bar", str(source), str(target)],
    "nbclient": lambda source, target: [*NBCONVERT, str(source), "--output", str(target)],
}
"""Programs that run notebooks; nbconvert executes with nbclient."""


def comparisons(folder: Path, cells: int = CELLS) -> Iterator[Comparison]:
    pai, home = [sys.executable, "-m", "openpai_tasks"], {"OPENPAI_HOME": str(folder / "home")}
    # The job finds the Jupyter of the peers, rather than installing another one.
    home["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    source = make_notebook(folder / "work" / "squares.ipynb", cells)
    ours = [*pai, "notebook.run", source.name, "--to", "ipynb", "--no-browser"]
    contenders = {OURS: executing(python(ours, source.parent, **home), source, cells)}
    for name, command in PEERS.items():
        program, *flags = command(source, source.with_name(f"squares.{name}.ipynb"))
        if importlib.util.find_spec(name) and importlib.util.find_spec(program):
            turn = python([sys.executable, "-m", program, *flags], source.parent)
            contenders[name] = executing(turn, source, cells)
    try:
        python([*pai, "cluster.start"], folder, **home)()
        yield Comparison(f"run a notebook of {cells} cells", contenders)
    finally:
        python([*pai, "cluster.stop"], folder, **home)()


def make_notebook(path: Path, cells: int) -> Path:
    """Write a notebook whose cells print the first square numbers."""
    path.parent.mkdir()
    blank = {"cell_type": "code", "metadata": {}, "execution_count": None, "outputs": []}
    code = [{**blank, "id": f"cell-{number}", "source": f"print({number} ** 2)"} for number in range(cells)]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    document = {"cells": code, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    path.write_text(json.dumps(document))
    return path


def executing(turn: Turn, source: Path, cells: int) -> Turn:
    """Return the turn with a check of the notebook that it writes beside the source."""

    def checked() -> float | None:
        seconds = turn()
        (written,) = (path for path in source.parent.glob("*.ipynb") if path != source)
        found = json.loads(written.read_text())["cells"]
        texts = ["".join(output["text"]) for cell in found for output in cell.get("outputs", ())]
        if texts != [f"{number**2}\n" for number in range(cells)]:
            raise RuntimeError(f"{written} has not the output of all cells")
        written.unlink()
        return seconds

    return checked
