"""What of a notebook goes along: the cells that speak to the cluster stay here.

The image has no package of ours, and a job that submitted jobs would wait for its own place.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from openpai_tasks.errors import ConfigError
from openpai_tasks.sdk.notebooks.code import speaks_to_the_cluster
from openpai_tasks.sdk.payloads.notebook_runner import first_line, source_of

if TYPE_CHECKING:
    from openpai_tasks.sdk.notebooks.running import Notebook

WIDTH = 40  # letters of a cell's first line that tell which cell it is


def travelling(notebook: Notebook) -> Notebook:
    """The notebook as it goes along; one of format 3 goes as it is."""
    stay = _staying(notebook)
    if not stay:
        return notebook
    cells = [_as_text(cell) if number in stay else cell for number, cell in enumerate(notebook.cells, 1)]
    return dataclasses.replace(notebook, content={**notebook.content, "cells": cells})


def staying(notebook: Notebook) -> list[str]:
    """The line that tells which cells stay, if some do; a notebook of nothing else is refused."""
    stay = _staying(notebook)
    if not stay:
        return []
    if len(stay) == sum(cell["cell_type"] == "code" for cell in notebook.cells):
        raise ConfigError(f"{notebook.name} has no other cells than those that speak to the cluster")
    cells = "1 cell that speaks" if len(stay) == 1 else f"{len(stay)} cells that speak"
    which = ", ".join(f"cell {number} ({_shortened(first_line(cell))})" for number, cell in stay.items())
    verb = "stays" if len(stay) == 1 else "stay"
    return [f"{cells} to the cluster {verb} here (the numbers count cells of text too): {which}"]


def _staying(notebook: Notebook) -> dict[int, dict[str, Any]]:
    """The cells that stay, by their numbers."""
    return {
        number: cell
        for number, cell in enumerate(notebook.cells if notebook.version == 4 else (), 1)
        if cell["cell_type"] == "code" and speaks_to_the_cluster(source_of(cell))
    }


def _as_text(cell: dict[str, Any]) -> dict[str, Any]:
    """The cell, still to be read, never run."""
    rest = {key: value for key, value in cell.items() if key not in ("outputs", "execution_count")}
    return {**rest, "cell_type": "raw"}


def _shortened(line: str) -> str:
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"
