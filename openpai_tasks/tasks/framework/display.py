"""HTML for a notebook that runs a command: sent through a pipe beside stdout.

Each line of it is a JSON object: ``data`` is a bundle of MIME types, ``rows`` are the values shown.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from openpai_tasks import render
from openpai_tasks.tasks.framework import terminal

if TYPE_CHECKING:
    from openpai_tasks.render.text import Columns

VARIABLE = "OPENPAI_DISPLAY"
"""The environment variable that holds the number of the pipe in a command that a notebook runs."""

# Removed at once: the pipe is for this process, not for its children.
_pipe = os.environ.pop(VARIABLE, "")


def takes(items: Any, columns: Columns) -> bool:
    """Send the values to the notebook; False if there is none or text shows them better."""
    if not _pipe.isdecimal():
        return False
    picture = render.picture(items, columns)
    if picture is None:
        return False
    import json

    data = {"text/plain": render.format_values(items, columns), "text/html": picture}
    terminal.flush()  # what was printed before is shown before
    line = json.dumps({"data": data, "rows": render.values(items, columns)})
    try:
        with open(int(_pipe), "w", encoding="utf-8", closefd=False) as out:
            out.write(f"{line}\n")
    except OSError:  # the notebook is gone
        return False
    return True
