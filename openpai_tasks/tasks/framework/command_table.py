"""The words and flags of every task, as shell completion scripts need them."""

from __future__ import annotations

from typing import Any

from invoke.parser.argument import Argument
from invoke.parser.context import ParserContext
from invoke.program import Program
from invoke.util import helpline

from openpai_tasks import exits
from openpai_tasks.completion import FILES, MANY, SHELLS, Command, Flag, script
from openpai_tasks.render import text as render
from openpai_tasks.settings import config
from openpai_tasks.storage import kinds
from openpai_tasks.tasks.framework.contexts import Contexts
from openpai_tasks.tasks.framework.terminal import ending
from openpai_tasks.text import wildcards

CLUSTERS, JOBS, TEMPLATES, PATHS, STORAGES = "clusters", "jobs", "templates", "paths", "storages"
NOTHING = "nothing"
STATES = "WAITING|RUNNING|STOPPING|SUCCEEDED|FAILED|STOPPED"

KINDS = (
    ("cluster.add", "cluster-alias", NOTHING),
    ("config.set", "values", "|".join(f"{name}=" for name in config.VARIABLES)),
    ("config.unset", "names", "|".join(config.VARIABLES)),
    ("config.completion", "shell", "|".join(SHELLS)),
    ("job.diff", "first", JOBS),
    ("job.diff", "second", JOBS),
    ("job.list", "fields", NOTHING),
    ("job.list", "state", STATES),
    ("job.logs", "grep", NOTHING),
    ("job.logs", "level", "DEBUG|INFO|WARNING|ERROR|CRITICAL"),
    ("job.logs", "output", "table|json"),
    ("job.logs", "since", NOTHING),
    ("job.metrics", "metric", NOTHING),
    ("job.resubmit", "to", CLUSTERS),
    ("job.results", "sort", NOTHING),
    ("job.*", "name", JOBS),
    ("job.*", "names", JOBS),
    ("job.*", "template", TEMPLATES),
    ("notebook.fetch", "name", JOBS),
    ("notebook.pull", "name", JOBS),
    ("notebook.serve", "reconnect", JOBS),
    ("notebook.*", "kernel", NOTHING),
    ("notebook.*", "parameter", NOTHING),
    ("notebook.*", "source-cluster", CLUSTERS),
    ("notebook.*", "to", "html|pdf|script|ipynb"),
    ("container.images", "name", NOTHING),
    ("container.*", "image", NOTHING),
    ("container.*", "name", JOBS),
    ("container.*", "names", JOBS),
    ("container.*", "ports", NOTHING),
    ("storage.select", "storage-name", STORAGES),
    ("storage.forget", "names", STORAGES),
    ("storage.add", "name", NOTHING),
    ("storage.add", "options", NOTHING),
    ("storage.add", "option", NOTHING),
    ("storage.add", "type", "|".join(kinds.ADDABLE)),
    ("storage.*", "path*", PATHS),
    ("storage.*", "source*", PATHS),
    ("storage.*", "target", PATHS),
    ("storage.*", "url*", PATHS),
    ("*", "after*", JOBS),
    ("*", "cluster-alias*", CLUSTERS),
    ("*", "command", NOTHING),
    ("*", "job-name", NOTHING),
    ("*", "output", "|".join(render.FORMATS)),
    ("*", "virtual-cluster", "virtual-clusters"),
)
"""Task, argument (both may be patterns) and the kind of its values; the first matching row counts."""


def completion_script(program: Program, shell: str, binaries: list[str] | None = None) -> str:
    """Return the completion script for a shell; it completes the program itself unless others are named."""
    if shell not in SHELLS:
        raise ending(exits.BAD_INPUT, f"error: no completion for {shell!r} (known: {', '.join(SHELLS)})")
    names = binaries or list(program.binary_names)
    return script(shell, names, command_table(program), _command("", program.initial_context, ""))


def command_table(program: Program) -> dict[str, Command]:
    """Return every task name that can be typed, with the words and flags it takes."""
    contexts: Contexts = program.parser.contexts  # type: ignore[assignment]
    collection = program.collection
    found = {name: _command(contexts.names[name], contexts[name], collection[name]) for name in contexts}
    classic = {}
    for name, row in contexts.classic.items():
        if row.target in found and name not in found:
            target = found[row.target]
            classic[name] = Command(target.about, target.flags, target.words, first=True)
    return classic | found


def _command(name: str, context: ParserContext, task: Any) -> Command:
    words = [
        _kind(name, argument.names[0], argument) + (MANY if argument.kind is list else "")
        for argument in context.positional_args
    ]
    about = (helpline(task) or "") if task else ""
    return Command(_line(about), tuple(_flags(name, context)), tuple(words))


def _flags(name: str, context: ParserContext) -> list[Flag]:
    inverse = {flag: other for other, flag in context.inverse_flags.items()}
    found = []
    for flag, argument in context.flags.items():
        takes_value = argument.takes_value and not argument.optional
        kind = _kind(name, flag.lstrip("-"), argument) if takes_value else None
        names = sorted((flag, *context.flags.aliases_of(flag)), key=len, reverse=True)
        names += [inverse[flag]] if flag in inverse else []
        found.append(Flag(tuple(names), kind, _line(argument.help or "")))
    return sorted(found, key=lambda flag: flag.names[0])


def _kind(task: str, name: str, argument: Argument) -> str:
    for pattern, wanted, kind in KINDS:
        if wildcards.matches(task, pattern) and wildcards.matches(name, wanted):
            return kind
    return NOTHING if argument.kind in (int, float) else FILES


def _line(text: str) -> str:
    return " ".join(text.split())
