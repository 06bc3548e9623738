"""The flags and words of each task, read when the command line names it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from typing import Any

from invoke.collection import Collection
from invoke.exceptions import Exit, ParseError
from invoke.parser.argument import Argument
from invoke.parser.context import ParserContext

from openpai_tasks import exits
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.tasks.framework.suggestions import closest_task
from openpai_tasks.tasks.framework.terminal import wrapped
from openpai_tasks.text import hints

COMMAND = "command"
PLACEHOLDERS = {str: "STRING", int: "INT", float: "NUMBER", list: "STRING"}


class UsageError(ParseError, Exit):
    """Raised for a command line with a mistake; Invoke prints it and exits with our code."""

    def __init__(self, text: str, context: ParserContext | None = None) -> None:
        Exception.__init__(self, wrapped([f"error: {text}"]))
        self.context = context
        self.message = None  # else it would be printed twice

    @property
    def code(self) -> int:
        return exits.BAD_INPUT


@dataclass(frozen=True)
class Classic:
    """The task that a command of the older clients runs.

    If ``greedy``, all words after it are one command. ``words`` are typed before those of the user. ``task``
    loads an unlisted task that takes the old flags and calls the target; ``renamed`` are flags by old names.
    A ``short`` one is a short name of ours, not an old one.
    """

    target: str
    greedy: bool = False
    words: tuple[str, ...] = ()
    task: Callable[[], Any] | None = None
    renamed: Mapping[str, str] = field(default_factory=dict)
    short: bool = False


class TaskContext(ParserContext):
    """The flags and words of one task."""

    def __init__(self, name: str, task: Any, arguments: list[Argument]) -> None:
        super().__init__(name, args=arguments)
        self.task = task
        self.classic: Classic | None = None
        self.typed = name  # as the user spelt it
        self.single_dash = getattr(task, "single_dash", False)
        self.is_ours = task.body.__module__.startswith("openpai_tasks.tasks.")
        parameters = task.argspec(task.body).parameters.values()
        self.required = {item.name for item in parameters if item.default is inspect.Parameter.empty}

    def with_two_dashes(self, word: str) -> str:
        """Return a flag with two dashes if it is a long one of a task that takes it with one."""
        name, equals, value = word.partition("=")
        long = f"-{name}".replace("_", "-")
        is_long = self.single_dash and not word.startswith("--") and len(name) > 2 and long in self.flags
        return long + equals + value if is_long else word

    def open_positionals(self) -> list[Argument]:
        """Return the positionals that can still take a word; lists take any number."""
        return [item for item in self.positional_args if item.kind is list or not item.got_value]

    def takes_all(self, argument: Argument) -> bool:
        """Whether it takes all words after ``--``: `command` in our tasks, the last positional in others."""
        is_last = argument is self.positional_args[-1]
        return is_last and (argument.name == COMMAND or not self.is_ours)

    def missing_positionals(self) -> list[Argument]:
        return [item for item in self.positional_args if item.name in self.required and not item.got_value]

    def usage(self) -> str:
        """Return the task's name and positionals, as they are typed."""
        words = []
        for item in self.positional_args:
            word = item.names[0].upper() + (" ..." if item.kind is list else "")
            words.append(word if item.name in self.required else f"[{word}]")
        return " ".join([str(self.name), *words])

    def help_tuples(self) -> list[tuple[str, str | None]]:
        """Return the flags with their help, in the order that the task declares them."""
        return [self.help_for(flag) for flag in self.flags]

    def help_for(self, flag: str) -> tuple[str, str]:
        """Return the spellings of a flag, with a placeholder for its value, and its help."""
        argument = self.flags[flag]
        if flag in self.inverse_flags.values():
            return f"--[no-]{flag[2:]}", argument.help or ""
        value = PLACEHOLDERS.get(argument.kind, "VALUE") if argument.takes_value else ""
        names = sorted((flag, *self.flags.aliases_of(flag)), key=len)
        return ", ".join(_spelling(name, value, argument.optional) for name in names), argument.help or ""


def _primary_names(tasks: Mapping[str, Iterable[str]]) -> dict[str, str]:
    return {name: primary for primary, aliases in tasks.items() for name in (primary, *aliases)}


def _spelling(name: str, value: str, optional: bool) -> str:
    joint = " " if len(name) == 2 else "="
    if optional and value:
        return f"{name}[{joint}{value}]" if joint == "=" else f"{name} [{value}]"
    return f"{name}{joint}{value}" if value else name


class Contexts(Mapping[str, TaskContext]):
    """Mapping from task names to fresh contexts; looking up a name loads only the tasks of its collection.

    ``classic`` names count only as the first word of a line, and so do the two words of ``spaced`` ones.
    """

    def __init__(
        self,
        collection: Collection,
        ignore_unknown_help: bool | None = None,
        classic: Mapping[str, Classic] | None = None,
        spaced: Mapping[str, Classic] | None = None,
    ) -> None:
        self.collection = collection
        self.ignore_unknown_help = ignore_unknown_help
        self.classic = classic or {}
        self.spaced = spaced or {}

    @functools.cached_property
    def names(self) -> dict[str, str]:
        """All names of tasks, each with the primary one."""
        return _primary_names(self.collection.task_names)

    def _names_near(self, name: str) -> dict[str, str]:
        """Return the names in the same collection, and of tasks in none."""
        near = Collection(auto_dash_names=self.collection.auto_dash_names)
        near.tasks = self.collection.tasks
        first = name.partition(".")[0]
        if first in self.collection.collections:
            near.collections[first] = self.collection.collections[first]
        return _primary_names(near.task_names)

    def __getitem__(self, name: str) -> TaskContext:
        primary = self._names_near(name)[name]
        return self._context(primary, self.collection[primary])

    def _context(self, primary: str, task: Any) -> TaskContext:
        helps = dict(task.help)
        arguments = task.get_arguments(ignore_unknown_help=self.ignore_unknown_help)
        task.help = helps  # Invoke's get_arguments() empties it
        return TaskContext(primary, task, arguments)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._names_near(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def find_classic(self, word: str) -> TaskContext | None:
        """Return the task that a classic command runs, if the word is one."""
        row = None if word in self else self.classic.get(word) or self.spaced.get(word)
        if row is None:
            return None
        if row.target not in self:
            raise UsageError(f"{word!r} runs `{row.target}`, which this project's tasks do not include")
        context = self._context(row.target, row.task()) if row.task else self[row.target]
        context.classic, context.typed = row, word
        return context

    def is_collection(self, path: str) -> bool:
        try:
            self.collection.subcollection_from_path(path)
        except KeyError:
            return False
        return True

    def unknown_task(self, name: str, context: ParserContext | None = None) -> UsageError:
        """Return the error for a word that is not a task, with the task that was probably meant."""
        found = closest_task(name, self.names, self.classic, self.collection.collections)
        folder = name.rpartition(".")[0]
        there = [folder] if folder and self.is_collection(folder) else []
        listing = f" (`{hints.command('--list', *there)}` shows {'its' if there else 'all'} tasks)"
        return UsageError(
            f"no task named {name!r}{f', did you mean {found}?' if found else listing}", context
        )
