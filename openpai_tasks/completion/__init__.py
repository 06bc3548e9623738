"""Completion scripts that contain every task and flag, so that pressing TAB does not start Python.

Names of jobs, clusters, templates and paths are read from plain lists in ``~/.openpai/cache/names``, which
commands update as they see such names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from openpai_tasks.lazy_dataclass import dataclass

FILES = "files"
MANY = "..."
"""Suffix of the last kind of a command's words: any number of them."""


@dataclass(frozen=True)
class Flag:
    """All spellings of a flag; ``kind`` is the kind of its value, None if it takes none.

    A kind is a list in the cache (``jobs``), ``files``, ``nothing``, or the possible values (``a|b``).
    """

    names: tuple[str, ...]
    kind: str | None = None
    about: str = ""


@dataclass(frozen=True)
class Command:
    """What may follow the name of a task; if ``first``, it must be the first word of the line."""

    about: str = ""
    flags: tuple[Flag, ...] = ()
    words: tuple[str, ...] = ()
    first: bool = False


Commands = Mapping[str, Command]


def script(shell: str, binaries: Sequence[str], commands: Commands, core: Command) -> str:
    """Return the script for one of ``SHELLS`` and the programs; ``core`` has the flags before a task."""
    template = (Path(__file__).parent / f"pai.{shell}").read_text(encoding="utf-8")
    dialect = SHELLS[shell]
    values = {
        "NAMES": " ".join(binaries),
        "ID": re.sub(r"\W", "_", binaries[0]),
        "CORE": dialect.takes(core),
        "TASKS": dialect.tasks({name: item for name, item in commands.items() if not item.first}),
        "FIRST": dialect.tasks({name: item for name, item in commands.items() if item.first}),
        "CASES": "\n".join(dialect.case(name, command) for name, command in sorted(commands.items())),
    }
    return re.sub(r"@([A-Z]+)@", lambda match: values[match[1]], template)


@dataclass(frozen=True)
class Dialect:
    """How a shell writes the list of tasks, the flags of a task, and the branch for a task."""

    takes: Callable[[Command], str]
    tasks: Callable[[Commands], str]
    case: Callable[[str, Command], str]


def _values(command: Command) -> list[str]:
    """Return ``--flag=kind`` for every spelling of a flag that takes a value."""
    return [f"{name}={flag.kind}" for flag in command.flags if flag.kind is not None for name in flag.names]


def _flags(command: Command) -> list[tuple[str, str]]:
    return [(name, flag.about) for flag in command.flags for name in flag.names]


def _pattern(name: str, command: Command) -> str:
    """Return the shell pattern for ``TASK-SO-FAR/WORD`` that matches this command."""
    return f"/{name}" if command.first else f"*/{name}"


def _quote_all(words: Iterable[str]) -> str:
    return " ".join("'" + word.replace("'", "'\\''") + "'" for word in words)


def _bash_takes(command: Command) -> str:
    flags = " ".join(name for name, _ in _flags(command))
    return f"flags='{flags}' values=' {' '.join(_values(command))} ' slots='{' '.join(command.words)}'"


def _zsh_entry(name: str, about: str) -> str:
    return f"{name}:{about}" if about else name


def _zsh_takes(command: Command) -> str:
    flags = _quote_all(_zsh_entry(*flag) for flag in _flags(command))
    return f"flags=({flags}) values=' {' '.join(_values(command))} ' slots=({_quote_all(command.words)})"


def _fish_quote(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _fish_entry(name: str, about: str) -> str:
    return _fish_quote(f"{name}\t{about}" if about else name)


def _fish_takes(command: Command) -> str:
    flags = " ".join(_fish_entry(*flag) for flag in _flags(command))
    values, slots = (" ".join(map(_fish_quote, part)) for part in (_values(command), command.words))
    return f"set flags {flags}\n            set values {values}\n            set slots {slots}"


SHELLS = {
    "bash": Dialect(
        _bash_takes,
        lambda commands: " ".join(sorted(commands)),
        lambda name, item: f"        {_pattern(name, item)}) {_bash_takes(item)} ;;",
    ),
    "fish": Dialect(
        _fish_takes,
        lambda commands: " ".join(_fish_entry(name, item.about) for name, item in sorted(commands.items())),
        lambda name, item: f"        case '{_pattern(name, item)}'\n            {_fish_takes(item)}",
    ),
    "zsh": Dialect(
        _zsh_takes,
        lambda commands: _quote_all(_zsh_entry(name, item.about) for name, item in sorted(commands.items())),
        lambda name, item: f"        {_pattern(name, item)}) {_zsh_takes(item)} ;;",
    ),
}
