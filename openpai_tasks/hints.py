"""Commands that messages suggest, written so that they can be pasted into a shell."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable

PADDLECLOUD = "paddlecloud"
PROGRAMS = ("pai", "inv", "invoke", "fab", PADDLECLOUD)

_FLAG = re.compile(r"`[^`]*`|(?<!\w)'[^']*'|\"[^\"]*\"|(?<![\w-])--?([A-Za-z][A-Za-z-]*)(:| (?=\d)|)")
"""A flag; commands and quoted texts are skipped."""

ON_A_CLUSTER = ("job", "notebook", "container")
"""Collections whose tasks take ``--cluster-alias``."""
WITHOUT_CLUSTER = frozenset(
    {"job.validate", "job.schema", "job.templates", "job.new", "notebook.local"}
    | {f"container.{name}" for name in ("build", "push", "images", "check", "dockerfile")}
)
"""Tasks of these collections that do not."""

# one per process: messages are also made in threads, which a context variable misses
_program = PROGRAMS[0]
_cluster = ""


def use_program(names: Iterable[str]) -> None:
    """Suggest commands of the first known program among the names; for tasks/framework alone."""
    global _program, _cluster
    _cluster = ""
    _program = next((name for name in names if name in PROGRAMS), PROGRAMS[0])


def use_cluster(alias: str) -> None:
    """Suggest commands for the cluster that the user named with ``--cluster-alias``; for tasks alone."""
    global _cluster
    _cluster = alias


def command(task: str, *words: str) -> str:
    """Return the command line that runs a task: ``command("job.logs", name)`` is ``pai job.logs NAME``."""
    named = _cluster and task.partition(".")[0] in ON_A_CLUSTER and task not in WITHOUT_CLUSTER
    cluster = ("-a", _cluster) if named and "-a" not in words else ()
    return " ".join([_run(task), *map(shlex.quote, (*words, *cluster))])


def _run(task: str) -> str:
    """Return the program and the name of the task; `paddlecloud` runs only the collection `paddle`."""
    if _program != PADDLECLOUD:
        return f"{_program} {task}"
    collection, _, name = task.partition(".")
    return f"{PADDLECLOUD} {name.replace('-', ' ', 1)}" if collection == "paddle" else f"pai {task}"


def in_this_program(text: str) -> str:
    """Return a fixed text with its ``pai`` commands as commands of the program that is running."""
    program = PROGRAMS[0] if _program == PADDLECLOUD else _program
    return text.replace("`pai ", f"`{program} ")


def replace_flags(text: str, rename: Callable[[str, str], str | None]) -> str:
    """Return a message with other names for its flags, for users who did not type them.

    ``rename`` gets the name of a flag and what follows it: a colon, the space before a number, or nothing. It
    returns what replaces both, or None if the flag stays.
    """

    def replace(found: re.Match[str]) -> str:
        renamed = rename(found[1], found[2]) if found[1] else None
        return found[0] if renamed is None else renamed

    return _FLAG.sub(replace, text)
