"""Find the command of a line, and run its task.

The exit code is 0, 1 if it failed, or 2 for a mistake in the line: then nothing was sent.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

from invoke.exceptions import Exit

from openpai_tasks import __version__, exits, hints
from openpai_tasks.paddlecloud import file_words, manual
from openpai_tasks.paddlecloud.go_flags import Line, WrongUsage, read_line
from openpai_tasks.paddlecloud.verbs import EVERYWHERE, IGNORED, INSTEAD, OPTIONS, VERBS, Verb
from openpai_tasks.tasks.framework import terminal

FAILED, MISTAKE = 1, 2
KEPT = (exits.INTERRUPTED, exits.BROKEN_PIPE, exits.TERMINATED)
PARAMETERS = {
    "datacenter": "cluster_alias",
    "r": "recursive",
    "v": "verbose",
    "n": "lines",
    "w": "worker",
    "f": "follow",
    "rm": "remove",
    "y": "yes",
}
"""Options whose task has another name for them."""
COPIES = {"file put": file_words.put, "file get": file_words.get}
BY_NAME = {name: verb for verb in VERBS for name in (verb.name, *verb.older)}


def run(argv: Sequence[str]) -> int:
    """Run a command line and return its exit code."""
    sys.excepthook = terminal.show_uncaught
    hints.use_program(["paddlecloud"])
    terminal.prepare_streams()
    try:
        with terminal.output_flushed():
            return _run(argv)
    except WrongUsage as err:
        terminal.say(f"error: {err}")
        return MISTAKE
    except Exit as end:
        if end.message:
            terminal.say(*end.message.split("\n"))
        return _exit_code(end)


def _run(argv: Sequence[str]) -> int:
    line = read_line(argv, OPTIONS)
    words = ["help", *line.words] if line.values.get("help") else line.words
    if not words:
        terminal.say(*manual.overview().split("\n"))
        return MISTAKE
    if words[0] in ("help", "commands", "flags", "version"):
        terminal.put(__version__ if words[0] == "version" else _manual(words[1:]))
        return 0
    verb, rest = _find(words)
    if verb is None:
        terminal.say(f"error: {rest[0]}: {INSTEAD[rest[0]]}")
        return FAILED
    _call(verb.task, _arguments(verb, rest, line))
    return 0


def _manual(words: Sequence[str]) -> str:
    if not words:
        return manual.overview()
    verb, rest = _find(words)
    return manual.page(verb) if verb else f"{rest[0]}: {INSTEAD[rest[0]]}"


def _find(words: Sequence[str]) -> tuple[Verb | None, list[str]]:
    """Return the command and the words behind it; None and the name of a command that has no task."""
    for count in (2, 1):
        name = " ".join(words[:count])
        if name in BY_NAME:
            return BY_NAME[name], list(words[count:])
        if name in INSTEAD:
            return None, [name]
    parts = [verb.name for verb in VERBS if verb.name.startswith(f"{words[0]} ")]
    if parts:
        raise WrongUsage(f"{' '.join(words[:2])}: the commands are {', '.join(parts)}")
    raise WrongUsage(f"no command {words[0]!r}{_suggestion(words[0])} (`paddlecloud help` lists them)")


def _arguments(verb: Verb, words: list[str], line: Line) -> dict[str, Any]:
    """Return the arguments of the task."""
    known = {option.name for option in (*verb.options, *EVERYWHERE, *IGNORED)}
    for name, spelt in line.spelt.items():
        if name not in known:
            raise WrongUsage(f"{verb.name} has no option {spelt} (usage: {verb.usage})")
    given = {PARAMETERS.get(name, name): value for name, value in line.values.items()}
    for option in IGNORED:
        given.pop(option.name, None)
    bound = _bound(verb, words)
    if verb.name in COPIES:
        bound = {"paths": COPIES[verb.name](**bound)}
    return given | dict(verb.fixed) | bound


def _bound(verb: Verb, words: list[str]) -> dict[str, Any]:
    """Return the words by the names of their arguments."""
    bound: dict[str, Any] = {}
    left = list(words)
    for name in verb.words:
        if not left and not name.endswith("?"):
            raise WrongUsage(f"{verb.name} needs {name.rstrip('*').upper()} (usage: {verb.usage})")
        if name.endswith("*"):
            bound[name[:-1]], left = left, []
        elif left:
            bound[name.rstrip("?")] = left.pop(0)
    if left:
        raise WrongUsage(f"{verb.name}: unexpected word {left[0]!r} (usage: {verb.usage})")
    return bound


def _call(name: str, arguments: dict[str, Any]) -> None:
    """Run a task of the collection `paddle`."""
    from invoke.context import Context

    from openpai_tasks.settings.project import load_config
    from openpai_tasks.tasks import paddle

    config, problem = load_config()
    if problem:
        terminal.say(f"warning: {problem}")
    getattr(paddle, name)(Context(config), **arguments)


def _exit_code(end: Exit) -> int:
    from openpai_tasks.paddlecloud.request import WrongOption

    if isinstance(end.__cause__, WrongOption):
        return MISTAKE
    return end.code if end.code in (0, *KEPT) else FAILED


def _suggestion(word: str) -> str:
    import difflib

    names: Iterable[str] = (*BY_NAME, *INSTEAD, "help", "version")
    near = difflib.get_close_matches(word, [*names], 1)
    return f", did you mean {near[0]}?" if near else ""
