"""The reference of commands, from the tasks themselves.

``python -m docsite.commands`` writes docs/commands.md, the list of all commands.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from invoke.collection import Collection
from invoke.parser.argument import Argument
from invoke.util import helpline

from openpai_tasks.tasks import namespace
from openpai_tasks.tasks.framework.contexts import Contexts, TaskContext
from openpai_tasks.tasks.pai.flat_names import CLASSIC, SPACED

FILE = Path(__file__).parent.parent / "docs" / "commands.md"
IN_PAI = CLASSIC | SPACED
TYPES = {str: "text", int: "integer", float: "number", list: "texts"}
GUIDES = {
    "job": ("jobs", "runtime", "afterwards", "sweeps", "templates", "metrics"),
    "storage": ("storage", "packing"),
    "notebook": ("notebooks",),
    "cluster": ("clusters", "embedded", "portal"),
    "container": ("containers", "images"),
    "paddle": ("paddlecloud",),
    "config": ("settings", "completion"),
}
"""The pages of docs/ about each collection, which are listed in this order."""

HEAD = """\
# Commands

Every command takes `--help`, and most take `-o table|json|yaml|csv` for the output format. Results go to
stdout and messages to stderr, so `pai job.list -o json | jq .` always works. `-q` prints only results and
errors, `-v` also what is sent to which server.

`pai` alone shows the everyday commands, `pai help COMMAND` explains one, and `pai --list` lists them all. In
a project with a `tasks.py`, `inv` and `fab` have the same commands.
"""
PAI_HEAD = """
## Other names in pai

`pai` also takes short names, the commands of the older `pai` and `opai`, and spaces for dots (`pai job sub`).
`paddlecloud` is a program that takes the commands of PaddlePaddle Cloud's client.

| command | runs |
|---|---|
"""

Link = Callable[[str], str]


def collections() -> dict[str, Collection]:
    """Return our collections by name, in the order of the documentation."""
    found = dict(namespace().collections)
    return {name: found.pop(name) for name in GUIDES} | found


def overview(link: Link = lambda name: f"`{name}`") -> str:
    """Return the page that lists all commands; ``link`` writes the name of one."""
    parts = [HEAD]
    for name, collection in collections().items():
        parts.append(f"\n## {name}\n\n{helpline(collection)}\n\n| command | what it does |\n|---|---|\n")
        parts += [
            f"| {link(context.name or '')} | {_summary(context)}{_also(context)} |\n"
            for context in contexts(name)
        ]
    rows = [f"| `pai {name}` | {link(row.target)} |\n" for name, row in sorted(IN_PAI.items())]
    return "".join([*parts, PAI_HEAD, *rows])


def contexts(collection: str) -> Iterator[TaskContext]:
    """Yield the flags and words of each task of a collection, in the order that modules define them."""
    known = Contexts(namespace())
    for name in collections()[collection].tasks:
        yield known[f"{collection}.{name}"]


def reference(name: str) -> str:
    """Return the page about the commands of one collection."""
    found = list(contexts(name))
    guides = ", ".join(f"[{page}](../{page}.md)" for page in GUIDES.get(name, ()))
    lines = [f"# {name}", helpline(collections()[name]) or ""]
    lines += [f"Guide: {guides}."] if guides else []
    lines += ["Long flags may be typed with one dash, too."] if any(one.single_dash for one in found) else []
    return "\n\n".join([*lines, *(part for context in found for part in _section(context))]) + "\n"


def _section(context: TaskContext) -> Iterator[str]:
    yield f"## {context.name} {{ #{context.name} }}"
    yield inspect.getdoc(context.task) or ""
    yield f"```sh\npai {context.usage()}{' [--flags]' if context.flags else ''}\n```"
    yield '<div class="flags" markdown>'
    yield "\n".join(_rows(context))
    yield "</div>"
    aliases = [f"pai {name}" for name, row in IN_PAI.items() if row.target == context.name]
    if aliases or context.aliases:
        yield f"Other names: {_names([*context.aliases, *aliases])}"


def _rows(context: TaskContext) -> list[str]:
    words = {word.name: word for word in context.positional_args}
    flags = {flag: item for flag, item in context.flags.items() if item.name not in words}
    if not words and not flags:
        return []
    rows = [_row(f"`{word.names[0].upper()}`", word) for word in words.values()]
    rows += [_row(_spellings(context, flag), item) for flag, item in flags.items()]
    return ["| word or flag | type | what it does |", "|---|---|---|", *rows]


def _row(names: str, item: Argument) -> str:
    kind = TYPES.get(item.kind, item.kind.__name__) if item.takes_value else "switch"
    kind += ", optional" if item.optional and item.takes_value else ""
    text = _cell(item.help or "")
    is_plain = isinstance(item.default, (str, int, float)) and bool(item.default)
    default = f" (default: `{item.default}`)" if is_plain and "(default: " not in text else ""
    return f"| {names} | {kind} | {text}{default} |"


def _spellings(context: TaskContext, flag: str) -> str:
    inverse = [name for name, target in context.inverse_flags.items() if target == flag]
    names = sorted((flag, *context.flags.aliases_of(flag)), key=lambda name: (len(name), name))
    return _names([*names, *inverse])


def _summary(context: TaskContext) -> str:
    text = (helpline(context.task) or "").rstrip(".")
    return _cell(text[:1].lower() + text[1:])


def _also(context: TaskContext) -> str:
    short = _names(name.rpartition(".")[2] for name in context.task.aliases)
    return f" (also {short})" if short else ""


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _cell(text: str) -> str:
    """Return a text for a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


if __name__ == "__main__":
    FILE.write_text(overview(), encoding="utf-8")
