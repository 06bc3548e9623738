"""Runs one task and outlives the server: scripts that need nothing but the standard library.

    python -I -S start_runner.py SHELL GRACE BELL BOOT [FOLDER]

With FOLDER, the process becomes the runner of that task. Without, it reads folders (each ended by a NUL) from
its input and forks a runner for each, which takes a millisecond, while a new interpreter takes twenty. It
becomes a child of init, writes its process id to its output, and ends with its input; its runners do not.

In FOLDER, ``command`` is the script and ``environment`` its variables (``NAME=value``, each ended by a NUL),
which are added to those in the ``environment`` beside FOLDER. The runner holds a lock on ``lock`` while it
lives and creates ``started`` exactly once, so that a task never runs twice; ``exit`` appears, complete, when
everything that the task started is gone. TERM ends the task: its process group gets TERM, and what is left
after GRACE seconds is killed. ``sidecar``, if present, holds the arguments (each ended by a NUL) of a program
that runs beside the task, with its variables, from its start to its end.
"""

from __future__ import annotations

import os

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "start_runner.py")
