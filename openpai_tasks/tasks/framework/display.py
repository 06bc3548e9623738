"""The way to a notebook that runs a command and wants pictures: a pipe of its own, beside stdout.

Each line of it is a JSON object: ``data`` is a bundle of MIME types, ``rows`` are the values shown.
"""

from __future__ import annotations

import os

from openpai_tasks import render
from openpai_tasks.tasks.framework import terminal

VARIABLE = "OPENPAI_DISPLAY"
"""The number of the pipe, in the environment of a command that a notebook runs."""

# Taken out at once: the pipe is for this process, not for those that it starts.
_pipe = os.environ.pop(VARIABLE, "")


def takes(items, columns, text):
    """Whether the values went to the notebook as a picture; else they are to be printed."""
    if not _pipe.isdecimal():
        return False
    picture = render.picture(items, columns)
    if picture is None:
        return False
    import json

    data = {"text/plain": text, "text/html": picture}
    terminal.flush()  # what was printed before is shown before
    line = json.dumps({"data": data, "rows": render.values(items, columns)})
    try:
        with open(int(_pipe), "w", encoding="utf-8", closefd=False) as out:
            out.write(f"{line}\n")
    except OSError:  # nobody is there to look at it
        return False
    return True
