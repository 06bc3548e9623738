"""Find the command of a line, and run its task.

The exit code is 0, 1 if it failed, or 2 for a mistake in the line: then nothing was sent.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from invoke.exceptions import Exit

from openpai_tasks import __version__, exits
from openpai_tasks.paddlecloud.go_flags import Line, UsageError, read_line
from openpai_tasks.paddlecloud.request import Option
from openpai_tasks.paddlecloud.verbs import EVERYWHERE, IGNORED, INSTEAD, OPTIONS, VERBS, Verb
from openpai_tasks.tasks.framework import terminal
from openpai_tasks.tasks.framework.suggestions import suggestion
from openpai_tasks.text import hints

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
BY_NAME = {name: verb for verb in VERBS for name in (verb.name, *verb.older)}


def run(argv: Sequence[str]) -> int:
    """Run a command line and return its exit code."""
    sys.excepthook = terminal.show_uncaught
    hints.use_program(["paddlecloud"])
    terminal.prepare_streams()
    try:
        with terminal.output_flushed():
            return _run(argv)
    except UsageError as err:
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
        terminal.say(*_overview().split("\n"))
        return MISTAKE
    if words[0] in ("help", "commands", "flags", "version"):
        terminal.put(__version__ if words[0] == "version" else _manual(words[1:]))
        return 0
    verb, rest = _find(words)
    if verb is None:
        terminal.say(f"error: {rest[0]}: {INSTEAD[rest[0]]}")
        return FAILED
    _run_task(verb.task, _arguments(verb, rest, line))
    return 0


def _manual(words: Sequence[str]) -> str:
    if not words:
        return _overview()
    verb, rest = _find(words)
    return _page(verb) if verb else f"{rest[0]}: {INSTEAD[rest[0]]}"


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
        raise UsageError(f"{' '.join(words[:2])}: the commands are {', '.join(parts)}")
    near = suggestion(words[0], (*BY_NAME, *INSTEAD, "help", "version"))
    raise UsageError(f"no command {words[0]!r}{near} (`paddlecloud help` lists them)")


def _arguments(verb: Verb, words: list[str], line: Line) -> dict[str, Any]:
    """Return the arguments of the task."""
    known = {option.name for option in (*verb.options, *EVERYWHERE, *IGNORED)}
    for name, written in line.spelling.items():
        if name not in known:
            raise UsageError(f"{verb.name} has no option {written} (usage: {verb.usage})")
    given = {PARAMETERS.get(name, name): value for name, value in line.values.items()}
    for option in IGNORED:
        given.pop(option.name, None)
    bound = _bind_words(verb, words)
    if verb.name in _COPIES:
        bound = {"paths": _COPIES[verb.name](**bound)}
    return given | dict(verb.fixed) | bound


def _bind_words(verb: Verb, words: list[str]) -> dict[str, Any]:
    """Return the words by the names of their arguments."""
    bound: dict[str, Any] = {}
    left = list(words)
    for name in verb.words:
        if not left and not name.endswith("?"):
            raise UsageError(f"{verb.name} needs {name.rstrip('*').upper()} (usage: {verb.usage})")
        if name.endswith("*"):
            bound[name[:-1]], left = left, []
        elif left:
            bound[name.rstrip("?")] = left.pop(0)
    if left:
        raise UsageError(f"{verb.name}: unexpected word {left[0]!r} (usage: {verb.usage})")
    return bound


def _run_task(name: str, arguments: dict[str, Any]) -> None:
    """Run a task of the collection `paddle`."""
    from invoke.context import Context

    from openpai_tasks.settings.project import load_config
    from openpai_tasks.tasks import paddle

    config, problem = load_config()
    if problem:
        terminal.say(f"warning: {problem}")
    getattr(paddle, name)(Context(config), **arguments)


def _exit_code(end: Exit) -> int:
    from openpai_tasks.paddlecloud.request import InvalidArgument

    if isinstance(end.__cause__, InvalidArgument):
        return MISTAKE
    return end.code if end.code in (0, *KEPT) else FAILED


# Help


def _overview() -> str:
    """Return the list of commands."""
    wide = max(len(verb.name) for verb in VERBS)
    rows = [
        f"  {verb.name:{wide}}  {verb.summary}" + (f" (also: {', '.join(verb.older)})" if verb.older else "")
        for verb in VERBS
    ]
    head = "usage: paddlecloud COMMAND [options] WORDS; options may stand anywhere: -x v, -x=v, --x v"
    tail = "`paddlecloud help COMMAND` shows the options of one, `paddlecloud version` the version."
    return "\n".join([head, "", *rows, "", tail])


def _page(verb: Verb) -> str:
    """Return the usage and the options of a command."""
    options = [*verb.options, *EVERYWHERE]
    names = [_option_names(option) for option in options]
    wide = max(map(len, names))
    rows = [f"  {name:{wide}}  {option.help()}" for name, option in zip(names, options, strict=True)]
    return "\n".join(
        [
            verb.summary,
            "",
            f"usage: {verb.usage}",
            *(f"also:  paddlecloud {name}" for name in verb.older),
            "",
            *rows,
        ]
    )


def _option_names(option: Option) -> str:
    names = ", ".join(f"-{name}" for name in (option.name, option.short) if name)
    return names if option.kind is bool else f"{names} {'N' if option.kind is int else 'VALUE'}"


# The paths of `file put` and `file get`, as the paths of a copy


def _put_paths(source: str, target: str) -> list[str]:
    """Copy into the folder ``target``; of a folder with a slash at its end, the contents."""
    folder, name = target.rstrip("/"), os.path.basename(source.rstrip("/"))
    if not os.path.isdir(source):
        return [source, f"{folder}/"]
    inner = folder if source.endswith("/") or name in ("", ".", "..") else f"{folder}/{name}"
    return [f"{source.rstrip('/')}/.", f"{inner}/"]


def _get_paths(source: str, target: str) -> list[str]:
    """Copy to this machine, into a folder or under a new name; an existing file is not replaced."""
    name = os.path.basename(source.rstrip("/"))
    path = os.path.join(target, name) if os.path.isdir(target) or target.endswith("/") else target
    if os.path.lexists(path):
        raise UsageError(f"file get does not replace {path}, which exists already")
    return [source, path]


_COPIES = {"file put": _put_paths, "file get": _get_paths}
