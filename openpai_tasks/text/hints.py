"""Commands and options that messages name, in the words of the front end that is running."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable

PADDLECLOUD = "paddlecloud"
PROGRAMS = ("pai", "inv", "invoke", "fab", PADDLECLOUD)

ON_A_CLUSTER = ("job", "notebook", "container")
"""Collections whose tasks take ``--cluster-alias``."""
WITHOUT_CLUSTER = frozenset(
    {"job.validate", "job.schema", "job.templates", "job.new", "notebook.local"}
    | {f"container.{name}" for name in ("build", "push", "images", "check", "dockerfile")}
)
"""Tasks of these collections that do not."""

NameOption = Callable[[str], str]
"""Returns the name of an option in messages, from its name in Python."""


def argument(name: str) -> str:
    """Name an option for programs in Python: ``max_time=``."""
    return f"{name}="


def flag(name: str) -> str:
    """Name an option for commands: ``--max-time``."""
    return f"--{name.replace('_', '-')}"


# one per process: messages are also made in threads, which a context variable misses
_program = PROGRAMS[0]
_cluster = ""
_name_option: NameOption = argument


def use_program(names: Iterable[str]) -> None:
    """Suggest commands of the first known program among the names; for tasks/framework alone."""
    global _program, _cluster
    _cluster = ""
    _program = next((name for name in names if name in PROGRAMS), PROGRAMS[0])
    use_options(flag)


def use_options(name_option: NameOption) -> None:
    """Name options in this way from now on; a program in Python that does not call this names arguments."""
    global _name_option
    _name_option = name_option


def option(name: str) -> str:
    """Return the name of an option as users of this front end know it."""
    return _name_option(name)


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
