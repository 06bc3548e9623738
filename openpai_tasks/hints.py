"""Commands that messages suggest, written so that they can be pasted into a shell."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

PROGRAMS = ("pai", "inv", "invoke", "fab")

_program = PROGRAMS[0]  # one per process: messages are also made in threads, which a context variable misses


def use_program(names: Iterable[str]) -> None:
    """Suggest commands of the first known program among the names; for tasks/framework alone."""
    global _program
    _program = next((name for name in names if name in PROGRAMS), PROGRAMS[0])


def command(task: str, *words: str) -> str:
    """Return the command line that runs a task: ``command("job.logs", name)`` is ``pai job.logs NAME``."""
    return " ".join([_program, task, *map(shlex.quote, words)])


def in_this_program(text: str) -> str:
    """Return a fixed text with its ``pai`` commands as commands of the program that is running."""
    return text.replace("`pai ", f"`{_program} ")
