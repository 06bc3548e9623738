"""What of a notebook goes along: the cells that speak to the cluster stay here.

The image has no package of ours, and a job that submitted jobs would wait for its own place.
"""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any

from openpai_tasks.errors import ConfigError
from openpai_tasks.sdk.notebook_runner import source_of

if TYPE_CHECKING:
    from openpai_tasks.sdk.notebooks import Notebook

_OURS = re.compile(r"^\s*%(load_ext|reload_ext)\s+openpai_tasks\b|^\s*(\w+\s*=\s*)?%pai\b|^%%pai_sub\b", re.M)
_CALL = "submit_this_notebook("


def travelling(notebook: Notebook) -> tuple[Notebook, int]:
    """The notebook as it goes along, and how many cells of it stay here; one of format 3 goes as it is."""
    if notebook.version != 4:
        return notebook, 0
    cells, stay = list[dict[str, Any]](), 0
    for cell in notebook.cells:
        if cell["cell_type"] == "code" and speaks_to_the_cluster(source_of(cell)):
            stay += 1
            rest = {key: value for key, value in cell.items() if key not in ("outputs", "execution_count")}
            cell = {**rest, "cell_type": "raw"}  # still to be read, never run
        cells.append(cell)
    return dataclasses.replace(notebook, content={**notebook.content, "cells": cells}), stay


def speaks_to_the_cluster(source: str) -> bool:
    return _CALL in source or _OURS.search(source) is not None


def staying(notebook: Notebook) -> list[str]:
    """The line that tells it, if there is something to tell; a notebook of nothing else is refused."""
    stay = travelling(notebook)[1]
    if not stay:
        return []
    if stay == sum(cell["cell_type"] == "code" for cell in notebook.cells):
        raise ConfigError(f"{notebook.name} has no other cells than those that speak to the cluster")
    cells = "1 cell that speaks" if stay == 1 else f"{stay} cells that speak"
    return [f"{cells} to the cluster {'stays' if stay == 1 else 'stay'} here"]
