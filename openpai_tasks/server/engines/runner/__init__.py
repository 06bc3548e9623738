"""Run one task and outlive the server: scripts that need only the standard library.

    python -I -S start_runner.py SHELL GRACE PIPE BOOT [FOLDER]

With FOLDER, the process becomes the runner of that task. Without it, the process reads folders (each ended by
a NUL) from its input and forks a runner for each, which takes milliseconds; a new interpreter takes twenty.
It becomes a child of init, writes its pid to its output, and ends with its input; its runners continue until
their tasks have ended.

In FOLDER, ``command`` is the script and ``environment`` its variables (``NAME=value``, each ended by a NUL),
which are added to those in the ``environment`` next to FOLDER. The runner creates ``started`` exactly once,
so that a task never runs twice, and holds a lock on it while it runs the task; the first line has its pid,
the time and BOOT, the second the task's process group. ``exit`` appears, complete, when all processes that
the task started have ended. TERM ends the task: its process group gets TERM, and processes that are left
after GRACE seconds are killed. CONT does the same if the server has created ``stop``: some platforms can only
signal all processes of a task. ``sidecar``, if present, has the arguments (each ended by a NUL) of a program
that runs next to the task, with its variables, from its start to its end. ``gpus``, if present, has the UUIDs
(each ended by a NUL) of the GPUs that the runner locks, see gpu_locks.py. ``link``, if
present, has a path (ended by a NUL) at which the task finds what is at this path below ``mounts``, see
own_root.py. The output is in ``logs``: each
stream, both in ``all``, and when they were written in ``times``, see ``files.OutputTimes``.
"""

from __future__ import annotations

import os

FOLDERS = ("work", "mounts")
"""The folders of the task in FOLDER, next to ``logs``."""

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "start_runner.py")
